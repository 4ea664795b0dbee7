use super::script::{Script, configuration, name, recovered};
use crate::{Body, Input, Output, Position};
use archon_types::ReplicaState::{Live, Load};
use archon_types::{Epoch, ErrorKind, Fact, ReplicaState, Seq};

/// A leader with a loader that has matched at the beginning of an empty log.
fn with_loader() -> Script {
    let mut script = Script::serving(&[Live, Load], 1);
    script.hear(2, 1, Body::Adopted { at: Position::ZERO, held: Seq::ZERO });
    script
}

#[test]
fn loader_is_requested_only_under_lease() {
    let mut script = with_loader();
    assert_eq!(script.tick_after(20), []);
    script.one(Input::Lease(true));
    let caught_up = script.report(1, 1, Fact::CaughtUp { joiner: name(2) });
    assert_eq!(script.tick_after(20), [caught_up]);
}

#[test]
fn joiner_counts_from_request_until_higher_version() {
    let mut script = with_loader();
    script.turn([Input::Lease(true), Input::Tick]);
    script.propose(1);
    assert_eq!(script.persisted(2), [], "the joiner has not acknowledged");
    // No answer is not a refusal: the same request is repeated, with the same version.
    let caught_up = script.report(1, 1, Fact::CaughtUp { joiner: name(2) });
    assert!(script.tick_after(1_000).contains(&caught_up));
    assert_eq!(script.configure((1, 1), 1, &[Live, Load], 1), []);
    // Refused: it no longer counts, and the next request comes later.
    assert_eq!(script.configure((1, 2), 1, &[Live, Load], 1), [Output::Commit { upto: Seq::new(1) }]);
    let out = script.hear(2, 1, Body::Ack { held: Seq::new(1) });
    assert_eq!(out, []);
    let caught_up = script.report(1, 2, Fact::CaughtUp { joiner: name(2) });
    assert!(script.tick_after(250).contains(&caught_up));
}

#[test]
fn near_loader_counts_before_request_under_writes() {
    let mut script = with_loader();
    script.propose(1);
    script.propose(2);
    script.persisted(2);
    script.one(Input::Lease(true));
    // Position 1 is committed, 2 is on its way to the disk; the loader holds nothing yet but is near.
    assert_eq!(script.hear(2, 1, Body::Ack { held: Seq::ZERO }), []);
    assert_eq!(script.persisted(3), [], "the commit position waits for the loader");
    let out = script.hear(2, 1, Body::Ack { held: Seq::new(1) });
    assert_eq!(out, [script.report(1, 1, Fact::CaughtUp { joiner: name(2) })]);
    // A loader that never answers is released long before the time-out.
    let mut script = with_loader();
    script.turn([Input::Propose { ticket: 1, entry: "x".into() }, Input::Lease(true)]);
    script.persisted(2);
    script.propose(2);
    script.hear(2, 1, Body::Ack { held: Seq::ZERO });
    assert_eq!(script.persisted(3), []);
    assert!(script.tick_after(250).contains(&Output::Commit { upto: Seq::new(2) }));
}

/// A leader of three entries, under a lease, and a loader that has just matched at the beginning of the log.
fn with_backlog() -> Script {
    let mut script = Script::serving(&[Live, Load], 1);
    for number in 1..=3 {
        script.propose(number);
        script.persisted(number + 1);
    }
    script.one(Input::Lease(true));
    assert_eq!(script.hear(2, 1, Body::Adopted { at: Position::ZERO, held: Seq::ZERO }).len(), 1, "what it lacks");
    script
}

/// Writes one entry; returns whether it was committed without the loader.
fn commits_alone(script: &mut Script, number: u64) -> bool {
    script.propose(number);
    script.persisted(number + 1).contains(&Output::Commit { upto: Seq::new(number) })
}

