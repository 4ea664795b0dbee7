//! Splits and merges while anything happens: nodes fail and return, operators cancel, coordinators change.

use crate::bed::TestBed;
use crate::bed::ranges::TIMES;
use crate::random::cases;
use archon_coordinator_core::*;
use archon_types::*;
use bytes::Bytes;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Split { partition: usize, at: u8 },
    CancelSplit { partition: usize },
    Merge { partition: usize },
    CancelMerge { partition: usize },
    Fail { node: usize },
    Return { node: usize },
    Plan,
    Round,
    Pass { millis: u64 },
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

/// These steps, in the midst of everything else.
fn steps(reshaping: impl Strategy<Value = Step>, span_ms: u64) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => reshaping,
        2 => (0usize..4).prop_map(|node| Step::Fail { node }),
        3 => (0usize..4).prop_map(|node| Step::Return { node }),
        1 => Just(Step::Plan),
        6 => Just(Step::Round),
        3 => (100..span_ms).prop_map(|millis| Step::Pass { millis }),
        1 => Just(Step::NewCoordinator),
    ];
    proptest::collection::vec(step, 1..40)
}

/// Plays these steps; then every node returns, and all comes to rest. Every command is followed by a check of all invariants: that
/// ranges tile the keys, that no number is used twice, and that no row goes unnoticed.
fn play(mut bed: TestBed, steps: Vec<Step>) -> TestBed {
    bed.join("delphi", 4);
    let nodes: Vec<NodeId> = bed.state.nodes.keys().copied().collect();
    let mut boots = 50_000;
    for step in steps {
        let ids: Vec<PartitionId> = bed.state.partitions.of_table(TIMES).map(|row| row.id).collect();
        let command = match step {
            Step::Split { partition, at } => {
                let plan = check_split(&bed.state, ids[partition % ids.len()], &Bytes::copy_from_slice(&[at]));
                plan.map(|plan| plan.command).ok()
            }
            Step::CancelSplit { partition } => {
                let ids: Vec<PartitionId> = bed.state.partitions.splitting().map(|row| row.id).collect();
                let id = ids.get(partition % ids.len().max(1));
                id.map(|id| check_cancel_split(&bed.state, *id).expect("under way"))
            }
            Step::Merge { partition } => {
                let plan = check_merge(&bed.state, ids[partition % ids.len()], |_| None);
                plan.map(|plan| plan.command).ok()
            }
            Step::CancelMerge { partition } => {
                check_cancel_merge(&bed.state, ids[partition % ids.len()]).map(|(_, command)| command).ok()
            }
            Step::Fail { node } => {
                let node = nodes[node % nodes.len()];
                if bed.state.is_alive(node) {
                    bed.fail(node);
                }
                None
            }
            Step::Return { node } => {
                let node = nodes[node % nodes.len()];
                if !bed.state.is_alive(node) {
                    boots += 1;
                    let formed = |row: &Partition| row.split.as_ref()?.copy_on(node).map(|copy| copy.id);
                    let formed: Vec<PlacementId> = bed.state.partitions.on_node(node).filter_map(formed).collect();
                    bed.rejoin_with(node, boots, formed);
                }
                None
            }
            Step::Plan => {
                bed.one(plan(&bed.state, Goal::default()).start());
                None
            }
            Step::Round => {
                bed.heartbeat_all();
                bed.round(&[]);
                None
            }
            Step::Pass { millis } => {
                bed.pass(millis, &[]);
                None
            }
            Step::NewCoordinator => {
                bed.liveness = Liveness::new(bed.now);
                None
            }
        };
        if let Some(command) = command {
            bed.ok(command);
        }
    }
    for node in nodes {
        if !bed.state.is_alive(node) {
            boots += 1;
            bed.rejoin_with(node, boots, vec![]);
        }
    }
    bed.settle();
    bed
}

/// Every partition is served by all its copies, and nothing is left to be done or deleted.
fn is_at_rest(bed: &mut TestBed, replication: u8) -> Result<(), TestCaseError> {
    prop_assert!(bed.state.condemned.is_empty());
    for row in bed.state.partitions.of_table(TIMES) {
        prop_assert!(!row.is_reshaped(), "{:?}", row);
        let (status, live) = (row.status, row.live().count());
        prop_assert_eq!((status, live), (PartitionStatus::Online, usize::from(replication)), "{:?}", row);
    }
    prop_assert!(bed.turn().is_empty());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_every_split_ends_and_the_ranges_tile(replication in 1u8..4, steps in steps(of_splits(), 3_000)) {
        let mut bed = play(TestBed::with_ranges(3, replication, &[], RangeLimits::NONE), steps);
        is_at_rest(&mut bed, replication)?;
    }

    #[test]
    fn whatever_happens_every_merge_ends_and_the_ranges_tile(replication in 1u8..4, steps in steps(of_merges(), 6_000)) {
        let mut bed = play(TestBed::with_ranges(3, replication, &["g", "p"], RangeLimits::NONE), steps);
        is_at_rest(&mut bed, replication)?;
    }
}
