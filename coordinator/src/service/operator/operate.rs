//! Operator commands on nodes and partitions: judged by the core first, then committed. The texts state the possible
//! losses.

use super::rebalance;
use super::tables::table_of;
use crate::clock::{boot_now, wall_now};
use crate::leader::session::Session;
use crate::service::admins::{Admins, NAMED_MAX, Result, unexpected};
use crate::service::call::Call;
use crate::service::check_named;
use crate::service::documents::answers;
use crate::service::findings::{bars, subjects};
use crate::service::ranges::range_changes;
use archon_coordinator_core::{
    ClusterState, Command, Condition, DoorView, EventKind, ForcedElection, LeaderView, Liveness, LossPlan, NodeRow,
    Obstacle, RangeChange, RemovalPlan, Response as Answer, check_alter_node, check_drain, check_force_leader,
    check_lose_node, check_remove, disk_full, explain, refusal,
};
use archon_documents::{
    AlterNode, CheckNode, DescribePartition, Door, DrainCheck, ForceLeader, ForceLeaderCheck, ForcedLeader, ListNodes,
    LoseNode, LossCheck, NodeAltered, NodeCheck, NodeGain, NodeList, NodeLoss, NodeRemoved, NodeSet, NodeSummary,
    PartitionCopy, PartitionDescription, PartitionName, RemoveCheck, RemoveNode, SetNode,
};
use archon_types::{
    ErrorDetail, ErrorKind, Keys, Node, NodeGoal, NodeId, NodeStatus, Partition, PartitionId, ReplicaState,
};

answers! {
    ListNodes: nodes,
    CheckNode: checked_node,
    SetNode: set,
    AlterNode: alter_node_of,
    RemoveNode: remove,
    LoseNode: lose,
    DescribePartition: described,
    ForceLeader: force,
}

impl Admins {
    /// Returns every node.
    pub(in crate::service) async fn nodes(&self, _: ListNodes, call: &Call<'_>) -> Result<NodeList> {
        self.view_back(call, |session, state, remembered| {
            let nodes = shown_nodes(state).map(|row| node_summary(session, state, remembered, row));
            Ok(NodeList { nodes: nodes.collect(), table_version: state.table_version().get() })
        })
        .await
    }

    /// Returns the effect of draining, removing or losing a node.
    pub(super) async fn checked_node(&self, asked: CheckNode, call: &Call<'_>) -> Result<NodeCheck> {
        self.view_back(call, |session, state, remembered| {
            let id = node_of(state, &asked.node)?;
            let row = state.node(id).ok_or_else(|| no_node(&asked.node))?;
            Ok(NodeCheck {
                node: node_summary(session, state, remembered, row),
                drain: drain_check(state, id),
                remove: remove_check(check_remove(state, id)),
                lost: loss_check(check_lose_node(state, id)),
            })
        })
        .await
    }

    /// Sets the goal of a node; refuses a drain that cannot end.
    pub(in crate::service) async fn set(&self, asked: SetNode, call: &Call<'_>) -> Result<NodeSet> {
        let (name, goal) = (&asked.node, asked.goal()?);
        let decide = |state: &ClusterState, _: &Liveness| {
            let node = settable(state, name)?;
            match goal {
                NodeGoal::Drain => match check_drain(state, node) {
                    Ok(drain) => Ok(drain.command),
                    Err(obstacles) => Err(refusal(&obstacles)),
                },
                NodeGoal::Maintain => Err(ErrorDetail::new(
                    ErrorKind::InvalidArgument,
                    "maintenance is ordered with the time when it ends: `archon node maintain NAME --for TIME`",
                )),
                NodeGoal::Serve | NodeGoal::Cordon => Ok(Command::SetNode { node, goal, if_nodes: None }),
            }
        };
        let (session, _) = self.commit(call, decide).await?;
        session.quorum().replicated().read(|state| {
            let row = state.node(settable(state, name)?).ok_or_else(|| no_node(name))?;
            Ok(NodeSet { goal: row.node.goal.into() })
        })
    }

    /// Changes zone, weight or limit of a node.
    pub(super) async fn alter_node_of(&self, asked: AlterNode, call: &Call<'_>) -> Result<NodeAltered> {
        let AlterNode { node: name, change } = asked;
        let decide = |state: &ClusterState, _: &Liveness| {
            Ok(check_alter_node(state, settable(state, &name)?, &change)?.command.ok_or(()))
        };
        let changed = self.commit_unless(call, decide).await?.is_ok();
        self.view_back(call, |session, state, remembered| {
            let row = state.node(settable(state, &name)?).ok_or_else(|| no_node(&name))?;
            Ok(NodeAltered { node: node_summary(session, state, remembered, row), changed })
        })
        .await
    }

