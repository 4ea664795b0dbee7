//! What the pure decisions cost: no processes, no network, no disk.

use crate::figures::Figures;
use crate::world::World;
use anyhow::Context;
use archon_coordinator_core::term::{Beat, Term};
use archon_coordinator_core::{
    Actor, ClusterState, Command, CommandBatch, Edit, Goal, PartitionChange, Totals, apply, duties, on_stopping, plan,
    rows_piece, table_piece, turn,
};
use archon_proto::v1;
use archon_types::{Millis, NodeGoal, NodeId, PartitionId, TableId, TablePiece, Version};
use prost::Message;
use std::io::Write as _;

/// Heartbeats and changes over which a mean is taken.
const REPEATS: usize = 2_000;
/// Batches of heartbeats over which a mean is taken, and how many heartbeats each has.
const BATCHES: usize = 200;
const BATCH: usize = 100;
/// Applied changes over which the mean of a whole turn is taken; a turn may be dear.
const TURNS: usize = 50;
/// Turns in which all leaderships end, at most.
const TURNS_OF_LOSS_MAX: usize = 1_000;

/// Measures one size.
pub(crate) fn measure(nodes: usize, partitions: usize, replication: u8) -> anyhow::Result<Figures> {
    let mut figures = Figures::new(nodes, partitions, replication);
    // A tenth of the nodes join later: what a plan is for. And one table is led by a single node.
    let first = nodes - nodes / 10;
    let mut world = World::new(first, partitions - nodes, replication)?;
    figures.timed("all nodes register", || (1..=first).try_for_each(|number| world.join(number).map(drop)))?;
    figures.timed("all partitions assigned and Online", || world.settle())?;
    let heavy = *world.state.nodes.keys().next().context("no nodes")?;
    let led = world.create_table("heavy", u32::try_from(nodes)?, replication)?;
    world.assign_to(led, heavy, replication)?;
    figures.add("rows", world.state.partitions.len() as f64, "count");

    small_changes(&mut figures, &mut world)?;
    heartbeats(&mut figures, &mut world)?;
    snapshot(&mut figures, &world)?;
    planning(&mut figures, &mut world, first, nodes)?;
    failure(&mut figures, &mut world, heavy)?;
    Ok(figures)
}

/// A partition whose row a change can touch without consequence, spread over the tables.
fn some_row(state: &ClusterState, number: usize) -> PartitionId {
    let tables: Vec<TableId> = state.tables.keys().copied().collect();
    let table = tables[number % tables.len()];
    let size = state.partitions.count_of(table) as usize;
    PartitionId::new(table, u32::try_from(number * 7_919 % size).unwrap_or(0))
}

/// Says again that a partition is Online: one row changes its version and nothing else.
fn touch(state: &ClusterState, number: usize) -> Option<Command> {
    let row = state.partitions.get(some_row(state, number))?;
    Some(Command::Change(vec![PartitionChange::one(row.id, row.version, Edit::Online(row.epoch))]))
}

fn small_changes(figures: &mut Figures, world: &mut World) -> anyhow::Result<()> {
    let commands: Vec<Command> = (0..REPEATS).filter_map(|number| touch(&world.state, number)).collect();
    let mut commands = commands.into_iter();
    // Rows may repeat, so a later one may be refused: that costs as much.
    figures.mean("apply one change", REPEATS, |_| {
        let Some(command) = commands.next() else { return };
        commit_any(world, vec![command]);
    });
    // Takes note of all that changed so far, once.
    let _ = world.turn();
    figures.mean("turn after one change", TURNS, |number| {
        if let Some(command) = touch(&world.state, number) {
            commit_any(world, vec![command]);
        }
        let _ = world.turn();
    });
    figures.mean("turn without a change", TURNS, |_| {
        let _ = world.turn();
    });
    figures.mean("what a scrape counts", TURNS, |_| {
        std::hint::black_box(Totals::of(&world.state));
    });
    figures.mean("version of all tables", REPEATS, |_| {
        std::hint::black_box(world.state.table_version());
    });
    let before = world.state.table_version();
    world.commit(touch(&world.state, 1).into_iter().collect())?;
    let tables: Vec<TableId> = world.state.tables.keys().copied().collect();
    let wanted = |state: &ClusterState| -> Vec<_> {
        let behind = tables.iter().filter(|table| state.version_of(**table) > before);
        behind.filter_map(|table| table_piece(state, *table, before, 0)).collect()
    };
    figures.mean("delta of one change, all tables asked", REPEATS, |_| {
        std::hint::black_box(wanted(&world.state));
    });
    let bytes = |pieces: Vec<TablePiece>| -> usize {
        pieces.into_iter().map(|piece| v1::TableDelta::from(piece).encoded_len()).sum()
    };
    figures.add("delta of one change, on the wire", bytes(wanted(&world.state)) as f64, "bytes");
    let nodes: Vec<NodeId> = world.state.nodes.keys().copied().skip(1).collect();
    figures.mean("duties of one node", 100, |number| {
        std::hint::black_box(duties(&world.state, nodes[number * 37 % nodes.len()]));
    });
    let (largest, whole) = figures.timed("the rows of all tables, encoded", || {
        let mut sizes = Vec::new();
        for table in &tables {
            let mut next = Some(0);
            while let Some(piece) = next.and_then(|from| rows_piece(&world.state, *table, Version::ZERO, from)) {
                next = piece.next;
                sizes.push(v1::TableDelta::from(piece).encode_to_vec().len());
            }
        }
        (sizes.iter().max().copied().unwrap_or(0), sizes.iter().sum::<usize>())
    });
    figures.add("the rows of all tables", whole as f64, "bytes");
    figures.add("the largest piece of them", largest as f64, "bytes");
    Ok(())
}

