use super::*;
use crate::mutant::{DisabledRule, Mutant};
use crate::test_shell::{LIFE, OWN, PARTITION, follower, follower_row, hear, position, serving, settle};
use archon_replica::{Body, Entry};
use archon_types::Epoch;

fn inspect(partitions: &mut Partitions<crate::test_shell::TestShell>) -> Vec<Report> {
    partitions.duties(LIFE.incarnation, vec![Action::Inspect { partition: PARTITION, placement: OWN }]);
    settle(partitions);
    let told = partitions.shell().reports.iter().filter(|report| matches!(report.fact, Fact::Inspected { .. }));
    told.cloned().collect()
}

/// A leader that does not know of the recovery yet keeps sending.
fn inspected_copy_accepts_no_entries(mutant: Option<Mutant>) -> bool {
    let append = |before: u64| Body::Append {
        before: position(before),
        entries: vec![Entry {
            at: position(before + 1),
            bytes: archon_kv::Effect::new(Default::default(), vec![]).encode().unwrap(),
        }],
        start: Seq::ZERO,
        commit: Seq::ZERO,
    };
    let mut follower = follower(DisabledRule::by(mutant), follower_row());
    hear(&mut follower, Body::Adopt { at: position(0), start: Seq::ZERO, commit: Seq::ZERO });
    hear(&mut follower, append(0));
    let told = inspect(&mut follower);
    assert!(matches!(told[..], [Report { fact: Fact::Inspected { last }, .. }] if last == position(1)), "{told:?}");
    hear(&mut follower, append(1));
    follower.copies()[&OWN].replica.last() == position(1)
}

archon_types::shown_by! {
    InspectedMoves => inspected_copy_accepts_no_entries,
}

#[test]
fn inspected_leader_stops_serving_until_reopened() {
    let row = crate::test_shell::row(1, &[]);
    let mut leader = serving(DisabledRule::default(), row.clone());
    let told = inspect(&mut leader);
    assert_eq!(told.iter().map(|report| (report.placement, report.epoch)).collect::<Vec<_>>(), [(OWN, Epoch::new(1))]);
    assert_eq!(told[0].version, Version::new(LIFE.incarnation.get()), "an answer to another life's is none to this");
    assert_eq!(leader.active.get(&PARTITION), None);
    let next = Partition { epoch: Epoch::new(9), version: Version::new(9), ..row };
    leader.duties(LIFE.incarnation, vec![Action::Open { partition: next, placement: OWN, fresh: false }]);
    settle(&mut leader);
    assert_eq!(leader.leading(), 1);
}