    /// Removes a node from the state.
    pub(in crate::service) async fn remove(&self, asked: RemoveNode, call: &Call<'_>) -> Result<NodeRemoved> {
        let decide = |state: &ClusterState, _: &Liveness| {
            let removal = check_remove(state, node_of(state, &asked.node)?).map_err(|obstacles| refusal(&obstacles))?;
            Ok(removal.command)
        };
        match self.commit(call, decide).await?.1 {
            Answer::NodeRemoved { placements } => Ok(NodeRemoved { copies_removed: placements }),
            other => Err(unexpected(&other)),
        }
    }

    /// Declares a node's data lost.
    pub(super) async fn lose(&self, asked: LoseNode, call: &Call<'_>) -> Result<NodeLoss> {
        let LoseNode { node: name, accept_data_loss } = asked;
        let decide = |state: &ClusterState, _: &Liveness| {
            let loss = check_lose_node(state, node_of(state, &name)?).map_err(|obstacles| refusal(&obstacles))?;
            if !accept_data_loss && !loss.last_copies.is_empty() {
                return Err(ErrorDetail::new(ErrorKind::DataLoss, last_copies_text(state, &name, &loss)));
            }
            Ok(loss.command)
        };
        match self.commit(call, decide).await?.1 {
            Answer::NodeLost { placements, counting, last_copies } => {
                Ok(NodeLoss { copies_lost: placements, counting_copies_lost: counting, last_copies_lost: last_copies })
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Returns a complete description of one partition.
    pub(super) async fn described(&self, asked: DescribePartition, call: &Call<'_>) -> Result<PartitionDescription> {
        let session = self.context().confirmed(call.within).await?;
        let term = session.term().lock();
        session.quorum().replicated().read(|state| {
            check_named(call.cluster(), state)?;
            describe(&session, state, term.liveness(), partition_of(state, &asked.partition)?)
        })
    }

    /// Forces one replica to lead, regardless of lost data.
    pub(in crate::service) async fn force(&self, asked: ForceLeader, call: &Call<'_>) -> Result<ForcedLeader> {
        let ForceLeader { partition: name, node, accept_data_loss } = asked;
        let decide = |state: &ClusterState, liveness: &Liveness| -> Result<Command> {
            let partition = partition_of(state, &name)?;
            let wanted = node.as_deref().map(|node| node_of(state, node)).transpose()?;
            let forced = check_force_leader(state, liveness, boot_now(), partition, wanted)
                .map_err(|obstacles| refusal(&obstacles))?;
            if !accept_data_loss {
                return Err(ErrorDetail::new(ErrorKind::DataLoss, forced_text(state, partition, &forced)));
            }
            Ok(forced.command)
        };
        let (session, answer) = self.commit(call, decide).await?;
        if !matches!(answer, Answer::Done { .. }) {
            return Err(unexpected(&answer));
        }
        session.quorum().replicated().read(|state| {
            let partition = partition_of(state, &name)?;
            let row = state.partition(partition).ok_or_else(|| no_partition(state, &name))?;
            let leader = row.leader_placement().map(|leader| leader.node);
            Ok(ForcedLeader {
                table_id: partition.table.get(),
                table: name.table.clone(),
                partition: partition.index,
                leader_id: leader.map(NodeId::get),
                leader: leader.map(|leader| state.node_name(leader)),
                epoch: row.epoch.get(),
            })
        })
    }
}

/// Returns the nodes to show: a lost one only until another node takes over its name.
pub(super) fn shown_nodes(state: &ClusterState) -> impl Iterator<Item = &NodeRow> {
    state.members().filter(|row| named_node(state, &row.node.name).is_some_and(|id| id == row.node.id))
}

/// Returns the node with this name; among lost nodes the last one, if no other took over the name. If no node has it,
/// it may be a node's number.
fn named_node(state: &ClusterState, name: &str) -> Option<NodeId> {
    let lost = || state.nodes.named(name).next_back();
    let numbered = || name.parse().ok().and_then(|number| state.node(NodeId::new(number)));
    state.node_by_name(name).or_else(lost).or_else(numbered).map(|row| row.node.id)
}

/// Returns a node with its holdings.
pub(super) fn node_summary(
    session: &Session,
    state: &ClusterState,
    remembered: &LeaderView,
    row: &NodeRow,
) -> NodeSummary {
    let id = row.node.id;
    let heartbeat = session.last_heartbeat(id);
    let loads = session.loads().lock();
    let Node { name, address, incarnation, status, goal, zone, weight, partitions_max, since, .. } = row.node.clone();
    NodeSummary {
        id: id.get(),
        name,
        address,
        status: status.into(),
        status_changed_at_ms: since.get(),
        goal: goal.into(),
        incarnation: incarnation.get(),
        copies_held: state.partitions.held_on(id),
        partitions_led: state.partitions.leaders_on(id),
        zone,
        weight,
        partitions_max,
        bytes_stored: loads.bytes_stored(id),
        keys_stored: loads.keys(id),
        operations_per_second: loads.operations_per_second(id),
        silent_for_ms: heartbeat.map(|heartbeat| boot_now().since(heartbeat.at)),
        door: remembered.door(&row.node).map(|view| door(state, view)),
        via: heartbeat.and_then(|heartbeat| heartbeat.via).map(|relay| state.node_name(relay)),
        disk_full: loads.disk_full(id).is_some(),
        stopped: row.node.status == NodeStatus::Failed && row.stopped,
        maintenance_ends_at_ms: remembered.maintenance_left_ms(state, id).map(|left_ms| wall_now().plus(left_ms).get()),
        bars: state.controls.bars().filter(|(member, ..)| *member == id).map(|bar| bars::bar(state, bar)).collect(),
        timing: Some(state.timing_of(id).into()),
        serves: row.participant.as_ref().map_or_else(Vec::new, |participant| participant.tables.clone()),
    }
}

fn door(state: &ClusterState, view: DoorView) -> Door {
    let DoorView { state: found, for_ms, by } = view;
    let shut_to = by.into_iter().map(|prober| state.node_name(prober)).collect();
    Door { state: found.into(), state_for_ms: for_ms, shut_to }
}

fn describe(
    session: &Session,
    state: &ClusterState,
    liveness: &Liveness,
    partition: PartitionId,
) -> Result<PartitionDescription> {
    let missing = || ErrorDetail::new(ErrorKind::NotFound, format!("partition {partition} does not exist"));
    let row = state.partition(partition).ok_or_else(missing)?;
    let table = state.tables.get(&partition.table).ok_or_else(missing)?;
    let loads = session.loads().lock();
    let copies = row.placements.iter().map(|placement| PartitionCopy {
        placement_id: placement.id.get(),
        node_id: placement.node.get(),
        node: state.node_name(placement.node),
        // A removed node is assumed to have lost its data.
        node_status: state.node(placement.node).map_or(NodeStatus::Lost, |node| node.node.status).into(),
        state: placement.state.into(),
        leads: row.leader == Some(placement.id) && placement.state == ReplicaState::Live,
        bytes_stored: loads.bytes(placement.node, placement.id),
    });
    let copies: Vec<PartitionCopy> = copies.collect();
    let leader = copies.iter().find(|copy| copy.leads);
    let remembered = LeaderView::new(state, liveness, boot_now());
    let explained = explain(state, &remembered, partition).unwrap_or_default();
    // Reasons for refused writes, or for a replica that does not become in sync, as only its own node knows them.
    let full = row.placements.iter().filter(|copy| copy.state != ReplicaState::Unload);
    let full = full.filter_map(|copy| disk_full(state, copy.node, loads.disk_full(copy.node)?));
    let reasons = full.chain(explained).map(Into::into).collect();
    let forced = check_force_leader(state, liveness, boot_now(), partition, None);
    let migration = state.running_migration(partition);
    Ok(PartitionDescription {
        table_id: table.id.get(),
        table: table.name.clone(),
        id: partition.index,
        epoch: row.epoch.get(),
        version: row.version.get(),
        status: row.status.into(),
        leader_id: leader.map(|copy| copy.node_id),
        leader: leader.map(|copy| copy.node.clone()),
        holds: table.holds.into(),
        replication: table.replication.into(),
        min_in_sync: row.min_in_sync.into(),
        range: table.keys.is_range().then(|| (&row.range).into()),
        copies,
        reasons,
        running_move: migration.map(|migration| rebalance::move_status(state, &loads, migration)),
        force_leader: forced_check(state, forced),
        bars: state.controls.bars_of(partition).map(|bar| bars::bar(state, bar)).collect(),
        reshaping: RangeChange::of(state, row)
            .map(|found| range_changes::RangeChangeSnapshot::new(state, found).summary(&loads)),
    })
}

fn drain_check(state: &ClusterState, node: NodeId) -> DrainCheck {
    match check_drain(state, node) {
        Ok(drain) => DrainCheck {
            obstacles: Vec::new(),
            leaderships_moved: drain.leaderships,
            copies_moved: drain.placements,
            gains: drain
                .gains
                .iter()
                .map(|(node, copies)| NodeGain {
                    node_id: node.get(),
                    node: state.node_name(*node),
                    copies_gained: *copies,
                })
                .collect(),
            zones_doubled: drain.zones_doubled,
        },
        Err(obstacles) => DrainCheck { obstacles: texts(Some(obstacles)), ..Default::default() },
    }
}

fn remove_check(judged: Result<RemovalPlan, Vec<Obstacle>>) -> RemoveCheck {
    match judged {
        Ok(removal) => RemoveCheck { obstacles: Vec::new(), copies_removed: removal.placements },
        Err(obstacles) => RemoveCheck { obstacles: texts(Some(obstacles)), ..Default::default() },
    }
}

fn loss_check(judged: Result<LossPlan, Vec<Obstacle>>) -> LossCheck {
    match judged {
        Ok(loss) => {
            let loss = NodeLoss {
                copies_lost: loss.placements,
                counting_copies_lost: loss.counting,
                last_copies_lost: u32::try_from(loss.last_copies.len()).unwrap_or(u32::MAX),
            };
            LossCheck { obstacles: Vec::new(), loss }
        }
        Err(obstacles) => LossCheck { obstacles: texts(Some(obstacles)), ..Default::default() },
    }
}

fn forced_check(state: &ClusterState, judged: Result<ForcedElection, Vec<Obstacle>>) -> ForceLeaderCheck {
    let names = |nodes: &[NodeId]| nodes.iter().map(|node| subjects::node_name(state, *node)).collect();
    match judged {
        Ok(forced) => ForceLeaderCheck {
            obstacles: Vec::new(),
            leader_id: forced.leader.map(NodeId::get),
            leader: forced.leader.map(|leader| state.node_name(leader)),
            condition: forced.condition.map(Into::into),
            lose_nothing: names(&forced.would_lose_nothing),
            lose_less: names(&forced.would_lose_less),
            could_be_named: names(&forced.could_be_named),
            retired: names(&forced.retired),
        },
        Err(obstacles) => ForceLeaderCheck { obstacles: texts(Some(obstacles)), ..Default::default() },
    }
}

fn texts(obstacles: Option<Vec<Obstacle>>) -> Vec<String> {
    obstacles.into_iter().flatten().map(|obstacle| obstacle.to_string()).collect()
}

/// Describes the data lost with a node.
fn last_copies_text(state: &ClusterState, name: &str, loss: &LossPlan) -> String {
    let mut named: Vec<String> =
        loss.last_copies.iter().take(NAMED_MAX).map(|id| state.partition_subject(*id).to_string()).collect();
    if loss.last_copies.len() > NAMED_MAX {
        named.push("…".to_owned());
    }
    format!(
        "{name} holds the last in-sync replica of {} partitions ({}): acknowledged writes would be lost with its data",
        loss.last_copies.len(),
        named.join(", ")
    )
}

/// Describes the cost of forcing a leader (PROTOCOL rule 23).
fn forced_text(state: &ClusterState, partition: PartitionId, forced: &ForcedElection) -> String {
    let names = |nodes: &[NodeId]| nodes.iter().map(|node| state.node_name(*node)).collect::<Vec<_>>().join(", ");
    let mut text = state.partition_subject(partition).to_string();
    match forced.leader {
        Some(leader) => {
            let what = match forced.condition.unwrap_or(Condition::Partial) {
                Condition::Whole => {
                    "which lacks every write acknowledged since it left the in-sync set; these writes are lost"
                }
                Condition::Older => {
                    "whose directory is an older or different copy of the node's own: an unknown amount of data is \
                     missing and lost"
                }
                Condition::Partial => "which was never in sync and holds an unknown part of the data; the rest is lost",
                Condition::Gone => {
                    "whose data is damaged, missing or was discarded to be copied again: little or nothing of it is \
                     left; the rest is lost"
                }
            };
            text.push_str(&format!(" would be led by the replica on {}, {what}", state.node_name(leader)));
        }
        None => text.push_str(" would start empty: all its data is lost"),
    }
    if !forced.retired.is_empty() {
        text.push_str(&format!(". The other replicas, on {}, are deleted", names(&forced.retired)));
    }
    if !forced.would_lose_nothing.is_empty() {
        let nodes = returning(state, &forced.would_lose_nothing);
        text.push_str(&format!(". Nothing is lost if {nodes} returns: start it first if possible"));
    }
    if !forced.would_lose_less.is_empty() {
        let nodes = returning(state, &forced.would_lose_less);
        text.push_str(&format!(". Less is lost if {nodes} returns and leads: start it first if possible"));
    }
    if !forced.could_be_named.is_empty() {
        let nodes = names(&forced.could_be_named);
        text.push_str(&format!(". The partial replicas on {nodes} can be used: name one with --node"));
    }
    text.push_str(
        ". Replicas cut off from the coordinators may acknowledge writes until they learn of this; these writes are \
         lost too",
    );
    text
}

/// Lists nodes to restart by name. If another directory has taken over the name, that process has to stop first.
fn returning(state: &ClusterState, nodes: &[NodeId]) -> String {
    let text = |node: &NodeId| {
        let name = state.node_name(*node);
        match named_node(state, &name) {
            Some(holder) if holder != *node => format!(
                "the former {name} (node {node}, whose name node {holder} uses now: stop that one and run `archon node \
                 remove {name}` first)"
            ),
            _ => name,
        }
    };
    nodes.iter().map(text).collect::<Vec<_>>().join(", ")
}

pub(super) fn node_of(state: &ClusterState, name: &str) -> Result<NodeId> {
    named_node(state, name).ok_or_else(|| no_node(name))
}

/// Returns a node that accepts goals: a lost one does not.
pub(super) fn settable(state: &ClusterState, name: &str) -> Result<NodeId> {
    let id = node_of(state, name)?;
    let there = state.node(id).is_some_and(|row| !row.is_lost());
    if there { Ok(id) } else { Err(no_node(name)) }
}

fn no_node(name: &str) -> ErrorDetail {
    ErrorDetail::new(ErrorKind::NotFound, format!("node {name:?} does not exist"))
}

pub(in crate::service) fn partition_of(state: &ClusterState, name: &PartitionName) -> Result<PartitionId> {
    let table = table_of(state, &name.table)?;
    let partition = PartitionId::new(table.id, name.partition);
    if state.partitions.get(partition).is_some() { Ok(partition) } else { Err(no_partition(state, name)) }
}

fn no_partition(state: &ClusterState, name: &PartitionName) -> ErrorDetail {
    let table = state.table_by_name(&name.table);
    let has = match table.map(|table| (table.id, table.keys)) {
        Some((_, Keys::Hash { partitions })) => format!("it has 0 to {}", partitions.saturating_sub(1)),
        Some((id, Keys::Range { next, .. })) if name.partition < next => {
            no_more(state, PartitionId::new(id, name.partition))
        }
        Some((_, Keys::Range { .. })) | None => format!("see `archon partition list --table {}`", name.table),
    };
    let message = format!("table {} has no partition {}; {has}", name.table, name.partition);
    ErrorDetail::new(ErrorKind::NotFound, message)
}

/// Returns the reason for which a number once used in a table by ranges is no longer a partition.
fn no_more(state: &ClusterState, partition: PartitionId) -> String {
    let makes = |row: &&Partition| row.split.as_ref().is_some_and(|split| split.right_of(row.id) == partition);
    if let Some(left) = state.partitions.splitting().find(makes) {
        let left = state.partition_name(left.id);
        return format!("it is being split off partition {left}, and there once that is done");
    }
    let told = state.events.iter().rev().find_map(|event| match &event.what {
        EventKind::SplitAbandoned { partition: left, right, .. } if *right == partition => {
            Some(format!("the split of partition {} that was to create it was abandoned", state.partition_name(*left)))
        }
        EventKind::Merged { partition: left, right, .. } if *right == partition => {
            Some(format!("it has been merged with its left neighbour, {}", state.partition_name(*left)))
        }
        _ => None,
    });
    // The event may be too old to be kept.
    told.unwrap_or_else(|| {
        "it was merged with its left neighbour, or the split that was to create it was abandoned".to_owned()
    })
}
