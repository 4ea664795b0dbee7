//! Tests of forming the copy of a new partition.

use super::*;
use crate::copies::local_copy::FlushUrgency;
use crate::copies::reconcile::Action;
use crate::mutant::DisabledRule;
use crate::ranges::split::tests::{FORMED, RIGHT, ask, configure, copying, is_answered, sealed, splitting, tick};
use crate::test_shell::{LIFE, OWN, TestShell, get, put, row, serving, settle};
use archon_kv::{Engine, row as rows};
use archon_types::{Epoch, Fact, Incarnation, KeyRange, Millis, Partition, ReplicaState, Report};
use bytes::Bytes;

#[test]
fn formed_copy_is_adopted_and_reported_until_row_has_it() {
    let mut node = sealed(None);
    let job = node.shell().forms.first().cloned().expect("a job");
    let range = KeyRange { begin: Bytes::from_static(b"m"), end: None };
    assert_eq!((job.from, job.to, &job.range, job.attempt), (OWN, FORMED, &range, 2));
    assert!(node.shell().engine.get(OWN, &rows::value_key(b"z")).expect("readable").is_some(), "what is to be copied");
    node.formed(FORMED, 7);
    assert!(node.shell().formed.is_empty(), "of another attempt");
    node.formed(FORMED, 2);
    let formed = node.shell_mut().formed.pop().expect("formed");
    assert_eq!((formed.partition, node.shell().ends.clone()), (RIGHT, vec![(FORMED, formed.at)]));
    let told = |node: &Partitions<TestShell>| {
        node.shell().reports.iter().filter(|report| matches!(report.fact, Fact::Formed { .. })).count()
    };
    node.adopt(formed);
    node.settle();
    assert_eq!(told(&node), 0, "not on the disk yet");
    settle(&mut node);
    assert_eq!((told(&node), node.dormant().collect::<Vec<_>>()), (1, vec![(FORMED, RIGHT)]));
    tick(&mut node, 1_100);
    assert_eq!(told(&node), 1, "once for each version of the row");
    configure(&mut node, splitting(3, &[]));
    assert_eq!(told(&node), 2);
    // Another partition from here on, beginning at the position of the seal.
    let right = Partition {
        id: RIGHT,
        epoch: Epoch::new(3),
        leader: Some(FORMED),
        placements: vec![archon_types::Placement { id: FORMED, node: LIFE.node, state: ReplicaState::Live }],
        range,
        ..row(6, &[])
    };
    node.duties(LIFE.incarnation, vec![Action::Open { partition: right, placement: FORMED, fresh: false }]);
    settle(&mut node);
    let local = &node.copies()[&FORMED];
    assert!(local.serving && local.replica.last().seq >= formed.at.seq);
}

#[test]
fn spoilt_forming_starts_over() {
    let mut node = serving(DisabledRule::default(), row(1, &[]));
    configure(&mut node, copying(2, &[]));
    assert_eq!(node.shell().forms.len(), 1);
    node.spoilt(FORMED, 7);
    settle(&mut node);
    assert_eq!(node.shell().forms.len(), 1, "of another attempt");
    node.spoilt(FORMED, 2);
    settle(&mut node);
    assert_eq!(node.shell().forms.len(), 2);
}

#[test]
fn copy_in_damaged_space_is_formed_again_after_pause() {
    let mut node = serving(DisabledRule::default(), row(1, &[]));
    configure(&mut node, copying(2, &[]));
    node.damaged(FORMED, "a row is damaged".to_owned());
    settle(&mut node);
    tick(&mut node, 1_100);
    assert_eq!(node.shell().forms.len(), 1, "not at once");
    tick(&mut node, 7_000);
    assert_eq!(node.shell().forms.len(), 2);
    assert!(node.copies().contains_key(&OWN), "the healthy copy stays");
}

#[test]
fn refused_form_job_is_requested_again() {
    let mut node = serving(DisabledRule::default(), row(1, &[]));
    node.shell_mut().refuses_forms = true;
    configure(&mut node, copying(2, &[]));
    node.shell_mut().refuses_forms = false;
    settle(&mut node);
    assert_eq!(node.shell().forms.len(), 1);
}