fn heartbeats(figures: &mut Figures, world: &mut World) -> anyhow::Result<()> {
    let nodes: Vec<_> = world.state.nodes.values().map(|row| (row.node.id, row.node.incarnation)).collect();
    let beats = std::cell::Cell::new(0);
    let turn_of = |world: &mut World, number: usize| {
        let (node, incarnation) = nodes[number % nodes.len()];
        let now = world.now;
        beats.set(beats.get() + 1);
        let _ = world.liveness.heard(&world.state, node, incarnation, beats.get(), now);
        let _ = std::hint::black_box(world.liveness.answer(&world.state, node, incarnation, now));
        std::hint::black_box(world.state.table_version());
    };
    figures.mean("one heartbeat", 10 * REPEATS, |number| turn_of(world, number));
    // While leaderships are withdrawn, as many as a turn may edit.
    let some: Vec<PartitionId> = (0..4_096).map(|number| some_row(&world.state, number)).collect();
    let mut liveness = world.liveness.clone();
    some.iter().for_each(|partition| {
        liveness.withdraw(&world.state, *partition);
    });
    std::mem::swap(&mut world.liveness, &mut liveness);
    figures.mean("one heartbeat, 4,096 leaderships withdrawn", REPEATS, |number| turn_of(world, number));
    std::mem::swap(&mut world.liveness, &mut liveness);
    batches(figures, world)
}

/// What a relay brings, from its arrival to its answers; the quorum round between is not counted. A new term's, which knows of nobody yet.
fn batches(figures: &mut Figures, world: &World) -> anyhow::Result<()> {
    let (mut term, state, now) = (Term::new(1, world.now), &world.state, world.now);
    let nodes: Vec<_> = state.nodes.values().map(|row| (row.node.id, row.node.incarnation)).collect();
    let mut answered = 0;
    figures.mean("a batch of 100 heartbeats", BATCHES, |batch| {
        let members = nodes.iter().cycle().skip(batch * BATCH % nodes.len()).take(BATCH);
        let beats = members.map(|(node, incarnation)| {
            let number = batch as u64 + 1;
            term.heartbeat(state, Beat { node: *node, incarnation: *incarnation, number, stopping: false }, now)
        });
        let taken: Vec<_> = beats.filter_map(|taken| taken.ok().flatten()).collect();
        let round = term.begin_round();
        let confirmed: Vec<_> =
            taken.into_iter().filter_map(|taken| term.confirmed(state, taken, round, Some(1))).collect();
        answered += term.answers(state, confirmed, now).into_iter().filter(Result::is_ok).count();
    });
    let expected = BATCHES * BATCH;
    anyhow::ensure!(nodes.len() < BATCH || answered == expected, "{answered} of {expected} heartbeats were answered");
    Ok(())
}

fn snapshot(figures: &mut Figures, world: &World) -> anyhow::Result<()> {
    let copy = figures.timed("snapshot: the state is held", || world.state.image());
    let bytes = figures.timed("snapshot: encode", || rmp_serde::to_vec_named(&copy))?;
    figures.add("snapshot", bytes.len() as f64, "bytes");
    figures.timed("snapshot: write and sync", || {
        let mut file = tempfile::tempfile()?;
        file.write_all(&bytes)?;
        file.sync_all()
    })?;
    let back: ClusterState = figures.timed("snapshot: decode", || rmp_serde::from_slice(&bytes))?;
    anyhow::ensure!(back == world.state, "a snapshot does not give the state back");
    Ok(())
}

