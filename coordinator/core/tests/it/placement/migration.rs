//! Migrations, phase by phase, and their reactions to failures.

use crate::bed::{TestBed, part, settings};
use archon_coordinator_core::*;
use archon_types::*;

/// Creates one partition on athens that is to be moved to byzantium, before the first step.
fn moving() -> TestBed {
    let mut bed = TestBed::running(settings(1, 1, 1), &["athens"]);
    bed.join("byzantium", 2);
    let (athens, byzantium) = (bed.node("athens"), bed.node("byzantium"));
    let placement = bed.row(0).leader.expect("a leader");
    let reason = "a test".to_owned();
    let moves = vec![PlannedMove {
        kind: MoveKind::Copy,
        partition: part(0),
        placement,
        from: athens,
        to: byzantium,
        reason,
        bytes: 10,
    }];
    let (table_version, moves_version) = (bed.state.table_version(), bed.state.moves_version);
    bed.ok(Command::StartPlan { table_version, moves_version, moves });
    bed
}

impl TestBed {
    fn phase(&self) -> Phase {
        self.phases()[0].clone()
    }

    fn migration(&self) -> &Migration {
        self.state.migrations.iter().next().expect("a migration")
    }

    /// Runs rounds until the migration has this phase.
    #[track_caller]
    fn reach(&mut self, wanted: Phase) {
        for _ in 0..50 {
            if self.phase() == wanted {
                return;
            }
            self.heartbeat_all();
            self.step();
        }
        panic!("never {wanted:?}, but {:?}: {:#?}", self.phase(), self.row(0));
    }

    /// Runs one turn, or one report, so that no phase is skipped.
    fn step(&mut self) {
        let commands = self.turn();
        if !commands.is_empty() {
            self.commit(commands);
            return;
        }
        for node in self.state.nodes.keys().copied().collect::<Vec<_>>() {
            for report in self.facts_of(node) {
                if self.report(node, &report).is_ok_and(|responses| !responses.is_empty()) {
                    return;
                }
            }
        }
        self.now = self.now.plus(100);
    }

    fn fail_named(&mut self, name: &str) -> NodeId {
        let node = self.node(name);
        self.fail(node);
        node
    }

    #[track_caller]
    fn ends_on(&mut self, name: &str, last: Phase) {
        self.settle();
        let leader = self.leader(0).map(|node| self.state.node_name(node));
        assert_eq!((leader.as_deref(), self.phase(), self.online()), (Some(name), last, 1));
        assert_eq!(self.row(0).placements.len(), 1, "{:?}", self.row(0));
        assert_eq!(self.state.migrations.active_count(), 0);
        assert_eq!(counts(&self.state).placements_unloading, 0);
    }
}

#[test]
fn migration_phases_follow_in_order() {
    let mut bed = moving();
    let mut seen = vec![];
    for _ in 0..50 {
        if seen.last() != Some(&bed.phase()) {
            seen.push(bed.phase());
        }
        bed.heartbeat_all();
        bed.step();
        bed.round_trip();
    }
    use Phase::*;
    assert_eq!(seen, [Queued, Copying, InSync, HandOver, Cleanup, Done]);
    bed.ends_on("byzantium", Done);
}

#[test]
fn hand_over_is_ordered_once_target_is_live() {
    let mut bed = moving();
    let athens = bed.node("athens");
    bed.reach(Phase::Copying);
    assert!(matches!(duties(&bed.state, athens).unwrap()[..], [Duty::Host { .. }]));
    bed.reach(Phase::InSync);
    let target = bed.migration().stage.target().unwrap();
    let row = bed.row(0).clone();
    let placement = row.leader.unwrap();
    let hand_over = Duty::HandOver { partition: row.clone(), placement, to: target };
    assert_eq!(duties(&bed.state, athens).unwrap(), vec![hand_over]);
    // One commit moves the leadership.
    let released = bed.fact(0, placement, Fact::Released);
    let own = bed.incarnation(athens);
    let commands = on_report(&bed.state, &mut bed.liveness, bed.now, athens, own, &released).unwrap();
    let incarnation = bed.incarnation(bed.node("byzantium"));
    let lead = Edit::Lead { placement: target, incarnation, ending: LeadershipEnd::Released };
    assert_eq!(commands, vec![Command::Change(vec![PartitionChange::one(part(0), row.version, lead)])]);
    bed.commit(commands);
    assert!(bed.state.former_leaders.is_empty());
    // The old copy stays until the new leader serves.
    assert_eq!(bed.turn(), vec![]);
    assert_eq!(bed.row(0).live().count(), 2);
    bed.ends_on("byzantium", Phase::Done);
}

#[test]
fn cancel_undoes_migration_until_leadership_moved() {
    for phase in [Phase::Queued, Phase::Copying, Phase::InSync] {
        let mut bed = moving();
        bed.reach(phase);
        bed.ok(Command::CancelPlan);
        bed.ends_on("athens", Phase::Cancelled);
        assert_eq!(bed.refused(Command::CancelPlan), ErrorKind::NothingRunning);
    }
    for phase in [Phase::HandOver, Phase::Cleanup] {
        let mut bed = moving();
        bed.reach(phase);
        bed.ok(Command::CancelPlan);
        bed.ends_on("byzantium", Phase::Done);
    }
}

