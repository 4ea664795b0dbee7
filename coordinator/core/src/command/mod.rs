//! State changes: guarded facts, decided once by the leading coordinator, carried by the log and applied equally by
//! all. "Log effects, not intents": applying never decides.
//!
//! Operators' verbs, the pure check of each that computes feasibility and effect in advance, and the committed command:
//!
//! | verb | check | command | allowed when | then |
//! |---|---|---|---|---|
//! | cordon | – | `SetNode {Cordon}` | always | no new copies, no leadership that another node can take; keeps what it has |
//! | uncordon, undrain | – | `SetNode {Serve}` | always | takes copies again; surplus copies of a drain are unloaded |
//! | zone, weight, limit of a node | [`crate::check_alter_node`] | `AlterNode` with `if_version` | always | plans, first assignments and repair use them; copies stay where they are until a plan moves them |
//! | drain | [`crate::check_drain`] | `SetNode {Drain}` with `if_nodes` | its copies fit elsewhere | leaderships go first, then every copy is replaced (`placement::repair`) |
//! | remove | [`crate::check_remove`] | `RemoveNode` | not alive, holds no in-sync copy | the node is forgotten |
//! | lost | [`crate::check_lose_node`] | `NodeLost` | failed | its copies leave the Live sets; they are replaced at once |
//! | copies of a table | [`crate::check_alter_table`] | `AlterTable` with `if_version` | there are nodes enough | repair makes or retires copies; a partition's `min_in_sync` rises once all of its copies are in sync, and falls at once |
//! | limits of automatic splits | the same | the same | the table is by ranges | leaders watch, and report partitions above a limit (`automatic_splits`) |
//! | drop a table | – | `DropTable` | always | the table and its rows are removed; every node deletes its copies (`state::condemned`) |
//! | change settings | [`crate::check_configure`] | `Configure` with `if_version` | they fit each other, and none of them is [fixed](archon_types::Setting::fixed) | the next turn uses them; nodes get them with the next heartbeat answer |
//! | rights of clients | [`crate::check_access`] | `SetAccess` with `before` | the table exists | nodes apply them from their next push on |
//! | revoke certificates | [`crate::check_withdrawal`] | `Withdraw` with `before` | – | coordinators apply it at once, nodes from their next push on |
//! | bump, bar, offline, maintenance | [`crate::check_order`] | `Control` with `if_controls` | see `state::controls` | the same |
//! | – | – | `RecordMaintenance` | that order stands | the next leader continues its remaining time from there (`state::controls`) |
//! | change the quorum | [`crate::check_quorum_change`], [`crate::check_join`] | `ChangeQuorum` with `if_version` | a majority of the remaining voters answers | the leader carries it out in Raft step by step ([`crate::next_step`]) |
//! | raise the protocol | [`crate::check_raise`] | `RaiseProtocol` | every member speaks it | forms that older versions cannot read are written from then on (`quorum::upgrade`) |
//! | note a door | – | `NoteDoor` | that incarnation goes on | an event (`doors`) |
//! | compare the states | – | `CheckState` | – | nothing changes; each coordinator computes the checksum of its state as of then ([`crate::StateChecksum`]) |
//! | hold the protocol | – | `HoldProtocol` | the cluster speaks protocol 2 | it rises only when an operator orders it |
//! | – | [`crate::Takeover`], [`crate::check_take_over`] | `TakeOver` | no former coordinator works | the recovery takes members; former coordinators end (`quorum::recovery`) |
//! | continue after a recovery | [`crate::check_settle`] | `AcceptRecovery` | every node that is not lost reported its copies | the next turn settles it (`quorum::recovery`) |
//! | force-leader | [`crate::check_force_leader`] | `AcceptLoss` | no in-sync copy is on a node that is alive | one copy leads, or the partition begins empty; all others retire |

pub(crate) mod apply;
pub(crate) mod edit;
pub(crate) mod refusals;

use crate::command::edit::PartitionChange;
use crate::state::actor::Actor;
use crate::state::controls::Order;
use crate::state::coordinators::Wish;
use crate::state::events::DoorNews;
use crate::state::migration::{MigrationId, MoveKind, Stage};
use crate::state::protocols::{CHECKED_SINCE, HELD_SINCE, MAINTENANCE_RECORDED_SINCE, TAKEOVER_SINCE, WITHDRAWN_SINCE};
use crate::state::recovery::FrozenReplica;
use archon_types::{
    ClusterId, DOORS_SINCE, Incarnation, Millis, NodeGoal, NodeId, NodeTraits, OWN_SINCE, PROTOCOL_FIRST, PartitionId,
    Partitioning, PlacementId, Register, RequestId, Right, Scope, SettingChange, Settings, TableContent, TableId,
    TableTraits, Version,
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// One log entry: commands that one proposer decided at once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CommandBatch {
    /// Id of the request; repeating it returns the first answer and changes nothing.
    pub request: Option<RequestId>,
    /// The proposer's wall clock.
    pub at: Millis,
    /// Originator.
    pub who: Actor,
    /// The coordinator that decided.
    pub proposer: u64,
    /// The term in which it decided. An entry of another term is void: see [`crate::skip`].
    pub term: u64,
    /// The commands, applied in order, each under its own guard.
    pub commands: Vec<Command>,
}

