//! Splits and merges during random events: nodes fail and return, with less data or as new machines, operators cancel
//! and drop tables, coordinators change.

use crate::bed::TestBed;
use crate::random::cases;
use archon_coordinator_core::*;
use archon_types::*;
use bytes::Bytes;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestError, TestRng, TestRunner};
use uuid::Uuid;

#[derive(Clone, Debug)]
enum Step {
    Split {
        partition: usize,
        at: u8,
    },
    CancelSplit {
        partition: usize,
    },
    Merge {
        partition: usize,
    },
    CancelMerge {
        partition: usize,
    },
    Fail {
        node: usize,
    },
    Return {
        node: usize,
    },
    /// Like `Return`, without its copy of that partition, or of the one split off it.
    ReturnWithout {
        node: usize,
        partition: usize,
    },
    /// An operator declares it lost; another machine gets its name.
    Lose {
        node: usize,
    },
    /// The table is dropped; another one may get its name at once, or does the next time.
    Drop {
        again: bool,
    },
    Plan,
    Round,
    Pass {
        millis: u64,
    },
    NewCoordinator,
}

fn of_splits() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0usize..8, b'a'..=b'z').prop_map(|(partition, at)| Step::Split { partition, at }),
        1 => (0usize..8).prop_map(|partition| Step::CancelSplit { partition }),
    ]
}

fn of_merges() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0usize..8).prop_map(|partition| Step::Merge { partition }),
        3 => (0usize..8, b'a'..=b'z').prop_map(|(partition, at)| Step::Split { partition, at }),
        1 => (0usize..8).prop_map(|partition| Step::CancelMerge { partition }),
    ]
}

/// Returns these steps, mixed with all other ones.
fn steps(reshaping: impl Strategy<Value = Step>, span_ms: u64) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => reshaping,
        2 => (0usize..4).prop_map(|node| Step::Fail { node }),
        3 => (0usize..4).prop_map(|node| Step::Return { node }),
        1 => (0usize..4, 0usize..8).prop_map(|(node, partition)| Step::ReturnWithout { node, partition }),
        1 => (0usize..4).prop_map(|node| Step::Lose { node }),
        1 => prop_oneof![3 => Just(true), 1 => Just(false)].prop_map(|again| Step::Drop { again }),
        1 => Just(Step::Plan),
        6 => Just(Step::Round),
        3 => (100..span_ms).prop_map(|millis| Step::Pass { millis }),
        1 => Just(Step::NewCoordinator),
    ];
    proptest::collection::vec(step, 1..40)
}

/// The cluster, with its present table by ranges.
struct RangeCluster {
    bed: TestBed,
    nodes: Vec<NodeId>,
    /// Counter of processes and machines.
    numbers: u128,
    /// The command that creates it the next time.
    table: Command,
}

