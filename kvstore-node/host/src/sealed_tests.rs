//! Which keys a copy serves of those that its log or its row gives away (PROTOCOL rules 35 and 37), and where the log begins of what is
//! formed of them (rule 38).

use super::tests::{FORMED, ask, configure, is_answered, parted, refusal, sealed, splitting, tick};
use super::*;
use crate::mutant::Broken;
use crate::reconcile::Action;
use crate::test_shell::{LIFE, OWN, TestShell, get, put, request, row, serving, settle};
use archon_types::{Epoch, Merge, MergeSide, Op};

archon_types::shown_by! {
    SealAtCommit => nothing_is_written_behind_the_entry_that_gives_keys_away,
    ReadNotRechecked => a_read_is_held_against_the_keys_again_before_it_is_answered,
    BeyondServed => no_key_is_served_that_the_row_gives_to_another_partition,
    RevisionRestarts => revisions_of_what_is_formed_go_on,
    SealGivenUp => a_partition_that_is_merged_away_does_not_take_its_keys_back_because_somebody_waits,
}

fn nothing_is_written_behind_the_entry_that_gives_keys_away(mutant: Option<Mutant>) -> bool {
    let mut node = serving(Broken::by(mutant), row(1, &[]));
    // The entry is proposed, and not on the disk.
    node.duties(LIFE.incarnation, vec![Action::Configure { partition: splitting(2, &[]), placement: OWN }]);
    node.settle();
    let local = &node.copies()[&OWN];
    assert!(local.split.seals(b"z") && local.replica.commit() < local.replica.last().seq);
    ask(&mut node, put("z"), "put");
    ask(&mut node, put("a"), "kept");
    assert!(is_answered(&node, "kept"));
    !is_answered(&node, "put")
}

/// A read that was confirmed by the others after it arrived comes back when its turn comes.
fn confirmed(node: &mut Partitions<TestShell>, op: Op, reply: &'static str) {
    node.operate(Request { confirmed: Some(Epoch::new(1)), ..request(op, reply) });
    settle(node);
}

fn a_read_is_held_against_the_keys_again_before_it_is_answered(mutant: Option<Mutant>) -> bool {
    let mut node = sealed(mutant);
    confirmed(&mut node, get("a"), "kept");
    confirmed(&mut node, get("z"), "sealed");
    let early = is_answered(&node, "sealed");
    configure(&mut node, parted(4));
    confirmed(&mut node, get("z"), "gone");
    assert!(is_answered(&node, "kept"));
    !early && refusal(&node, "gone") == Some(&Refusal::Moved)
}

fn no_key_is_served_that_the_row_gives_to_another_partition(mutant: Option<Mutant>) -> bool {
    let mut node = sealed(mutant);
    configure(&mut node, parted(4));
    ask(&mut node, put("z"), "put");
    ask(&mut node, get("z"), "get");
    refusal(&node, "put") == Some(&Refusal::Moved) && refusal(&node, "get") == Some(&Refusal::Moved)
}

fn revisions_of_what_is_formed_go_on(mutant: Option<Mutant>) -> bool {
    let mut node = sealed(mutant);
    let sealed_at = node.copies()[&OWN].split.seal.as_ref().expect("a seal").position;
    node.formed(FORMED, 2);
    node.shell_mut().formed.pop().expect("formed").at == sealed_at
}

fn a_partition_that_is_merged_away_does_not_take_its_keys_back_because_somebody_waits(mutant: Option<Mutant>) -> bool {
    let mut node = serving(Broken::by(mutant), row(1, &[]));
    let merge = Merge { attempt: Version::new(2), side: MergeSide::Yields { left: 9 } };
    configure(&mut node, Partition { merge: Some(Box::new(merge)), ..row(2, &[]) });
    ask(&mut node, put("m"), "put");
    (1..40).for_each(|tenth| tick(&mut node, 1_000 + tenth * 50));
    !is_answered(&node, "put")
}