impl fmt::Display for CommandBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "batch of coordinator {} in term {}:", self.proposer, self.term)?;
        for command in &self.commands {
            write!(f, " {}", command.name())?;
        }
        Ok(())
    }
}

/// One guarded change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Command {
    /// Creates the cluster, once, with its `default` table.
    Bootstrap {
        /// Id of the cluster.
        cluster: ClusterId,
        /// Its settings, checked.
        settings: Settings,
    },
    /// Starts a new incarnation of a node (PROTOCOL rules 8 and 19).
    Register(Box<Register>),
    /// The node stored its incarnation durably and may act in it.
    Activate {
        /// The node.
        node: NodeId,
        /// Its present incarnation.
        incarnation: Incarnation,
    },
    /// Fences this incarnation of the node; its leases and leaderships end and successors are named at once.
    NodeFailed {
        /// The node.
        node: NodeId,
        /// The fenced incarnation.
        incarnation: Incarnation,
        /// Next leaders of partitions with another Live replica. A successor with a failed guard is skipped, the rest
        /// is applied.
        successors: Vec<Successor>,
    },
    /// Sets an operator's goal for a node: serve, cordon, drain. Checked for feasibility by [`crate::check_drain`]
    /// beforehand.
    SetNode {
        /// The node.
        node: NodeId,
        /// The goal.
        goal: NodeGoal,
        /// The version of the newest node row on which the check rests; the command is void once that changed, so that
        /// two drains that are feasible alone cannot both pass. `None`: independent of other nodes.
        if_nodes: Option<Version>,
    },
    /// Sets a node's zone, weight and limit, overriding its registration. Checked by [`crate::check_alter_node`].
    AlterNode {
        /// The node.
        node: NodeId,
        /// The version of its row when the operator decided.
        if_version: Version,
        /// The new traits.
        traits: NodeTraits,
    },
    /// Declares the data of a failed node lost, by an operator: its copies leave their Live sets (PROTOCOL rule 2).
    NodeLost {
        /// The node.
        node: NodeId,
        /// The version of its row when the operator decided.
        if_version: Version,
    },
    /// Forgets a node that is not alive and holds no in-sync copy.
    RemoveNode {
        /// The node.
        node: NodeId,
        /// The version of its row when the operator decided.
        if_version: Version,
    },
    /// Creates a table.
    CreateTable {
        /// Its name, unique.
        name: String,
        /// Its first partitions.
        partitioning: Partitioning,
        /// Copies of each partition, `1..=7`; 1 for leases.
        replication: u8,
        /// Content of its partitions.
        holds: TableContent,
    },
    /// Sets the number of copies of each partition of a table and its split limits. Checked by
    /// [`crate::check_alter_table`].
    AlterTable {
        /// The table.
        table: TableId,
        /// The version of its row when the operator decided.
        if_version: Version,
        /// The new traits.
        traits: TableTraits,
    },
    /// Drops a table with all its data. It is identified by number: another table may have taken the name.
    DropTable {
        /// The table.
        table: TableId,
    },
    /// Records that a node deleted its copy of a dropped table.
    Deleted {
        /// The node.
        node: NodeId,
        /// The copy.
        placement: PlacementId,
    },
    /// Changes rows: all of them, or none if one guard fails.
    Change(Vec<PartitionChange>),
    /// Carries out a plan, unless the table changed or another plan runs.
    StartPlan {
        /// The version for which it was made.
        table_version: Version,
        /// The version of the moves' records for which it was made.
        moves_version: Version,
        /// Its moves.
        moves: Vec<PlannedMove>,
    },
    /// Sets a migration's next stage, together with the change of the row.
    SetMigration {
        /// The migration.
        migration: MigrationId,
        /// Its new stage.
        stage: Stage,
        /// The change to its partition's row, if there is one.
        change: Option<PartitionChange>,
    },
    /// Cancels the running plan, as far as leadership has not moved.
    CancelPlan,
    /// Changes settings of the cluster. Checked by [`crate::check_configure`] beforehand; settings on which leases rest
    /// do not change (PROTOCOL rule 16).
    Configure {
        /// The version of the settings on which the check rests.
        if_version: Version,
        /// The changes, each setting once.
        changes: Vec<SettingChange>,
    },
    /// Grants a right to clients, or revokes one. Checked by [`crate::check_access`].
    SetAccess {
        /// Clients and tables of the right.
        scope: Scope,
        /// The right granted for exactly this scope when the operator decided.
        before: Option<Right>,
        /// The new right.
        after: Option<Right>,
        /// The limit of weight of that right when the operator decided. Limits belong to [`Right::Own`], and are
        /// omitted while absent, because the first protocol does not know them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        weight_before: Option<u32>,
        /// The new limit of weight.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        weight_max: Option<u32>,
    },
    /// Revokes certificates of an identity, or restores them. Checked by [`crate::check_withdrawal`].
    Withdraw {
        /// The identity: `admin/alice`.
        identity: String,
        /// The revocation when the operator decided: certificates that begin before it are revoked.
        before: Option<Millis>,
        /// The new revocation.
        after: Option<Millis>,
    },
    /// An operator's order about a partition or a member. Checked by [`crate::check_order`].
    Control {
        /// The version of all orders on which the check rests.
        if_controls: Version,
        /// The order.
        order: Order,
        /// The operator's reason; may be empty.
        why: String,
    },
    /// Records the remaining time of a maintenance, so that the next leading coordinator continues from there.
    RecordMaintenance {
        /// The member.
        member: NodeId,
        /// The end of the order. A record for another order is refused.
        until: Millis,
        /// Remaining milliseconds.
        left_ms: u64,
    },
    /// Records where the log of a copy ends, as its node reported during a recovery.
    Inspected {
        /// The node.
        node: NodeId,
        /// Its present incarnation.
        incarnation: Incarnation,
        /// The copy.
        placement: PlacementId,
        /// Its reported standing.
        standing: FrozenReplica,
    },
    /// Raises the protocol of the cluster: every member speaks it. Checked by [`crate::check_raise`].
    RaiseProtocol {
        /// The new protocol.
        to: u32,
    },
    /// Holds the protocol by an operator's order, or lets it rise automatically again.
    HoldProtocol {
        /// True to hold it.
        held: bool,
    },
    /// Records as an event that clients do not reach a node, or reach it again, as the leading coordinator found.
    NoteDoor(DoorNews),
    /// Makes each coordinator compute the checksum of its state as of this entry, for comparison. Nothing changes.
    CheckState,
    /// Accepts possible data loss of the recovery, by an operator.
    AcceptRecovery,
    /// A coordinator of a generation before the recovery works with a majority. It is remembered, so that a later leader waits as long.
    NoteFormerQuorum,
    /// No coordinator of a generation before the recovery works: this one takes its place.
    TakeOver,
    /// Ends the recovery: accepts the reports of the nodes, and partitions continue from them.
    SettleRecovery,
    /// Starts a change of the quorum. Checked by [`crate::check_quorum_change`] or [`crate::check_join`].
    ChangeQuorum {
        /// The version of [`crate::Coordinators`] on which the check rests.
        if_version: Version,
        /// The change.
        wish: Wish,
    },
    /// Ends the pending change of the quorum: it took effect or was cancelled.
    EndQuorumChange {
        /// The version of [`crate::Coordinators`] on which the check rests.
        if_version: Version,
        /// True if it took effect; else it is undone as far as it has not come.
        done: bool,
    },
    /// Accepts by an operator that acknowledged writes of a partition are lost (PROTOCOL rule 23): one copy becomes its
    /// leader, or it starts empty, and all other copies retire in the same commit.
    AcceptLoss {
        /// The partition.
        partition: PartitionId,
        /// The row's version when the operator decided.
        if_version: Version,
        /// The outcome.
        outcome: LossOutcome,
    },
}

