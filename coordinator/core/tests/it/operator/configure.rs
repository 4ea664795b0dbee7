//! Changes of settings at run time: admissible changes, and the time of their effect.

use crate::bed::{TestBed, settings};
use archon_coordinator_core::*;
use archon_types::*;
use proptest::prelude::*;

const CITIES: [&str; 3] = ["athens", "byzantium", "cyrene"];

fn change(setting: Setting, value: u64) -> SettingChange {
    SettingChange { setting, value }
}

/// Changes one setting like an operator.
fn configured(bed: &mut TestBed, setting: Setting, value: u64) {
    let command = check_configure(&bed.state, &[change(setting, value)], None).expect("it may").command;
    bed.ok(command.expect("a change"));
}

#[test]
fn setting_change_applies_at_commit_and_is_an_event() {
    let mut bed = TestBed::running(settings(3, 3, 2), &CITIES);
    let before = bed.state.settings_version;
    let wanted = [
        change(Setting::CopiesPerNodeMax, 5),
        change(Setting::ReplaceAfterMs, 60_000),
        change(Setting::LeaseMs, 1_000),
    ];
    let judged = check_configure(&bed.state, &wanted, Some(before)).unwrap();
    let steps = vec![
        SettingStep { setting: Setting::CopiesPerNodeMax, from: 2, to: 5 },
        SettingStep { setting: Setting::ReplaceAfterMs, from: 300_000, to: 60_000 },
    ];
    assert_eq!(judged.changes, steps, "what has its value already does not change");
    let done = bed.ok(judged.command.clone().unwrap());
    assert_eq!(done, Response::Configured { changes: steps.clone() });
    assert_eq!((bed.state.settings.copies_per_node_max, bed.state.settings.replace_after_ms), (5, 60_000));
    assert_eq!(bed.state.settings_version, Version::new(bed.state.applied));
    assert_eq!(bed.state.events.back().map(|event| &event.what), Some(&EventKind::SettingsChanged { changes: steps }));
    bed.round_trip();
    // The change rests on outdated settings, and repeating it changes nothing.
    assert_eq!(bed.refused(judged.command.unwrap()), ErrorKind::StaleVersion);
    assert_eq!(check_configure(&bed.state, &wanted, None).unwrap(), Configuration { changes: vec![], command: None });
    let now = bed.state.settings_version;
    assert_eq!(
        check_configure(&bed.state, &wanted, Some(before)),
        Err(ConfigureError::Stale { looked_at: before, now })
    );
}

#[test]
fn lease_settings_and_invalid_values_are_refused() {
    let mut bed = TestBed::running(settings(3, 3, 2), &CITIES);
    let kind = |wanted: &[SettingChange]| {
        ErrorDetail::from(check_configure(&bed.state, wanted, None).expect_err("it may not")).kind
    };
    for setting in
        [Setting::LeaseMs, Setting::MarginMs, Setting::HeartbeatMs, Setting::Partitions, Setting::Replication]
    {
        assert_eq!(kind(&[change(setting, 7)]), ErrorKind::Refused, "{setting}");
    }
    let invalid = [
        &[change(Setting::CopiesPerNodeMax, 0)][..],
        &[change(Setting::FailureTimeoutMs, 1_110)],
        &[change(Setting::ReplaceAfterMs, 1_249)],
        &[change(Setting::FailureTimeoutMs, 300_001)],
        &[change(Setting::ReplicationTimeoutMs, 399)],
        &[change(Setting::MinNodes, 2), change(Setting::MinNodes, 1)],
    ];
    for wanted in invalid {
        assert_eq!(kind(wanted), ErrorKind::InvalidArgument, "{wanted:?}");
    }
    // Two changes that are only valid together.
    let both = [change(Setting::FailureTimeoutMs, 300_001), change(Setting::ReplaceAfterMs, 400_000)];
    assert!(check_configure(&bed.state, &both, None).is_ok());
    // A proposer may skip the checks.
    let if_version = bed.state.settings_version;
    for unsafe_change in [change(Setting::LeaseMs, 700), change(Setting::FailureTimeoutMs, 1_110)] {
        let command = Command::Configure { if_version, changes: vec![unsafe_change] };
        assert_eq!(bed.refused(command), ErrorKind::Refused, "{unsafe_change:?}");
    }
}

/// The deciding coordinator and every node received the settings at their start.
#[test]
fn next_turn_and_next_answer_use_new_settings() {
    let mut bed = TestBed::running(settings(3, 3, 2), &CITIES);
    let athens = bed.node("athens");
    assert_eq!(bed.heartbeat(athens).unwrap().replication_timeout_ms, 1_000);
    configured(&mut bed, Setting::ReplicationTimeoutMs, 2_500);
    assert_eq!(bed.heartbeat(athens).unwrap().replication_timeout_ms, 2_500);

    configured(&mut bed, Setting::FailureTimeoutMs, 4_000);
    bed.heartbeat_all();
    bed.pass(3_900, &[athens]);
    assert!(bed.state.is_alive(athens), "by the time-out of before it would be failed");
    bed.pass(200, &[athens]);
    assert!(!bed.state.is_alive(athens));

    // Only a newcomer could take another copy, and it does so once the time is shorter.
    let delos = bed.join("delos", 9);
    bed.pass(10_000, &[]);
    assert_eq!(bed.state.partitions.held_on(delos), 0);
    configured(&mut bed, Setting::ReplaceAfterMs, 10_000);
    bed.settle();
    assert_eq!(bed.state.partitions.held_on(delos), 2);
}

/// Another coordinator has no heartbeats yet, and uses the committed time-out.
#[test]
fn shorter_failure_timeout_still_outlasts_leases() {
    let mut bed = TestBed::running(settings(3, 3, 2), &CITIES);
    let (athens, granted) = (bed.node("athens"), bed.now);
    let lease_ms = bed.heartbeat(athens).unwrap().lease_ms;
    configured(&mut bed, Setting::FailureTimeoutMs, 1_111);
    bed.liveness = Liveness::new(bed.now);
    while bed.state.is_alive(athens) {
        bed.pass(100, &[athens]);
    }
    assert!(bed.now >= granted.plus(lease_ms * 101 / 100), "a successor was named while the lease ran");
}

proptest! {
    /// Any request is refused without effect, or all settings are valid afterwards and leases unchanged.
    #[test]
    fn any_changes_are_refused_or_valid(
        wanted in proptest::collection::vec(
            (proptest::sample::select(Setting::ALL), prop_oneof![0u64..20, 100u64..5_000, any::<u64>()]),
            0..5,
        )
    ) {
        let wanted: Vec<SettingChange> = wanted.into_iter().map(|(setting, value)| change(setting, value)).collect();
        let mut bed = TestBed::new(settings(3, 1, 1));
        let before = bed.state.settings.clone();
        if let Ok(Configuration { changes, command: Some(command) }) = check_configure(&bed.state, &wanted, None) {
            bed.ok(command);
            prop_assert_eq!(bed.state.settings.check(), Ok(()));
            prop_assert_eq!(bed.state.settings.timing.lease_ms, before.timing.lease_ms);
            for step in changes {
                prop_assert_eq!((step.setting.of(&before), step.setting.of(&bed.state.settings)), (step.from, step.to));
            }
        }
        // Guards hold for any proposal: the bed checks the invariants.
        let if_version = bed.state.settings_version;
        bed.one(Command::Configure { if_version, changes: wanted });
    }
}
