//! Service of keys that a copy's log or row gives away (PROTOCOL rules 35 and 37), and the start of the log of a formed
//! copy (rule 38).

use super::tests::{FORMED, ask, configure, is_answered, parted, refusal, sealed, splitting, tick};
use super::*;
use crate::copies::reconcile::Action;
use crate::mutant::DisabledRule;
use crate::test_shell::{LIFE, OWN, TestShell, get, put, request, row, serving, settle};
use archon_types::{Epoch, Merge, MergeSide, Op, Version};

archon_types::shown_by! {
    SealAtCommit => no_write_of_sealed_keys_follows_uncommitted_seal,
    ReadNotRechecked => confirmed_read_is_checked_against_seal_again,
    BeyondServed => keys_of_another_partition_are_not_served,
    RevisionRestarts => formed_copy_continues_revisions_of_parent,
    SealGivenUp => merge_source_stays_sealed_despite_waiting_write,
}

fn no_write_of_sealed_keys_follows_uncommitted_seal(mutant: Option<Mutant>) -> bool {
    let mut node = serving(DisabledRule::by(mutant), row(1, &[]));
    // The entry is proposed, and not on disk.
    node.duties(LIFE.incarnation, vec![Action::Configure { partition: splitting(2, &[]), placement: OWN }]);
    node.settle();
    let local = &node.copies()[&OWN];
    assert!(local.split.seals(b"z") && local.replica.commit() < local.replica.last().seq);
    ask(&mut node, put("z"), "put");
    ask(&mut node, put("a"), "kept");
    assert!(is_answered(&node, "kept"));
    !is_answered(&node, "put")
}

/// Operates a read after its round of confirmations.
fn confirmed(node: &mut Partitions<TestShell>, op: Op, reply: &'static str) {
    node.operate(Request { confirmed: Some(Epoch::new(1)), ..request(op, reply) });
    settle(node);
}

fn confirmed_read_is_checked_against_seal_again(mutant: Option<Mutant>) -> bool {
    let mut node = sealed(mutant);
    confirmed(&mut node, get("a"), "kept");
    confirmed(&mut node, get("z"), "sealed");
    let early = is_answered(&node, "sealed");
    configure(&mut node, parted(4));
    confirmed(&mut node, get("z"), "gone");
    assert!(is_answered(&node, "kept"));
    !early && refusal(&node, "gone") == Some(&Refusal::Moved)
}

fn keys_of_another_partition_are_not_served(mutant: Option<Mutant>) -> bool {
    let mut node = sealed(mutant);
    configure(&mut node, parted(4));
    ask(&mut node, put("z"), "put");
    ask(&mut node, get("z"), "get");
    refusal(&node, "put") == Some(&Refusal::Moved) && refusal(&node, "get") == Some(&Refusal::Moved)
}

fn formed_copy_continues_revisions_of_parent(mutant: Option<Mutant>) -> bool {
    let mut node = sealed(mutant);
    let sealed_at = node.copies()[&OWN].split.seal.as_ref().expect("a seal").position;
    node.formed(FORMED, 2);
    node.shell_mut().formed.pop().expect("formed").at == sealed_at
}

fn merge_source_stays_sealed_despite_waiting_write(mutant: Option<Mutant>) -> bool {
    let mut node = serving(DisabledRule::by(mutant), row(1, &[]));
    let merge = Merge { attempt: Version::new(2), side: MergeSide::Yields { left: 9 } };
    configure(&mut node, Partition { merge: Some(Box::new(merge)), ..row(2, &[]) });
    ask(&mut node, put("m"), "put");
    (1..40).for_each(|tenth| tick(&mut node, 1_000 + tenth * 50));
    !is_answered(&node, "put")
}