impl Command {
    /// Returns the first protocol with this command, which is not written before the cluster speaks that protocol
    /// (PROTOCOL rule 64). The command that raises the protocol is written one step earlier, when every member can read
    /// it.
    pub fn since(&self) -> u32 {
        match self {
            Self::Bootstrap { .. }
            | Self::Register(_)
            | Self::Activate { .. }
            | Self::NodeFailed { .. }
            | Self::SetNode { .. }
            | Self::AlterNode { .. }
            | Self::NodeLost { .. }
            | Self::RemoveNode { .. }
            | Self::CreateTable { .. }
            | Self::AlterTable { .. }
            | Self::DropTable { .. }
            | Self::Deleted { .. }
            | Self::Change(_)
            | Self::StartPlan { .. }
            | Self::SetMigration { .. }
            | Self::CancelPlan
            | Self::Control { .. }
            | Self::ChangeQuorum { .. }
            | Self::Inspected { .. }
            | Self::AcceptRecovery
            | Self::SettleRecovery
            | Self::EndQuorumChange { .. }
            | Self::AcceptLoss { .. }
            | Self::RaiseProtocol { .. } => PROTOCOL_FIRST,
            Self::Configure { changes, .. } => {
                changes.iter().map(|change| change.setting.since()).max().unwrap_or(PROTOCOL_FIRST)
            }
            Self::SetAccess { after: Some(Right::Own), .. } => OWN_SINCE,
            Self::SetAccess { .. } => PROTOCOL_FIRST,
            Self::HoldProtocol { .. } => HELD_SINCE,
            Self::RecordMaintenance { .. } => MAINTENANCE_RECORDED_SINCE,
            Self::NoteFormerQuorum | Self::TakeOver => TAKEOVER_SINCE,
            Self::NoteDoor(_) => DOORS_SINCE,
            Self::CheckState => CHECKED_SINCE,
            Self::Withdraw { .. } => WITHDRAWN_SINCE,
        }
    }

