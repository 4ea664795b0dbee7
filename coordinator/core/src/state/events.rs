//! Events with originator and time: a bounded ring in the state, as data.

use crate::state::actor::Actor;
use crate::state::controls::Bar;
use crate::state::coordinators::Wish;
use crate::state::migration::MigrationId;
use archon_types::{
    Epoch, ExceededLimit, Incarnation, Millis, NodeGoal, NodeId, NodeTraits, PartitionId, PlacementId, Right, Seq,
    SettingStep, TableId, TableTraits, Version,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// One event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// Time, on the proposer's wall clock.
    pub at: Millis,
    /// The log index that caused it.
    pub index: u64,
    /// Originator.
    pub who: Actor,
    /// Kind and subject.
    pub what: EventKind,
}

/// Kinds of events.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[allow(missing_docs)] // The fields are named after the types they hold, which are documented.
pub enum EventKind {
    /// The cluster was created.
    Bootstrapped,
    /// A new node registered.
    NodeRegistered { node: NodeId, name: String, incarnation: Incarnation },
    /// A known node registered again.
    NodeReturned { node: NodeId, name: String, incarnation: Incarnation },
    /// A node was silent for too long, or stopped.
    NodeFailed { node: NodeId, incarnation: Incarnation, leaderships: u32, handed_on: u32 },
    /// Clients could not reach a live node for this time, in milliseconds, as the listed keepers found.
    NodeUnreached { node: NodeId, by: Vec<NodeId>, since_ms: u64 },
    /// Clients reach it again, after this time in milliseconds.
    NodeReached { node: NodeId, after_ms: u64 },
    /// A node's data is gone: another data directory took over its name.
    NodeLost { node: NodeId, by: NodeId },
    /// An operator declared a failed node's data lost. `placements`: in-sync copies. `last_copies`: partitions that
    /// lost their last copy by it.
    NodeDeclaredLost { node: NodeId, placements: u32, last_copies: u32 },
    /// An operator removed a node, and with it that many out-of-sync copies.
    NodeRemoved { node: NodeId, name: String, placements: u32 },
    /// A node is being drained.
    NodeDraining { node: NodeId, placements: u32 },
    /// A drained node holds no copy any longer.
    NodeDrained { node: NodeId },
    /// A node found its copy damaged; it is out of sync.
    CopyDamaged { partition: PartitionId, placement: PlacementId, node: NodeId, why: String },
    /// A copy knows entries up to `commit` as committed that its leader of `epoch`, copy `leader` on `leader_node`,
    /// lacks; they agree at most up to `agreed`. One of the two lost data.
    DataDisputed {
        partition: PartitionId,
        placement: PlacementId,
        node: NodeId,
        epoch: Epoch,
        leader: PlacementId,
        leader_node: Option<NodeId>,
        commit: Seq,
        agreed: Seq,
    },
    /// A copy knew epoch `known` of a partition, while the row was in `granted`: a stray or old node, or coordinators
    /// that were set back. The next leadership lies above both.
    EpochSurpassed { partition: PartitionId, granted: Epoch, known: Epoch },
    /// A copy left sync: its data is gone, or is not the state that the node last stored.
    ReplicaLost { partition: PartitionId, placement: PlacementId, node: NodeId, why: String },
    /// A new copy is being loaded in place of one that is missing, failed or to go.
    RepairStarted { partition: PartitionId, placement: PlacementId, node: NodeId, why: String },
    /// A copy that was loaded for a repair is in sync.
    RepairDone { partition: PartitionId, placement: PlacementId, node: NodeId },
    /// A copy that is no longer needed is to be deleted.
    CopyRetired { partition: PartitionId, placement: PlacementId, node: NodeId, why: String },
    /// An operator changed the goal of a node.
    GoalChanged { node: NodeId, goal: NodeGoal },
    /// An operator gave a node another zone, weight or limit.
    NodeAltered { node: NodeId, before: NodeTraits, after: NodeTraits },
    /// An operator ordered a renewal of the leadership of that epoch.
    LeadershipBumped { partition: PartitionId, epoch: Epoch, why: String },
    /// An operator barred a member from partitions.
    MemberBarred { member: NodeId, bar: Bar, why: String },
    /// An operator lifted a bar.
    BarLifted { member: NodeId, bar: Bar },
    /// An operator took a partition offline.
    PartitionOffline { partition: PartitionId, why: String },
    /// An operator brought a partition online.
    PartitionOnline { partition: PartitionId },
    /// A member is in maintenance until then at most, on the wall clock.
    MaintenanceBegun { member: NodeId, until: Millis, why: String },
    /// The maintenance of a member ended.
    MaintenanceOver { member: NodeId },
    /// A table was created.
    TableCreated { table: TableId, name: String },
    /// An operator changed the replication or the split and merge limits of a table.
    TableAltered { table: TableId, name: String, before: TableTraits, after: TableTraits },
    /// An operator dropped a table with all its data: `copies` are to be deleted, `moves` were superseded.
    TableDropped { table: TableId, name: String, partitions: u32, copies: u32, moves: u32 },
    /// A split began: the keys from `at` on move to `right`. Automatic if `outgrown` names an exceeded limit of the
    /// table.
    SplitBegun { partition: PartitionId, right: PartitionId, at: Bytes, outgrown: Option<ExceededLimit> },
    /// The copies of `right` have the keys, and the leader gives them up.
    SplitCut { partition: PartitionId, right: PartitionId },
    /// A split completed: `right` has the keys from `at` on.
    Parted { partition: PartitionId, right: PartitionId, at: Bytes, leader: NodeId },
    /// A split was abandoned: the partition keeps its keys.
    SplitAbandoned { partition: PartitionId, right: PartitionId, why: String },
    /// A merge began: the partition takes over the keys of `right`, its neighbour. Automatic if the bytes of both are
    /// given.
    MergeBegun { partition: PartitionId, right: PartitionId, undersized_bytes: Option<u64> },
    /// A merge completed: the partition has the keys of `right`, from `at` on, and `right` was removed.
    Merged { partition: PartitionId, right: PartitionId, at: Bytes },
    /// A merge was abandoned: both partitions keep their keys.
    MergeAbandoned { partition: PartitionId, right: PartitionId, why: String },
    /// An operator changed settings of the cluster.
    SettingsChanged { changes: Vec<SettingStep> },
    /// An operator granted or revoked a right: of one or all clients, for one or all tables. A right to own may have a
    /// limit of weight.
    AccessChanged {
        client: Option<String>,
        table: Option<(TableId, String)>,
        before: Option<Right>,
        after: Option<Right>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        weight_max: Option<u32>,
    },
    /// Certificates of an identity that begin before `after` are revoked; previously `before` applied. `None`: all are
    /// valid.
    CertificatesWithdrawn { identity: String, before: Option<Millis>, after: Option<Millis> },
    /// The quorum is being changed.
    QuorumChangeBegun { wish: Wish },
    /// The quorum was changed; its voters are these.
    QuorumChanged { wish: Wish, voters: BTreeSet<u64> },
    /// An operator cancelled the change of the quorum.
    QuorumChangeCancelled { wish: Wish },
    /// The coordinators' state was recovered from less than a majority, as of entry `base` of the log.
    RecoveryBegun { generation: u64, base: Version },
    /// The recovery takes the place of the former coordinators, which end. `ordered`: an operator ordered it although
    /// they had been working beside it.
    RecoveryTookOver { generation: u64, ordered: bool },
    /// The recovery ended with the reports of the nodes; `behind`: changes known to some nodes were lost.
    RecoverySettled { generation: u64, behind: bool },
    /// Every member speaks this protocol: forms that older versions cannot read are written from now on.
    ProtocolRaised { before: u32, after: u32 },
    /// An operator holds the protocol, or lets it rise automatically again.
    ProtocolHeld { held: bool },
    /// A plan is being carried out.
    PlanStarted { moves: u32 },
    /// An operator cancelled the running plan.
    PlanCancelled { moves_left: u32 },
    /// A move ended.
    MigrationOver { migration: MigrationId, partition: PartitionId, outcome: String },
    /// An operator accepted that acknowledged writes of a partition are lost: `leader` leads with the data that it
    /// holds, or the partition begins empty; `retired` other copies are to be deleted.
    DataLossAccepted { partition: PartitionId, leader: Option<NodeId>, retired: u32 },
}

/// Beginning or end of a verdict on a node. It is recorded as an event only; no decision is based on the event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DoorNews {
    /// The node.
    pub node: NodeId,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The keepers that find its door shut; empty: it is open again.
    pub by: Vec<NodeId>,
    /// Time for which it is or was shut, in milliseconds.
    pub shut_for_ms: u64,
}