#[test]
fn loader_without_pace_delays_no_write() {
    let mut script = with_backlog();
    assert!(commits_alone(&mut script, 4), "it lacks three entries, and nobody knows how fast it is");
    // A returning node is slow at first: the three took 100 ms, and so would every write.
    script.tick_after(100);
    script.hear(2, 1, Body::Ack { held: Seq::new(3) });
    assert!(commits_alone(&mut script, 5), "it is too slow: {}", script.replica.describe());
    // Entries since then take 20 ms: now writes may wait for it, and it is about to be requested.
    script.tick_after(20);
    script.hear(2, 1, Body::Ack { held: Seq::new(4) });
    assert!(!commits_alone(&mut script, 6), "it keeps pace: {}", script.replica.describe());
    let out = script.hear(2, 1, Body::Ack { held: Seq::new(5) });
    assert_eq!(out, [script.report(1, 1, Fact::CaughtUp { joiner: name(2) })]);
}

#[test]
fn loader_on_slow_disk_is_requested_eventually() {
    let mut script = with_backlog();
    let mut number = 3;
    let alone = (0..100).take_while(|_| {
        number += 1;
        let alone = commits_alone(&mut script, number);
        script.tick_after(100);
        script.hear(2, 1, Body::Ack { held: Seq::new(number - 1) });
        alone
    });
    assert_eq!(alone.count(), 10, "{}", script.replica.describe());
}

#[test]
fn silent_followers_are_reported_together_once_per_version() {
    let mut script = Script::serving(&[Live, Live, Live], 1);
    script.propose(1);
    script.persisted(2);
    script.tick_after(999);
    let silent = script.report(1, 1, Fact::Silent { followers: vec![name(2), name(3)] });
    assert!(script.tick_after(1).contains(&silent));
    assert!(!script.tick_after(500).contains(&silent));
    assert!(script.tick_after(500).contains(&silent), "repeated, since the report may be lost");
    // They count until the new version is seen.
    assert_eq!(script.replica.commit(), Seq::ZERO);
    let out = script.configure((1, 2), 1, &[Live, Load, Load], 1);
    assert!(out.contains(&Output::Commit { upto: Seq::new(1) }), "{out:?}");
}

#[test]
fn refused_drop_stops_writes_and_is_repeated_with_backoff() {
    let mut script = Script::serving(&[Live, Live], 2);
    script.propose(1);
    script.persisted(2);
    let first = script.report(1, 1, Fact::Silent { followers: vec![name(2)] });
    assert!(script.tick_after(1_000).contains(&first));
    assert_eq!(script.replica.admit(), Err(ErrorKind::NotEnoughReplicas));
    script.configure((1, 2), 1, &[Live, Live], 2);
    let second = script.report(1, 2, Fact::Silent { followers: vec![name(2)] });
    assert!(!script.tick_after(249).contains(&second));
    assert!(script.tick_after(1).contains(&second));
    // The follower answers.
    script.hear(2, 1, Body::Ack { held: Seq::new(1) });
    script.tick_after(10);
    assert_eq!(script.replica.admit(), Ok(()));
}

#[test]
fn stall_ends_when_its_follower_is_removed() {
    let mut script = Script::serving(&[Live, Live], 2);
    script.propose(1);
    script.persisted(2);
    script.tick_after(1_000);
    assert_eq!(script.replica.admit(), Err(ErrorKind::NotEnoughReplicas));
    // No follower is left to wait for, and no tick is needed: writes must continue at once.
    script.configure((1, 2), 1, &[Live], 1);
    assert_eq!(script.replica.admit(), Ok(()));
}

#[test]
fn older_configuration_is_ignored() {
    let mut script = Script::serving(&[Live, Live], 1);
    script.configure((1, 5), 1, &[Live, Load], 1);
    script.configure((1, 4), 1, &[Live, Live], 1);
    script.propose(1);
    assert_eq!(script.persisted(2), [Output::Commit { upto: Seq::new(1) }]);
}

/// Puts replica 2 on a node that the coordinator has failed.
fn failed_peer(states: &[ReplicaState]) -> Input {
    let mut configuration = configuration((1, 1), 1, states, 1);
    configuration.peers.get_mut(&name(2).placement).unwrap().failed = true;
    Input::Configure(configuration)
}

fn asks_for_a_sign(out: &[Output], to: u64) -> bool {
    out.iter().any(|output| {
        matches!(output, Output::Send(message)
            if message.to.placement == name(to).placement
                && matches!(&message.body, Body::Append { entries, .. } if entries.is_empty()))
    })
}

