//! Splits while anything happens: nodes fail and return, operators cancel, coordinators change.

use crate::random::cases;
use crate::splits::{TIMES, ranges};
use archon_coordinator_core::*;
use archon_types::*;
use bytes::Bytes;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Split { partition: usize, at: u8 },
    Cancel { partition: usize },
    Fail { node: usize },
    Return { node: usize },
    Plan,
    Round,
    Pass { millis: u64 },
    NewCoordinator,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0usize..8, b'a'..=b'z').prop_map(|(partition, at)| Step::Split { partition, at }),
        1 => (0usize..8).prop_map(|partition| Step::Cancel { partition }),
        2 => (0usize..4).prop_map(|node| Step::Fail { node }),
        3 => (0usize..4).prop_map(|node| Step::Return { node }),
        1 => Just(Step::Plan),
        6 => Just(Step::Round),
        3 => (100u64..3_000).prop_map(|millis| Step::Pass { millis }),
        1 => Just(Step::NewCoordinator),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    /// Every command is followed by a check of all invariants: that ranges tile the keys, and that no number is used twice.
    #[test]
    fn whatever_happens_every_split_ends_and_the_ranges_tile(replication in 1u8..4, steps in proptest::collection::vec(step(), 1..40)) {
        let mut bed = ranges(replication, None);
        bed.join("delphi", 4);
        let nodes: Vec<NodeId> = bed.state.nodes.keys().copied().collect();
        let mut boots = 50_000;
        for step in steps {
            match step {
                Step::Split { partition, at } => {
                    let ids: Vec<PartitionId> = bed.state.partitions.of_table(TIMES).map(|row| row.id).collect();
                    let plan = check_split(&bed.state, ids[partition % ids.len()], &Bytes::copy_from_slice(&[at]));
                    if let Ok(plan) = plan {
                        bed.ok(plan.command);
                    }
                }
                Step::Cancel { partition } => {
                    let ids: Vec<PartitionId> = bed.state.partitions.splitting().map(|row| row.id).collect();
                    if let Some(id) = ids.get(partition % ids.len().max(1)) {
                        bed.ok(check_cancel_split(&bed.state, *id).expect("under way"));
                    }
                }
                Step::Fail { node } => {
                    let node = nodes[node % nodes.len()];
                    if bed.state.is_alive(node) {
                        bed.fail(node);
                    }
                }
                Step::Return { node } => {
                    let node = nodes[node % nodes.len()];
                    if !bed.state.is_alive(node) {
                        boots += 1;
                        let formed = |row: &Partition| row.split.as_ref()?.copy_on(node).map(|copy| copy.id);
                        let formed: Vec<PlacementId> = bed.state.partitions.on_node(node).filter_map(formed).collect();
                        bed.rejoin_with(node, boots, formed);
                    }
                }
                Step::Plan => {
                    bed.one(plan(&bed.state, Goal::default()).start());
                }
                Step::Round => {
                    bed.heartbeat_all();
                    bed.round(&[]);
                }
                Step::Pass { millis } => bed.pass(millis, &[]),
                Step::NewCoordinator => bed.liveness = Liveness::new(bed.now),
            }
        }
        for node in nodes {
            if !bed.state.is_alive(node) {
                boots += 1;
                bed.rejoin_with(node, boots, vec![]);
            }
        }
        bed.settle();
        prop_assert!(bed.state.partitions.splitting().next().is_none());
        prop_assert!(bed.state.condemned.is_empty());
        for row in bed.state.partitions.of_table(TIMES) {
            prop_assert_eq!((row.status, row.live().count()), (PartitionStatus::Online, usize::from(replication)), "{:?}", row);
        }
        prop_assert!(bed.turn().is_empty());
    }
}