    /// Returns its name, for logs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Bootstrap { .. } => "Bootstrap",
            Self::Register(_) => "Register",
            Self::Activate { .. } => "Activate",
            Self::NodeFailed { .. } => "NodeFailed",
            Self::SetNode { .. } => "SetNode",
            Self::AlterNode { .. } => "AlterNode",
            Self::NodeLost { .. } => "NodeLost",
            Self::RemoveNode { .. } => "RemoveNode",
            Self::CreateTable { .. } => "CreateTable",
            Self::AlterTable { .. } => "AlterTable",
            Self::DropTable { .. } => "DropTable",
            Self::Deleted { .. } => "Deleted",
            Self::Change(_) => "Change",
            Self::StartPlan { .. } => "StartPlan",
            Self::SetMigration { .. } => "SetMigration",
            Self::CancelPlan => "CancelPlan",
            Self::Configure { .. } => "Configure",
            Self::SetAccess { .. } => "SetAccess",
            Self::Withdraw { .. } => "Withdraw",
            Self::Control { .. } => "Control",
            Self::RecordMaintenance { .. } => "RecordMaintenance",
            Self::ChangeQuorum { .. } => "ChangeQuorum",
            Self::Inspected { .. } => "Inspected",
            Self::RaiseProtocol { .. } => "RaiseProtocol",
            Self::HoldProtocol { .. } => "HoldProtocol",
            Self::NoteDoor(_) => "NoteDoor",
            Self::CheckState => "CheckState",
            Self::AcceptRecovery => "AcceptRecovery",
            Self::NoteFormerQuorum => "NoteFormerQuorum",
            Self::TakeOver => "TakeOver",
            Self::SettleRecovery => "SettleRecovery",
            Self::EndQuorumChange { .. } => "EndQuorumChange",
            Self::AcceptLoss { .. } => "AcceptLoss",
        }
    }
}

/// Outcome for a partition with accepted loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LossOutcome {
    /// This copy, Live or Load, leads with the data that it holds.
    Lead {
        /// The copy.
        placement: PlacementId,
        /// The incarnation of its node.
        incarnation: Incarnation,
    },
    /// No copy is left: the partition is assigned again.
    Empty,
}

/// Next leader of a partition after a node failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Successor {
    /// The partition.
    pub partition: PartitionId,
    /// The row's version on which the choice rests.
    pub if_version: Version,
    /// The Live copy that leads next.
    pub placement: PlacementId,
    /// The incarnation of its node.
    pub incarnation: Incarnation,
}

/// One move of a plan in the log. This is a disk format: the displayed move ([`archon_types::plan::Move`]) is a
/// separate type, and the reason ([`crate::MoveReason`]) is stored as a sentence.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PlannedMove {
    /// Kind of move.
    pub kind: MoveKind,
    /// The partition.
    pub partition: PartitionId,
    /// The copy to remove. For a leadership: the copy that leads when the plan is made; only its node matters.
    pub placement: PlacementId,
    /// Its node, or its node after the plan's earlier moves of this partition.
    pub from: NodeId,
    /// The node that gets the copy or the leadership.
    pub to: NodeId,
    /// Reason, for people.
    pub reason: String,
    /// Estimated bytes to copy.
    pub bytes: u64,
}