#[test]
fn migration_survives_source_failure_in_every_phase() {
    for phase in [Phase::Queued, Phase::Copying, Phase::InSync, Phase::HandOver, Phase::Cleanup] {
        let mut bed = moving();
        bed.reach(phase.clone());
        let athens = bed.fail_named("athens");
        bed.settle_without(athens);
        match phase {
            // The only copy is on the failed node: everything waits for it, nothing is lost.
            Phase::Queued | Phase::Copying => {
                assert_eq!(bed.row(0).status, PartitionStatus::Unavailable);
                let migration = bed.migration().clone();
                assert_eq!(waiting_for(&bed.state, &migration).unwrap(), "the partition has no leader to copy from");
            }
            // The target takes over at once.
            _ => assert_eq!((bed.leader(0), bed.phase()), (Some(bed.node("byzantium")), Phase::Done)),
        }
        bed.rejoin(athens, 900);
        bed.ends_on("byzantium", Phase::Done);
    }
}

#[test]
fn migration_survives_target_failure_in_every_phase() {
    for phase in [Phase::Queued, Phase::Copying, Phase::InSync] {
        let mut bed = moving();
        bed.reach(phase.clone());
        let byzantium = bed.fail_named("byzantium");
        bed.settle_without(byzantium);
        assert_eq!(bed.phase(), Phase::Failed { why: "the target node failed".into() }, "{phase:?}");
        assert_eq!((bed.leader(0), bed.online()), (Some(bed.node("athens")), 1));
        bed.rejoin(byzantium, 900);
        bed.ends_on("athens", Phase::Failed { why: "the target node failed".into() });
    }
    // Both are in sync until the target serves: the source takes the leadership back, and the move waits for the
    // target.
    let mut bed = moving();
    bed.reach(Phase::HandOver);
    let byzantium = bed.fail_named("byzantium");
    bed.settle_without(byzantium);
    assert_eq!((bed.leader(0), bed.online()), (Some(bed.node("athens")), 1));
    bed.rejoin(byzantium, 900);
    bed.settle();
    assert_eq!((bed.online(), bed.state.migrations.active_count()), (1, 0));
    // After that, the only copy is on the target.
    let mut bed = moving();
    bed.reach(Phase::Cleanup);
    let byzantium = bed.fail_named("byzantium");
    bed.rejoin(byzantium, 900);
    bed.ends_on("byzantium", Phase::Done);
}

impl TestBed {
    fn settle_without(&mut self, deaf: NodeId) {
        for _ in 0..60 {
            self.heartbeat_all();
            self.round(&[deaf]);
            self.now = self.now.plus(100);
        }
    }
}

#[test]
fn migration_handles_target_with_empty_disk() {
    for phase in [Phase::Copying, Phase::InSync] {
        let mut bed = moving();
        bed.reach(phase);
        bed.fail_named("byzantium");
        bed.join("byzantium", 77);
        bed.settle();
        assert!(matches!(bed.phase(), Phase::Failed { .. }), "{:?}", bed.phase());
        assert_eq!((bed.leader(0), bed.online()), (Some(bed.node("athens")), 1));
        assert_eq!(bed.row(0).placements.len(), 1, "{:?}", bed.row(0));
    }
}

#[test]
fn migration_continues_under_another_coordinator() {
    for phase in [Phase::Queued, Phase::Copying, Phase::InSync, Phase::HandOver, Phase::Cleanup] {
        let mut bed = moving();
        bed.reach(phase);
        bed.liveness = Liveness::new(bed.now);
        bed.ends_on("byzantium", Phase::Done);
    }
}

#[test]
fn hanging_hand_over_is_withdrawn_after_lease() {
    let mut bed = moving();
    bed.reach(Phase::InSync);
    let epoch = bed.row(0).epoch;
    let athens = bed.node("athens");
    bed.pass(9_900, &[]);
    assert_eq!(bed.heartbeat(athens).unwrap().withdrawn, vec![]);
    bed.pass(200, &[]);
    assert_eq!(bed.heartbeat(athens).unwrap().withdrawn, vec![(part(0), epoch)]);
    assert_eq!(bed.leader(0), Some(athens));
    bed.pass(1_300, &[]);
    assert_eq!(bed.leader(0), Some(bed.node("byzantium")));
    assert_eq!(bed.heartbeat(athens).unwrap().withdrawn, vec![(part(0), epoch)]);
    bed.settle();
    assert_eq!((bed.phase(), bed.online()), (Phase::Done, 1));
}

#[test]
fn migrations_respect_copy_limit() {
    let mut bed = TestBed::running(settings(12, 1, 1), &["athens"]);
    bed.join("byzantium", 2);
    let balance = plan(&bed.state, Goal::default());
    assert_eq!(balance.moves.len(), 6);
    bed.ok(balance.start());
    let commands = bed.turn();
    assert_eq!(commands.len(), 2);
    bed.commit(commands);
    assert_eq!(bed.turn(), vec![]);
    let waiting = bed.state.migrations.iter().nth(4).unwrap();
    assert_eq!(waiting_for(&bed.state, waiting).unwrap(), "athens has 2 copies under way, the most allowed");
    bed.settle();
    assert_eq!(bed.spread(), [6, 6]);
}

#[test]
fn migration_stages_cannot_be_skipped() {
    let mut bed = moving();
    let migration = bed.migration().id;
    let set = |stage, change| Command::SetMigration { migration, stage, change };
    let target = PlacementId::new(2);
    assert_eq!(bed.refused(set(Stage::Done { target }, None)), ErrorKind::Refused);
    assert_eq!(bed.refused(set(Stage::Running { target }, None)), ErrorKind::InvalidArgument);
    assert_eq!(bed.refused(set(Stage::Queued, None)), ErrorKind::Refused);
    let nowhere = Command::SetMigration { migration: MigrationId::new(9), stage: Stage::Cancelled, change: None };
    assert_eq!(bed.refused(nowhere), ErrorKind::NotFound);
    bed.ok(set(Stage::Cancelled, None));
    assert_eq!(bed.refused(set(Stage::Cancelled, None)), ErrorKind::Refused);
}
