//! Measures the time of planning, a control turn and a failure with thousands of nodes and 100,000 partitions.
//! `cargo bench -p archonkv-coordinator-core`

#![expect(clippy::disallowed_types, reason = "a benchmark looks at the clock; the room that it measures does not")]

use archon_coordinator_core::*;
use archon_types::*;
use std::time::{Duration, Instant};
use uuid::Uuid;

const NODES: u64 = 3_000;
const JOINING: u64 = 300;
const TABLES: u64 = 10;
const PARTITIONS: u32 = 10_000;

fn main() {
    for replication in [1, 3] {
        measure(replication);
    }
}

fn measure(replication: u8) {
    let mut state = ClusterState::new();
    let mut now = Millis::new(1);
    let settings = Settings { partitions: PARTITIONS, nodes_min: 1, replication, ..Settings::default() };
    commit(&mut state, now, vec![Command::Bootstrap { cluster: ClusterId::new(Uuid::from_u128(1)), settings }]);
    for table in 1..TABLES {
        let name = format!("t{table}");
        commit(
            &mut state,
            now,
            vec![Command::CreateTable {
                name,
                partitioning: Partitioning::Hash { partitions: PARTITIONS },
                replication,
                holds: TableContent::Data,
            }],
        );
    }
    (1..=NODES).for_each(|number| join(&mut state, now, number));
    let mut liveness = Liveness::new(now);
    let (assigning, _) = timed(|| settle(&mut state, &mut liveness, &mut now));
    (NODES + 1..=NODES + JOINING).for_each(|number| join(&mut state, now, number));
    commit(&mut state, now, vec![Command::SetNode { node: NodeId::new(1), goal: NodeGoal::Drain, if_nodes: None }]);

    let partitions = state.partitions.len();
    println!("{NODES} nodes and {JOINING} joining, {partitions} partitions, {replication} copies of each");
    println!("  assigned and online       {assigning:>10.1?}");
    let (took, first) = timed(|| plan(&state, Goal::default()));
    println!("  plan                      {took:>10.1?}  {} moves, {} unmet", first.moves.len(), first.unmet.len());
    let (took, _) = timed(|| turn(&state, &mut liveness, now));
    println!("  turn, nothing to do       {took:>10.1?}");
    let (took, _) = timed(|| state.nodes.keys().filter_map(|node| duties(&state, *node)).flatten().count());
    println!("  duties of every node      {took:>10.1?}");
    carry_out(&mut state, &first, now);
    let (took, second) = timed(|| plan(&state, Goal::default()));
    println!("  plan after its moves      {took:>10.1?}  {} moves", second.moves.len());
    assert!(replication > 1 || second.moves.is_empty(), "planning twice must move nothing");
    let failed = NodeId::new(2);
    let (took, _) = timed(|| {
        let commands = on_stopping(&state, &liveness, failed, state.incarnation(failed).unwrap_or_default());
        commit(&mut state, now, commands.unwrap_or_default());
    });
    println!("  a node fails              {took:>10.1?}");
    let encoded = rmp_serde::to_vec_named(&state).map(|bytes| bytes.len()).unwrap_or(0);
    println!("  state, encoded            {:>8} KiB", encoded / 1024);
}

fn join(state: &mut ClusterState, now: Millis, number: u64) {
    let id = Uuid::from_u128(u128::from(number));
    let (storage, boot) = (StorageId::new(id), BootId::new(id));
    let register = Register::new(format!("n{number}"), format!("n{number}:7000"), storage, boot);
    let responses = commit(state, now, vec![Command::Register(Box::new(register))]);
    if let [Response::Registered { node, incarnation }] = responses[..] {
        commit(state, now, vec![Command::Activate { node, incarnation }]);
    }
}

fn settle(state: &mut ClusterState, liveness: &mut Liveness, now: &mut Millis) {
    loop {
        *now = now.plus(1);
        let commands = turn(state, liveness, *now).commands;
        if commands.is_empty() {
            break;
        }
        commit(state, *now, commands);
    }
    let online = |row: &Partition| PartitionChange::one(row.id, row.version, Edit::Online(row.epoch));
    let changes: Vec<PartitionChange> = state.partitions.iter().map(online).collect();
    for chunk in changes.chunks(1_000) {
        commit(state, *now, vec![Command::Change(chunk.to_vec())]);
    }
}

/// Makes every move of a plan at once, as if all migrations had ended.
fn carry_out(state: &mut ClusterState, plan: &Plan, now: Millis) {
    for planned in &plan.moves {
        let Some(row) = state.partitions.get(planned.partition).cloned() else { continue };
        let id = PlacementId::new(state.placement_last.get() + 1);
        let incarnation = state.incarnation(planned.to).unwrap_or_default();
        let mut edits = vec![
            Edit::Add(Placement { id, node: planned.to, state: ReplicaState::Load }),
            Edit::Promote(id, incarnation),
        ];
        if row.leader == Some(planned.placement) {
            edits.push(Edit::Lead { placement: id, incarnation, ending: LeadershipEnd::Released });
            edits.push(Edit::Online(row.epoch.next().unwrap_or_default()));
        }
        edits.extend([Edit::Unload(planned.placement), Edit::Forget(planned.placement)]);
        let change = PartitionChange { partition: row.id, if_version: row.version, edits };
        commit(state, now, vec![Command::Change(vec![change])]);
    }
}

fn commit(state: &mut ClusterState, at: Millis, commands: Vec<Command>) -> Vec<Response> {
    let batch = CommandBatch { request: None, at, who: Actor::Coordinator(1), proposer: 1, term: 1, commands };
    let responses = apply(state, state.applied + 1, &batch);
    if let Some(error) = responses.iter().find_map(Response::refusal) {
        panic!("refused: {error}");
    }
    responses
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let value = work();
    (start.elapsed(), value)
}
