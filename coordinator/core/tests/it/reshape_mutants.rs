//! What rules 34, 40 and 44 say of the rows of a split or a merge, taken away one at a time. Each function says whether its rule held.

use crate::bed::ranges::{TIMES, key, times};
use crate::bed::{FORMED_AT, TestBed};
use crate::{merges, splits};
use archon_coordinator_core::*;

archon_types::shown_by! {
    PartUnguarded => nothing_of_a_split_was_decided_on_another_row,
    GapAllowed => keys_are_given_up_in_the_command_that_gives_them_to_another,
    NumberReused => a_split_that_is_given_up_uses_its_number_up,
    RightShort => only_what_is_formed_counts,
    MergeUnguarded => a_merge_begins_on_the_rows_that_it_was_decided_on,
    HalfGivenUp => a_merge_is_given_up_in_both_rows,
    RepairedWhileMerged => a_partition_that_is_merged_keeps_its_copies,
}

/// The row of the partition gets another version, and nothing else.
fn change(bed: &mut TestBed, index: u32) {
    let row = bed.of_times(index).clone();
    bed.ok(Command::Change(vec![PartitionChange::one(row.id, row.version, Edit::Refuse)]));
}

/// The rows as they are after a command that has to be refused.
fn is_refused(bed: &mut TestBed, command: Command) -> bool {
    bed.one(command).refusal().is_some()
}

fn nothing_of_a_split_was_decided_on_another_row(mutant: Option<Mutant>) -> bool {
    let mut bed = splits::ranges(3, mutant);
    let begins = check_split(&bed.state, times(0), &key("m")).expect("can be split").command;
    change(&mut bed, 0);
    let begun = is_refused(&mut bed, begins);
    // One that is given up twice: the second time it is another one.
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

fn keys_are_given_up_in_the_command_that_gives_them_to_another(mutant: Option<Mutant>) -> bool {
    let mut bed = splits::ranges(3, mutant);
    bed.begin_split(0, "m");
    bed.settle();
    bed.of_times(0).range.end == Some(key("m")) && bed.of_times(1).range.begin == key("m")
}

fn a_split_that_is_given_up_uses_its_number_up(mutant: Option<Mutant>) -> bool {
    let mut bed = splits::ranges(3, mutant);
    let first = bed.begin_split(0, "m").right;
    bed.ok(check_cancel_split(&bed.state, times(0)).expect("under way"));
    bed.begin_split(0, "m").right > first
}

fn only_what_is_formed_counts(mutant: Option<Mutant>) -> bool {
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

fn a_merge_begins_on_the_rows_that_it_was_decided_on(mutant: Option<Mutant>) -> bool {
    [0, 1].into_iter().all(|changes| {
        let mut bed = merges::ranges(3, mutant);
        let begins = check_merge(&bed.state, times(0), |_| None).expect("can be merged").command;
        change(&mut bed, changes);
        is_refused(&mut bed, begins)
    })
}

fn a_merge_is_given_up_in_both_rows(mutant: Option<Mutant>) -> bool {
    let mut bed = merges::ranges(3, mutant);
    bed.begin_merge(0);
    bed.ok(check_cancel_merge(&bed.state, times(0)).expect("under way").1);
    bed.state.partitions.of_table(TIMES).all(|row| row.merge.is_none())
}

fn a_partition_that_is_merged_keeps_its_copies(mutant: Option<Mutant>) -> bool {
    let mut bed = merges::ranges(2, mutant);
    bed.begin_merge(0);
    let (before, after) = merges::copies_when_more_are_wanted(&mut bed);
    after == before
}