#[test]
fn stage_report_without_room_is_repeated() {
    let mut node = serving(DisabledRule::default(), row(1, &[]));
    configure(&mut node, copying(2, &[]));
    let told = |node: &Partitions<TestShell>| {
        node.shell().reports.iter().filter(|report| matches!(report.fact, Fact::Mirroring { .. })).count()
    };
    node.shell_mut().reports_full = true;
    node.mirroring(FORMED, 2);
    tick(&mut node, 1_100);
    assert_eq!(told(&node), 0);
    node.shell_mut().reports_full = false;
    tick(&mut node, 1_200);
    assert_eq!(told(&node), 1);
}

#[test]
fn forming_copy_serves_all_keys_and_ends_at_seal() {
    let mut node = serving(DisabledRule::default(), row(1, &[]));
    ask(&mut node, put("z"), "before");
    configure(&mut node, copying(2, &[]));
    for (op, reply) in [(put("m"), "put"), (get("z"), "get")] {
        ask(&mut node, op, reply);
        assert!(is_answered(&node, reply), "nothing is given up");
    }
    let shell = node.shell();
    assert_eq!((shell.forms.len(), shell.ends.len()), (1, 0));
    let told = |node: &Partitions<TestShell>| {
        let fact = |report: &&Report| matches!(report.fact, Fact::Mirroring { copy: FORMED, .. });
        node.shell().reports.iter().filter(fact).count()
    };
    assert_eq!((told(&node), node.copies()[&OWN].flush_urgency), (0, FlushUrgency::None));
    node.mirroring(FORMED, 3);
    settle(&mut node);
    assert_eq!(told(&node), 0, "of another attempt");
    node.mirroring(FORMED, 2);
    settle(&mut node);
    tick(&mut node, 1_100);
    assert_eq!((told(&node), node.copies()[&OWN].flush_urgency), (1, FlushUrgency::Soon));
    configure(&mut node, splitting(3, &[]));
    assert_eq!((told(&node), node.shell().forms.len()), (2, 1));
    let last = node.copies()[&OWN].replica.last().seq;
    let ends: Vec<_> = node.shell().ends.iter().map(|(copy, end)| (*copy, end.seq)).collect();
    assert_eq!(ends, [(FORMED, last)], "where its entry stands");
    assert_eq!(node.copies()[&OWN].flush_urgency, FlushUrgency::None);
    tick(&mut node, 1_200);
    assert_eq!((told(&node), node.shell().ends.len()), (2, 1), "nothing is said or ended twice");
}

#[test]
fn mirroring_is_reported_once_gathered_writes_are_flushed() {
    let mut node = serving(DisabledRule::default(), row(1, &[]));
    configure(&mut node, copying(2, &[]));
    let told = |node: &Partitions<TestShell>| {
        node.shell().reports.iter().any(|report| matches!(report.fact, Fact::Mirroring { .. }))
    };
    ask(&mut node, put("z"), "gathers");
    node.shell_mut().engine_busy = true;
    node.mirroring(FORMED, 2);
    for now in [1_200, 1_300, 2_000] {
        tick(&mut node, now);
        assert!(!told(&node), "{now}");
    }
    node.shell_mut().engine_busy = false;
    tick(&mut node, 2_001);
    assert!(told(&node), "the engine has it");
}

#[test]
fn copy_far_behind_does_not_report_mirroring() {
    let mut node = serving(DisabledRule::default(), row(1, &[]));
    configure(&mut node, copying(2, &[]));
    let told = |node: &Partitions<TestShell>| {
        node.shell().reports.iter().any(|report| matches!(report.fact, Fact::Mirroring { .. }))
    };
    node.shell_mut().lease_until = Millis::new(200_000);
    node.shell_mut().engine_busy = true;
    ask(&mut node, put("z"), "gathers");
    node.mirroring(FORMED, 2);
    // Age of the oldest write that the engine lacks; the allowed lag grows with time, up to one second.
    for (now, behind_ms) in [(1_200, 200), (3_000, 900), (60_000, 1_100), (120_000, 119_000)] {
        node.copies.get_mut(&OWN).expect("it is open").gathering_since = Some(Millis::new(now - behind_ms));
        tick(&mut node, now);
        assert!(!told(&node), "{behind_ms} ms behind at {now}");
    }
    node.copies.get_mut(&OWN).expect("it is open").gathering_since = Some(Millis::new(119_200));
    tick(&mut node, 120_100);
    assert!(told(&node));
}

