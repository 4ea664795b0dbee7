//! The rules 34, 40 and 44 about the rows of a split or merge, disabled one at a time. Each function returns true if
//! its rule held.

use super::{merges, splits};
use crate::bed::ranges::{TIMES, key, times};
use crate::bed::{FORMED_AT, TestBed};
use archon_coordinator_core::*;

archon_types::shown_by! {
    PartUnguarded => split_commands_apply_only_to_their_row_version,
    GapAllowed => keys_move_in_one_command,
    NumberReused => abandoned_split_uses_up_its_number,
    RightShort => only_formed_copies_count,
    MergeUnguarded => merge_begins_only_on_its_row_versions,
    HalfGivenUp => merge_is_abandoned_in_both_rows,
    RepairedWhileMerged => merging_partition_keeps_its_copies,
}

/// Changes only the version of a partition's row.
fn change(bed: &mut TestBed, index: u32) {
    let row = bed.of_times(index).clone();
    bed.ok(Command::Change(vec![PartitionChange::one(row.id, row.version, Edit::Refuse)]));
}

/// Returns true if the command is refused.
fn is_refused(bed: &mut TestBed, command: Command) -> bool {
    bed.one(command).refusal().is_some()
}

fn split_commands_apply_only_to_their_row_version(mutant: Option<Mutant>) -> bool {
    let mut bed = splits::ranges(3, mutant);
    let begins = check_split(&bed.state, times(0), &key("m")).expect("can be split").command;
    change(&mut bed, 0);
    let begun = is_refused(&mut bed, begins);
    // A cancellation used twice: the second time it meets another split.
    let mut bed = splits::ranges(3, mutant);
    bed.begin_split(0, "m");
    let gives_up = check_cancel_split(&bed.state, times(0)).expect("under way");
    bed.ok(gives_up.clone());
    bed.begin_split(0, "t");
    let given_up = is_refused(&mut bed, gives_up) && bed.is_split(0);
    let mut bed = splits::ranges(3, mutant);
    bed.begin_cut(0, "m");
    for node in bed.nodes() {
        bed.forms(node, 0, FORMED_AT).expect("it counts");
    }
    let mut does = bed.turn();
    change(&mut bed, 0);
    let done = is_refused(&mut bed, does.remove(0)) && bed.is_split(0);
    begun && given_up && done
}

fn keys_move_in_one_command(mutant: Option<Mutant>) -> bool {
    let mut bed = splits::ranges(3, mutant);
    bed.begin_split(0, "m");
    bed.settle();
    bed.of_times(0).range.end == Some(key("m")) && bed.of_times(1).range.begin == key("m")
}

fn abandoned_split_uses_up_its_number(mutant: Option<Mutant>) -> bool {
    let mut bed = splits::ranges(3, mutant);
    let first = bed.begin_split(0, "m").right;
    bed.ok(check_cancel_split(&bed.state, times(0)).expect("under way"));
    bed.begin_split(0, "m").right > first
}

fn only_formed_copies_count(mutant: Option<Mutant>) -> bool {
    let mut bed = splits::ranges(3, mutant);
    let split = bed.begin_cut(0, "m");
    let nodes = bed.nodes();
    for node in &nodes[..2] {
        bed.forms(*node, 0, FORMED_AT).expect("it counts");
    }
    bed.pass(1_200, &[]);
    let third = split.copy_on(nodes[2]).expect("a copy").id;
    bed.of_times(1).placement(third).is_none() && bed.of_times(1).live().count() == 2
}

fn merge_begins_only_on_its_row_versions(mutant: Option<Mutant>) -> bool {
    [0, 1].into_iter().all(|changes| {
        let mut bed = merges::ranges(3, mutant);
        let begins = check_merge(&bed.state, times(0), |_| None).expect("can be merged").command;
        change(&mut bed, changes);
        is_refused(&mut bed, begins)
    })
}

fn merge_is_abandoned_in_both_rows(mutant: Option<Mutant>) -> bool {
    let mut bed = merges::ranges(3, mutant);
    bed.begin_merge(0);
    bed.ok(check_cancel_merge(&bed.state, times(0)).expect("under way").1);
    bed.state.partitions.of_table(TIMES).all(|row| row.merge.is_none())
}

fn merging_partition_keeps_its_copies(mutant: Option<Mutant>) -> bool {
    let mut bed = merges::ranges(2, mutant);
    bed.begin_merge(0);
    let (before, after) = merges::copies_when_more_are_wanted(&mut bed);
    after == before
}