#[test]
fn dead_follower_is_found_before_a_write_waits_for_it() {
    let mut script = Script::serving(&[Live, Live, Live], 1);
    assert!(!asks_for_a_sign(&script.tick_after(999), 2));
    let out = script.tick_after(1);
    assert!(asks_for_a_sign(&out, 2) && asks_for_a_sign(&out, 3), "{out:?}");
    script.hear(3, 1, Body::Ack { held: Seq::ZERO });
    let silent = script.report(1, 1, Fact::Silent { followers: vec![name(2)] });
    assert!(!script.tick_after(999).contains(&silent));
    assert!(script.tick_after(1).contains(&silent), "nothing was ever proposed, and one of two did not answer");
}

#[test]
fn follower_on_failed_node_has_shorter_timeout() {
    let mut script = Script::serving(&[Live, Live, Live], 1);
    script.one(failed_peer(&[Live, Live, Live]));
    assert!(asks_for_a_sign(&script.tick_after(100), 2));
    let silent = script.report(1, 1, Fact::Silent { followers: vec![name(2)] });
    assert!(!script.tick_after(99).contains(&silent));
    assert!(script.tick_after(1).contains(&silent));
}

#[test]
fn follower_cut_off_from_coordinator_alone_keeps_counting() {
    let mut script = Script::serving(&[Live, Live, Live], 1);
    script.one(failed_peer(&[Live, Live, Live]));
    for _ in 0..30 {
        let out = script.tick_after(100);
        let silent =
            |output: &Output| matches!(output, Output::Report(report) if matches!(report.fact, Fact::Silent { .. }));
        assert!(!out.iter().any(silent), "{out:?}");
        script.hear(2, 1, Body::Ack { held: Seq::ZERO });
        script.hear(3, 1, Body::Ack { held: Seq::ZERO });
    }
}

#[test]
fn takeover_drops_follower_on_failed_node_early() {
    let mut script = Script::new(1, recovered(1, &[1], 1));
    let mut configuration = configuration((2, 2), 1, &[Live, Live, Live], 1);
    configuration.peers.get_mut(&name(2).placement).unwrap().failed = true;
    script.one(Input::Configure(configuration));
    script.hear(3, 2, Body::Adopted { at: Position::new(Epoch::new(1), Seq::new(1)), held: Seq::new(1) });
    script.persisted(1);
    let silent = script.report(2, 2, Fact::Silent { followers: vec![name(2)] });
    assert!(!script.tick_after(99).contains(&silent));
    assert!(script.tick_after(1).contains(&silent));
    let out = script.configure((2, 3), 1, &[Live, Load, Live], 1);
    assert!(out.contains(&Output::Serve(true)), "{out:?}");
}

#[test]
fn writes_do_not_wait_for_dropped_dead_follower() {
    let mut script = Script::serving(&[Live, Live, Live], 1);
    script.one(Input::Lease(true));
    script.propose(1);
    script.persisted(2);
    script.hear(3, 1, Body::Ack { held: Seq::new(1) });
    script.tick_after(1_000);
    let out = script.configure((1, 2), 1, &[Live, Load, Live], 1);
    assert!(out.contains(&Output::Commit { upto: Seq::new(1) }), "{out:?}");
    // It held the log when it died, and has been silent since: it is not on its way back to the Live set.
    for seq in 2..100 {
        script.tick_after(100);
        script.propose(seq);
        script.persisted(seq + 1);
        let out = script.hear(3, 1, Body::Ack { held: Seq::new(seq) });
        assert_eq!(script.replica.commit(), Seq::new(seq), "{out:?}");
    }
    // It answers: now it is.
    script.hear(2, 1, Body::Adopted { at: Position::new(Epoch::new(1), Seq::new(1)), held: Seq::new(1) });
    let caught_up = script.report(1, 2, Fact::CaughtUp { joiner: name(2) });
    assert!(script.hear(2, 1, Body::Ack { held: Seq::new(99) }).contains(&caught_up));
}