impl RangeCluster {
    fn new(replication: u8, split_at: &[&'static str], mutant: Option<Mutant>) -> Self {
        let mut bed = TestBed::with_ranges(3, replication, split_at, RangeLimits::NONE);
        bed.join("delphi", 4);
        bed.state.mutant = mutant;
        let nodes = bed.state.nodes.keys().copied().collect();
        let split_at = split_at.iter().map(|at| Bytes::from_static(at.as_bytes())).collect();
        let partitioning = Partitioning::Range { split_at, limits: RangeLimits::NONE };
        let table = Command::CreateTable { name: "times".into(), partitioning, replication, holds: TableContent::Data };
        Self { bed, nodes, numbers: 50_000, table }
    }

    fn table(&self) -> Option<TableId> {
        self.bed.state.tables.values().find(|table| table.name == "times").map(|table| table.id)
    }

    /// Returns the partition of that number, if there is a table.
    fn partition(&self, number: usize) -> Option<PartitionId> {
        let ids: Vec<PartitionId> = self.bed.state.partitions.of_table(self.table()?).map(|row| row.id).collect();
        Some(ids[number % ids.len()])
    }

    fn fail(&mut self, node: usize) -> NodeId {
        let node = self.nodes[node % self.nodes.len()];
        if self.bed.state.is_alive(node) {
            self.bed.fail(node);
        }
        node
    }

    /// Restarts the node in another process, with everything but its copies of `lost`, and with formed copies only if
    /// `formed`.
    fn comes_back(&mut self, node: NodeId, lost: Option<PartitionId>, formed: bool) {
        self.numbers += 1;
        let row = self.bed.state.node(node).expect("known").clone();
        let rows = self.bed.state.partitions.on_node(node).filter(|row| Some(row.id) != lost);
        let copies = |row: &Partition| {
            let split_off = row.split.as_ref().and_then(|split| split.copy_on(node)).filter(|_| formed);
            row.placement_on(node).map(|copy| copy.id).into_iter().chain(split_off.map(|copy| copy.id))
        };
        let held: Vec<PlacementId> = rows.flat_map(|row| copies(row).collect::<Vec<_>>()).collect();
        let condemned = |bed: &TestBed| bed.state.condemned.on_node(node).map(|(copy, _)| copy).collect::<Vec<_>>();
        let before = condemned(&self.bed);
        self.bed.join_with(Register {
            held: held.clone(),
            last_incarnation: row.activated,
            ..Register::new(row.node.name, row.node.address, row.storage, BootId::new(Uuid::from_u128(self.numbers)))
        });
        // Condemned copies are on its disk; copies that it does not list are not.
        let after = condemned(&self.bed);
        assert!(before.iter().all(|copy| after.contains(copy)), "of {before:?} only {after:?} are to be deleted");
        let formed = self.bed.state.partitions.splitting().filter_map(|row| row.split.as_ref()?.copy_on(node));
        let lost = formed.filter(|copy| copy.is_formed()).find(|copy| !held.contains(&copy.id));
        assert_eq!(lost, None, "it is formed, and its node has lost it");
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Split { partition, at } => {
                let Some(id) = self.partition(partition) else { return };
                if let Ok(plan) = check_split(&self.bed.state, id, &Bytes::copy_from_slice(&[at])) {
                    self.bed.ok(plan.command);
                }
            }
            Step::CancelSplit { partition } => {
                let ids: Vec<PartitionId> = self.bed.state.partitions.splitting().map(|row| row.id).collect();
                if let Some(id) = ids.get(partition % ids.len().max(1)) {
                    let command = check_cancel_split(&self.bed.state, *id).expect("under way");
                    self.bed.ok(command);
                }
            }
            Step::Merge { partition } => {
                let Some(id) = self.partition(partition) else { return };
                if let Ok(plan) = check_merge(&self.bed.state, id, |_| None) {
                    self.bed.ok(plan.command);
                }
            }
            Step::CancelMerge { partition } => {
                let Some(id) = self.partition(partition) else { return };
                if let Ok((_, command)) = check_cancel_merge(&self.bed.state, id) {
                    self.bed.ok(command);
                }
            }
            Step::Fail { node } => drop(self.fail(node)),
            Step::Return { node } => {
                let node = self.nodes[node % self.nodes.len()];
                if !self.bed.state.is_alive(node) {
                    self.comes_back(node, None, true);
                }
            }
            Step::ReturnWithout { node, partition } => {
                let node = self.fail(node);
                let lost = self.partition(partition);
                self.comes_back(node, lost, true);
            }
            Step::Lose { node } => {
                let at = node % self.nodes.len();
                let node = self.fail(node);
                let command = check_lose_node(&self.bed.state, node).expect("it is failed").command;
                self.bed.ok(command);
                self.numbers += 1;
                let name = self.bed.state.node(node).expect("known").node.name.clone();
                self.nodes[at] = self.bed.join(&name, self.numbers);
            }
            Step::Drop { again } => {
                if let Some(table) = self.table() {
                    self.bed.ok(Command::DropTable { table });
                    if !again {
                        return;
                    }
                }
                self.bed.ok(self.table.clone());
            }
            Step::Plan => drop(self.bed.one(plan(&self.bed.state, Goal::default()).start())),
            Step::Round => {
                self.bed.heartbeat_all();
                self.bed.round(&[]);
            }
            Step::Pass { millis } => self.bed.pass(millis, &[]),
            Step::NewCoordinator => self.bed.liveness = Liveness::new(self.bed.now),
        }
    }

