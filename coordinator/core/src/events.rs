//! What happened, who caused it and when: a bounded ring in the state, as data.

use crate::command::Actor;
use crate::controls::Bar;
use crate::coordinators::Wish;
use crate::migration::MigrationId;
use archon_types::{
    Epoch, Incarnation, Millis, NodeGoal, NodeId, NodeTraits, Outgrown, PartitionId, PlacementId, Right, Seq,
    SettingStep, TableId, TableTraits, Version,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// One thing that happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// When, on the proposer's wall clock.
    pub at: Millis,
    /// The log index that made it so.
    pub index: u64,
    /// Who caused it.
    pub who: Actor,
    /// What it was, with its subject.
    pub what: EventKind,
}

/// What can happen.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[allow(missing_docs)] // The fields are named after the types they hold, which are documented.
pub enum EventKind {
    /// The cluster came into being.
    Bootstrapped,
    /// A node that was never seen before registered.
    NodeRegistered { node: NodeId, name: String, incarnation: Incarnation },
    /// A known node registered again.
    NodeReturned { node: NodeId, name: String, incarnation: Incarnation },
    /// A node was silent too long, or stopped.
    NodeFailed { node: NodeId, incarnation: Incarnation, leaderships: u32, handed_on: u32 },
    /// Clients have not reached a live node for so long, in milliseconds, as others find that knock at its door.
    NodeUnreached { node: NodeId, by: Vec<NodeId>, since_ms: u64 },
    /// Clients reach it again, after so long.
    NodeReached { node: NodeId, after_ms: u64 },
    /// A node's data is gone: another data directory took over its name.
    NodeLost { node: NodeId, by: NodeId },
    /// An operator declared that a failed node's data is lost. `placements`: copies that counted. `last_copies`: partitions that lost their last copy by it.
    NodeDeclaredLost { node: NodeId, placements: u32, last_copies: u32 },
    /// An operator had a node forgotten, and with it that many copies that did not count.
    NodeRemoved { node: NodeId, name: String, placements: u32 },
    /// A node is being emptied.
    NodeDraining { node: NodeId, placements: u32 },
    /// A node that was being emptied holds nothing any more.
    NodeDrained { node: NodeId },
    /// A node found its copy damaged; it does not count any more.
    CopyDamaged { partition: PartitionId, placement: PlacementId, node: NodeId, why: String },
    /// A copy knows entries up to `commit` as committed that its leader of `epoch`, copy `leader` on `leader_node`, does not
    /// have; they agree up to `agreed` at most. One of the two lost data.
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
    /// A copy knew epoch `known` of a partition, while the row was in `granted`: a stray or old node, or coordinators that were
    /// set back. The next leadership lies above both.
    EpochSurpassed { partition: PartitionId, granted: Epoch, known: Epoch },
    /// A copy that counted does not count any more: its data is gone, or is not what the node last stored.
    ReplicaLost { partition: PartitionId, placement: PlacementId, node: NodeId, why: String },
    /// A new copy is being loaded in place of one that is missing, failed or to go.
    RepairStarted { partition: PartitionId, placement: PlacementId, node: NodeId, why: String },
    /// A copy that was loaded for a repair counts now.
    RepairDone { partition: PartitionId, placement: PlacementId, node: NodeId },
    /// A copy that is not needed any more is to be deleted.
    CopyRetired { partition: PartitionId, placement: PlacementId, node: NodeId, why: String },
    /// The operator wants something else of a node.
    GoalChanged { node: NodeId, goal: NodeGoal },
    /// An operator gave a node another zone, weight or limit.
    NodeAltered { node: NodeId, before: NodeTraits, after: NodeTraits },
    /// An operator wants the leadership of that epoch renewed.
    LeadershipBumped { partition: PartitionId, epoch: Epoch, why: String },
    /// An operator barred a member from partitions.
    MemberBarred { member: NodeId, bar: Bar, why: String },
    /// An operator took a bar back.
    BarLifted { member: NodeId, bar: Bar },
    /// An operator took a partition offline.
    PartitionOffline { partition: PartitionId, why: String },
    /// An operator brought a partition back.
    PartitionOnline { partition: PartitionId },
    /// A member is being worked on until then at most, on the wall clock.
    MaintenanceBegun { member: NodeId, until: Millis, why: String },
    /// The maintenance of a member is over.
    MaintenanceOver { member: NodeId },
    /// A table was made.
    TableCreated { table: TableId, name: String },
    /// An operator wants another number of copies of each partition of a table, or that these are split and merged by other limits.
    TableAltered { table: TableId, name: String, before: TableTraits, after: TableTraits },
    /// An operator had a table dropped, with everything in it: `copies` are to be deleted, `moves` lost their point.
    TableDropped { table: TableId, name: String, partitions: u32, copies: u32, moves: u32 },
    /// A partition is being split: its keys from `at` on are to be those of `right`. By itself, if it was above a limit of its table.
    SplitBegun { partition: PartitionId, right: PartitionId, at: Bytes, outgrown: Option<Outgrown> },
    /// The copies of `right` have the keys, which are given up now.
    SplitCut { partition: PartitionId, right: PartitionId },
    /// A split is done: `right` has the keys from `at` on.
    Parted { partition: PartitionId, right: PartitionId, at: Bytes, leader: NodeId },
    /// A split was given up: the partition keeps its keys.
    SplitAbandoned { partition: PartitionId, right: PartitionId, why: String },
    /// A partition is to have the keys of `right`, its neighbour. By themselves, if they hold together so few bytes.
    MergeBegun { partition: PartitionId, right: PartitionId, undersized_bytes: Option<u64> },
    /// A merge is done: the partition has the keys of `right`, from `at` on, and that one is none any more.
    Merged { partition: PartitionId, right: PartitionId, at: Bytes },
    /// A merge was given up: both partitions keep their keys.
    MergeAbandoned { partition: PartitionId, right: PartitionId, why: String },
    /// An operator changed settings of the cluster.
    SettingsChanged { changes: Vec<SettingStep> },
    /// An operator granted a right to clients, or took one back: to one or all of them, for one or all tables.
    AccessChanged {
        client: Option<String>,
        table: Option<(TableId, String)>,
        before: Option<Right>,
        after: Option<Right>,
    },
    /// Certificates of an identity that begin before `after` count no more; before, it was `before`. `None`: all count.
    CertificatesWithdrawn { identity: String, before: Option<Millis>, after: Option<Millis> },
    /// The quorum is being changed.
    QuorumChangeBegun { wish: Wish },
    /// The quorum was changed; its voters are these.
    QuorumChanged { wish: Wish, voters: BTreeSet<u64> },
    /// An operator does not want the change of the quorum any more.
    QuorumChangeCancelled { wish: Wish },
    /// The coordinators' state was taken from less than a majority, as of entry `base` of the log.
    RecoveryBegun { generation: u64, base: Version },
    /// What nodes told is taken for true from now on; `behind`: changes were lost that some of them had been told of.
    RecoverySettled { generation: u64, behind: bool },
    /// Every member speaks this protocol: what older versions cannot read is written from now on.
    ProtocolRaised { before: u32, after: u32 },
    /// An operator wants the protocol to stay as it is, or to rise by itself again.
    ProtocolHeld { held: bool },
    /// A plan is being carried out.
    PlanStarted { moves: u32 },
    /// The operator wants the running plan undone.
    PlanCancelled { moves_left: u32 },
    /// A move is over.
    MigrationOver { migration: MigrationId, partition: PartitionId, outcome: String },
    /// An operator accepted that acknowledged writes of a partition are lost: `leader` leads with what it holds, or the
    /// partition begins empty; `retired` other copies are to be deleted.
    DataLossAccepted { partition: PartitionId, leader: Option<NodeId>, retired: u32 },
}