fn planning(figures: &mut Figures, world: &mut World, from: usize, to: usize) -> anyhow::Result<()> {
    (from + 1..=to).try_for_each(|number| world.join(number).map(drop))?;
    let planned = figures.timed("plan, a tenth of the nodes has joined", || plan(&world.state, Goal::default()));
    figures.add("moves planned", planned.moves.len() as f64, "count");
    let mut copy = World { state: world.state.clone(), liveness: world.liveness.clone(), now: world.now };
    let start = planned.start();
    figures.timed("plan: apply it", || copy.commit(vec![start]))?;
    let begun = figures.timed("first turn of the plan", || copy.turn());
    figures.add("moves begun at once", begun.len() as f64, "count");
    copy.commit(begun)?;
    figures.mean("turn after one change, the plan under way", TURNS, |number| {
        if let Some(command) = touch(&copy.state, number) {
            commit_any(&mut copy, vec![command]);
        }
        let commands = copy.turn();
        commit_any(&mut copy, commands);
    });
    Ok(())
}

fn failure(figures: &mut Figures, world: &mut World, heavy: NodeId) -> anyhow::Result<()> {
    let leads = world.state.partitions.leaders_on(heavy);
    figures.add("leaders of the node that fails", f64::from(leads), "count");
    let incarnation = world.state.incarnation(heavy).context("the node is unknown")?;
    figures.timed("its farewell decided", || on_stopping(&world.state, &world.liveness, heavy, incarnation))?;
    // Everybody but that node heartbeats once more, then its time is up.
    let at = world.now.plus(world.state.settings.timing.failure_timeout_ms);
    let others: Vec<_> = world.state.nodes.values().map(|row| (row.node.id, row.node.incarnation)).collect();
    for (node, incarnation) in others.into_iter().filter(|(node, _)| *node != heavy) {
        world.liveness.heard(&world.state, node, incarnation, u64::MAX - 1, at)?;
    }
    world.now = at.plus(1);
    let commands =
        figures.timed("failover decision (the turn)", || turn(&world.state, &mut world.liveness, world.now).commands);
    let batch = CommandBatch {
        request: None,
        at: world.now,
        who: Actor::Coordinator(1),
        proposer: 1,
        term: 1,
        commands: commands.clone(),
    };
    figures.add("failover: log entry", rmp_serde::to_vec_named(&batch)?.len() as f64, "bytes");
    let index = world.state.applied + 1;
    figures.timed("failover: apply", || apply(&mut world.state, index, &batch));
    anyhow::ensure!(world.state.partitions.leaders_on(heavy) == 0, "the failed node still leads");
    figures.timed("turn after it", || world.turn());
    // Its copies are replaced after a while.
    let due = world.now.plus(world.state.settings.replace_after_ms);
    let others: Vec<_> = world.state.nodes.values().map(|row| (row.node.id, row.node.incarnation)).collect();
    for (node, incarnation) in others.into_iter().filter(|(node, _)| *node != heavy) {
        world.liveness.heard(&world.state, node, incarnation, u64::MAX, due)?;
    }
    world.now = Millis::new(due.get() + 1);
    let repairs = figures.timed("first turn of repair", || world.turn());
    figures.add("repairs begun at once", repairs.len() as f64, "count");
    // An operator empties a node.
    let drained = *world.state.nodes.keys().nth(1).context("no second node")?;
    world.commit(vec![Command::SetNode { node: drained, goal: NodeGoal::Drain, if_nodes: None }])?;
    figures.timed("first turn of a drain", || world.turn());
    // At worst nothing is as it should be: no node was heard for long.
    world.now = world.now.plus(world.state.settings.timing.failure_timeout_ms + 1);
    for _ in 0..TURNS_OF_LOSS_MAX {
        let commands = world.turn();
        if commands.is_empty() {
            break;
        }
        commit_any(world, commands);
    }
    figures.mean("what a scrape counts, all nodes failed", TURNS, |_| {
        std::hint::black_box(Totals::of(&world.state));
    });
    Ok(())
}

/// Commits what may be refused.
fn commit_any(world: &mut World, commands: Vec<Command>) {
    let who = Actor::Coordinator(1);
    let batch = CommandBatch { request: None, at: world.now, who, proposer: 1, term: 1, commands };
    let index = world.state.applied + 1;
    std::hint::black_box(apply(&mut world.state, index, &batch));
}