    /// Brings every node back, accepts the losses as an operator, and waits until everything is settled.
    fn heal(&mut self) {
        for node in self.nodes.clone() {
            if !self.bed.state.is_alive(node) {
                self.comes_back(node, None, false);
            }
        }
        for _ in 0..10 {
            self.bed.settle();
            let mut lost = self.lost();
            if lost.is_none() {
                return;
            }
            // One of them may have been merged with another.
            while let Some(command) = lost {
                self.bed.ok(command);
                lost = self.lost();
            }
        }
        panic!("nobody can lead what an operator had led");
    }

    /// Returns the operator's command for a partition without an in-sync copy.
    fn lost(&self) -> Option<Command> {
        let (bed, ids) = (&self.bed, self.bed.state.partitions.iter().map(|row| row.id));
        let plans = ids.map(|id| check_force_leader(&bed.state, &bed.liveness, bed.now, id, None));
        plans.filter_map(Result::ok).map(|plan| plan.command).next()
    }
}

/// Plays these steps; then every node returns, and everything settles. All invariants are checked after every command:
/// ranges tile the keys, no number is used twice, and no row is missed.
fn play(
    replication: u8,
    split_at: &[&'static str],
    steps: &[Step],
    mutant: Option<Mutant>,
) -> Result<(), TestCaseError> {
    let mut play = RangeCluster::new(replication, split_at, mutant);
    steps.iter().for_each(|step| play.step(step));
    play.heal();
    is_at_rest(&mut play, replication)
}

/// Checks that every partition is served by all its copies, and no work or deletion is left.
fn is_at_rest(play: &mut RangeCluster, replication: u8) -> Result<(), TestCaseError> {
    prop_assert!(play.bed.state.condemned.is_empty());
    let table = play.table();
    for row in play.bed.state.partitions.iter().filter(|row| Some(row.id.table) == table) {
        prop_assert!(!row.is_reshaped(), "{:?}", row);
        let (status, live) = (row.status, row.live().count());
        prop_assert_eq!((status, live), (PartitionStatus::Online, usize::from(replication)), "{:?}", row);
    }
    prop_assert!(play.bed.turn().is_empty());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_split_ends_and_ranges_tile(replication in 1u8..4, steps in steps(of_splits(), 3_000)) {
        play(replication, &[], &steps, None)?;
    }

    #[test]
    fn every_merge_ends_and_ranges_tile(replication in 1u8..4, steps in steps(of_merges(), 6_000)) {
        play(replication, &["g", "p"], &steps, None)?;
    }
}

archon_types::shown_by! {
    FormedLost => histories_detect_lost_formed_copies,
    CondemnedForgotten => histories_detect_forgotten_dropped_copies,
    CondemnedEndsWithLife => histories_detect_dropped_copies_of_returning_node,
}

/// Returns true if many histories, the same ones each time, all settle.
fn come_to_rest(mutant: Option<Mutant>) -> bool {
    let config = ProptestConfig { failure_persistence: None, max_shrink_iters: 0, ..ProptestConfig::with_cases(400) };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let of_both = (1u8..4, steps(prop_oneof![of_splits(), of_merges()], 3_000));
    match runner.run(&of_both, |(replication, steps)| play(replication, &["g", "p"], &steps, mutant)) {
        Ok(()) => true,
        Err(TestError::Fail(..)) => false,
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
}

fn histories_detect_lost_formed_copies(mutant: Option<Mutant>) -> bool {
    come_to_rest(mutant)
}

fn histories_detect_forgotten_dropped_copies(mutant: Option<Mutant>) -> bool {
    come_to_rest(mutant)
}

fn histories_detect_dropped_copies_of_returning_node(mutant: Option<Mutant>) -> bool {
    come_to_rest(mutant)
}