#[test]
fn split_cancelled_during_copying_writes_no_entry() {
    let mut node = serving(DisabledRule::default(), row(1, &[]));
    configure(&mut node, copying(2, &[]));
    let last = node.copies()[&OWN].replica.last();
    configure(&mut node, row(3, &[]));
    assert_eq!((node.copies()[&OWN].replica.last(), node.shell().stopped.clone()), (last, vec![FORMED]));
    assert!(node.turn.splitting.is_empty(), "nothing is left to do");
}

#[test]
fn copy_formed_before_restart_is_reported_not_formed_again() {
    let mut node = serving(DisabledRule::default(), row(1, &[]));
    let mut found = crate::test_shell::held(RIGHT);
    found.recovered.commit = Seq::new(10);
    node.dormant.insert(FORMED, found);
    configure(&mut node, splitting(2, &[]));
    assert!(node.shell().forms.is_empty());
    assert!(node.shell().reports.iter().any(|report| matches!(report.fact, Fact::Formed { .. })));
}

#[test]
fn formed_copy_is_reported_after_first_row_of_incarnation() {
    let mut node = serving(DisabledRule::default(), row(1, &[]));
    node.dormant.insert(FORMED, crate::test_shell::held(RIGHT));
    configure(&mut node, splitting(2, &[]));
    let told = |node: &Partitions<TestShell>| {
        node.shell().reports.iter().filter(|report| matches!(report.fact, Fact::Formed { .. })).count()
    };
    assert_eq!(told(&node), 1);
    let next = Incarnation::new(LIFE.incarnation.get() + 1);
    node.shell_mut().life.incarnation = next;
    node.renew(crate::NodeRegistration { incarnation: next, ..LIFE });
    settle(&mut node);
    tick(&mut node, 1_100);
    assert_eq!(told(&node), 1, "the coordinators have not confirmed that life: they would refuse it for good");
    node.duties(next, vec![Action::Configure { partition: splitting(2, &[]), placement: OWN }]);
    settle(&mut node);
    assert_eq!(told(&node), 2);
}

#[test]
fn deleted_copy_is_not_formed() {
    let mut node = sealed(None);
    node.duties(LIFE.incarnation, vec![Action::Unload { partition: RIGHT, placement: FORMED }]);
    node.formed(FORMED, 2);
    assert!(node.shell().formed.is_empty());
    settle(&mut node);
    assert_eq!(node.shell().forms.len(), 1, "the row says still that it is to be formed");
}

#[test]
fn opened_copy_is_not_formed_again_by_old_row() {
    let mut node = sealed(None);
    node.formed(FORMED, 2);
    let formed = node.shell_mut().formed.pop().expect("formed");
    node.adopt(formed);
    settle(&mut node);
    let placements = vec![archon_types::Placement { id: FORMED, node: LIFE.node, state: ReplicaState::Live }];
    let right = Partition { id: RIGHT, leader: Some(FORMED), placements, ..row(6, &[]) };
    node.duties(LIFE.incarnation, vec![Action::Open { partition: right, placement: FORMED, fresh: false }]);
    settle(&mut node);
    tick(&mut node, 1_100);
    assert_eq!(node.shell().forms.len(), 1);
}

#[test]
fn served_copy_is_not_formed_by_old_row() {
    let mut node = serving(DisabledRule::default(), row(1, &[]));
    let placements = vec![archon_types::Placement { id: FORMED, node: LIFE.node, state: ReplicaState::Live }];
    let right = Partition { id: RIGHT, leader: Some(FORMED), placements, ..row(6, &[]) };
    node.duties(LIFE.incarnation, vec![Action::Open { partition: right, placement: FORMED, fresh: true }]);
    settle(&mut node);
    configure(&mut node, splitting(2, &[]));
    assert!(node.shell().forms.is_empty());
}
