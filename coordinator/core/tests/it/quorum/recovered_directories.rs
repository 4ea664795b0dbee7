//! Directories of a node during a recovery of the coordinators: the one with the latest data is recognized, in any order
//! of starts (rules 60 to 62).

use super::recovery::{
    begin, doubts_with_all_heard, lives_of_athens, recovered, registers_only, settled, starts, tells,
};
use crate::bed::TestBed;
use archon_coordinator_core::*;
use archon_types::*;

#[test]
fn right_directory_counts_after_an_older_one_was_started() {
    let mut bed = recovered(None);
    let (last, older) = lives_of_athens(&bed);
    let first = starts(&mut bed, 1, older, 5);
    let second = starts(&mut bed, 2, last, 5);
    assert_eq!(doubts_with_all_heard(&mut bed), []);
    // Each is recognized again, regardless of starts in between.
    starts(&mut bed, 3, first, 5);
    let athens = bed.node("athens");
    assert_eq!(doubts(&bed.state), [Doubt::Older { node: athens }]);
    starts(&mut bed, 4, second, 5);
    assert_eq!(doubts(&bed.state), []);
    assert_eq!(settled(&mut bed).len(), 3);
}

#[test]
fn directory_of_a_lost_life_counts_after_its_node_registered_twice() {
    let mut bed = recovered(None);
    begin(&mut bed, 3, None);
    // Athens began this incarnation in generation 2, by an entry that generation 3 lacks, and misses the first answer.
    let lost = Incarnation::new(first_number(2) + 50);
    registers_only(&mut bed, 1, lost);
    let first = starts(&mut bed, 2, lost, 9);
    let athens = bed.node("athens");
    let older = Doubt::Older { node: athens };
    assert!(!doubts_with_all_heard(&mut bed).contains(&older));
    // A directory of an earlier incarnation is an older copy.
    starts(&mut bed, 3, Incarnation::new(lost.get() - 1), 9);
    assert!(doubts(&bed.state).contains(&older));
    starts(&mut bed, 4, first, 9);
    assert_eq!(settled(&mut bed), [athens]);
}

#[test]
fn late_request_does_not_make_the_right_directory_older() {
    let mut bed = recovered(None);
    let (last, _) = lives_of_athens(&bed);
    begin(&mut bed, 3, None);
    // A request of an earlier process arrives late. The directory was used since then, in an incarnation that
    // generation 3 lacks.
    registers_only(&mut bed, 1, last);
    let lost = Incarnation::new(first_number(2) + 50);
    let first = starts(&mut bed, 2, lost, 9);
    let athens = bed.node("athens");
    let older = Doubt::Older { node: athens };
    assert!(!doubts_with_all_heard(&mut bed).contains(&older));
    // Directories of earlier incarnations are older copies.
    for earlier in [last, Incarnation::new(lost.get() - 1)] {
        starts(&mut bed, 3, earlier, 5);
        assert!(doubts(&bed.state).contains(&older), "{earlier:?}");
    }
    starts(&mut bed, 4, first, 9);
    assert_eq!(settled(&mut bed), [athens]);
}

#[test]
fn directory_of_the_last_life_counts_again_after_it_was_restored() {
    let mut bed = recovered(None);
    let (last, _) = lives_of_athens(&bed);
    // The node is activated, and its directory is lost. No data is written before the recovery is settled.
    starts(&mut bed, 1, last, 5);
    starts(&mut bed, 2, last, 5);
    assert_eq!(doubts_with_all_heard(&mut bed), []);
    assert_eq!(settled(&mut bed).len(), 3);
}

#[test]
fn directory_of_the_last_life_is_older_in_a_recovery_amid_another() {
    let mut bed = recovered(None);
    let (last, _) = lives_of_athens(&bed);
    let first = starts(&mut bed, 1, last, 5);
    // Generation 2 may have been settled by a change that generation 3 lacks, and athens may have written data since.
    begin(&mut bed, 3, None);
    starts(&mut bed, 2, last, 5);
    let athens = bed.node("athens");
    assert_eq!(doubts_with_all_heard(&mut bed), [Doubt::Older { node: athens }]);
    starts(&mut bed, 3, first, 5);
    assert_eq!(doubts(&bed.state), []);
}

#[test]
fn loss_of_an_unsettled_recovery_is_known_in_the_next_one() {
    let mut bed = recovered(None);
    let lacked = Version::new(bed.state.recovery.as_ref().expect("a recovery").base.get() + 7);
    // Athens learned of it, and of generation 2 since. Byzantium comes in generation 3 only.
    let athens = tells(&mut bed, "athens", |register| register.told = lacked, (1, 5));
    begin(&mut bed, 3, None);
    let since = Version::new(first_number(2));
    let behind = |bed: &TestBed| bed.state.recovery.as_ref().expect("a recovery").behind();
    assert_eq!(behind(&bed), Some((athens, lacked)));
    tells(&mut bed, "athens", |register| register.told = since, (1, 5));
    assert_eq!(behind(&bed), Some((athens, lacked)));
    let later = Version::new(lacked.get() + 1);
    let byzantium = tells(&mut bed, "byzantium", |register| register.told = later, (1, 5));
    assert_eq!(behind(&bed), Some((byzantium, later)));
}

#[test]
fn directory_counts_although_its_node_registers_many_times() {
    let mut bed = recovered(None);
    begin(&mut bed, 3, None);
    let lost = Incarnation::new(first_number(2) + 50);
    for boot in 1..40 {
        registers_only(&mut bed, boot, lost);
    }
    starts(&mut bed, 40, lost, 9);
    let athens = bed.node("athens");
    assert!(!doubts_with_all_heard(&mut bed).contains(&Doubt::Older { node: athens }));
}

#[test]
fn older_directory_is_known_in_a_recovery_amid_another() {
    let mut bed = recovered(None);
    let (last, older) = lives_of_athens(&bed);
    let first = starts(&mut bed, 1, older, 5);
    begin(&mut bed, 3, None);
    let second = starts(&mut bed, 2, first, 5);
    let athens = bed.node("athens");
    assert_eq!(doubts_with_all_heard(&mut bed), [Doubt::Older { node: athens }]);
    starts(&mut bed, 3, second, 5);
    assert_eq!(doubts(&bed.state), [Doubt::Older { node: athens }]);
    starts(&mut bed, 4, last, 5);
    assert_eq!(doubts(&bed.state), []);
    bed.round_trip();
}