#[test]
fn writes_do_not_wait_for_copy_on_leaving_node() {
    let mut script = Script::serving(&[Live, Live, Live], 1);
    script.one(Input::Lease(true));
    script.propose(1);
    script.persisted(2);
    // The leader did not request this: its node is leaving. It still answers, and is gone a moment later.
    script.configure((1, 2), 1, &[Live, Load, Live], 1);
    script.hear(2, 1, Body::Adopted { at: Position::ZERO, held: Seq::ZERO });
    script.hear(3, 1, Body::Ack { held: Seq::new(1) });
    assert_eq!(script.replica.commit(), Seq::new(1));
    script.tick_after(1);
    script.propose(2);
    script.persisted(3);
    script.hear(2, 1, Body::Ack { held: Seq::ZERO });
    script.hear(3, 1, Body::Ack { held: Seq::new(2) });
    assert_eq!(script.replica.commit(), Seq::new(2), "it is waited for: {}", script.replica.describe());
    // If it stays, it is added again.
    script.tick_after(250);
    let caught_up = script.report(1, 2, Fact::CaughtUp { joiner: name(2) });
    assert!(script.hear(2, 1, Body::Ack { held: Seq::new(2) }).contains(&caught_up));
}

#[test]
fn near_loader_on_failed_node_is_released_at_once() {
    let mut script = with_loader();
    script.turn([Input::Propose { ticket: 1, entry: "x".into() }, Input::Lease(true)]);
    script.persisted(2);
    script.propose(2);
    script.hear(2, 1, Body::Ack { held: Seq::ZERO });
    assert_eq!(script.persisted(3), [], "it counts");
    let out = script.one(failed_peer(&[Live, Load]));
    assert!(out.contains(&Output::Commit { upto: Seq::new(2) }), "{out:?}");
}

/// Its directory is an old copy, which its registration does not reveal: it answers every probe, and would be waited
/// for forever.
#[test]
fn live_follower_that_lacks_trimmed_entries_is_dropped() {
    let mut recovered = recovered(1, &[1, 1, 1], 3);
    recovered.base = Position::new(Epoch::new(1), Seq::new(2));
    recovered.runs = vec![crate::Run { epoch: Epoch::new(1), first: Seq::new(3) }];
    let mut script = Script::new(1, recovered);
    script.configure((2, 2), 1, &[Live, Live, Live], 2);
    script.persisted(1);
    let end = Position::new(Epoch::new(1), Seq::new(3));
    script.hear(3, 2, Body::Adopted { at: end, held: Seq::new(3) });
    let silent = script.report(2, 2, Fact::Silent { followers: vec![name(2)] });
    let told = (0..6).any(|_| {
        script.hear(2, 2, Body::Nack { refused: end, hint: Position::ZERO, copying: false });
        script.tick_after(250).contains(&silent)
    });
    assert!(told, "{}", script.replica.describe());
    let out = script.configure((2, 3), 1, &[Live, Load, Live], 2);
    assert!(out.contains(&Output::Serve(true)), "{out:?}");
}

#[test]
fn acknowledgement_before_probe_answer_is_requested_again() {
    let mut script = Script::serving(&[Live, Load], 1);
    script.one(Input::Lease(true));
    assert!(commits_alone(&mut script, 1));
    let asks = |out: &[Output]| {
        out.iter().any(|output| match output {
            Output::Send(message) => matches!(&message.body, Body::Append { entries, .. } if entries.is_empty()),
            _ => false,
        })
    };
    // The copy's last acknowledgement arrives before the match is known, and no further writes come.
    assert_eq!(script.hear(2, 1, Body::Ack { held: Seq::new(1) }), []);
    script.hear(2, 1, Body::Adopted { at: Position::new(Epoch::new(1), Seq::new(1)), held: Seq::ZERO });
    for _ in 0..5 {
        script.tick_after(250);
        let out = script.tick_after(250);
        assert!(asks(&out), "it waits for what it was told before: {out:?}");
    }
    let caught_up = script.report(1, 1, Fact::CaughtUp { joiner: name(2) });
    assert!(script.hear(2, 1, Body::Ack { held: Seq::new(1) }).contains(&caught_up));
}
