//! What may change: facts under guards, decided once by the coordinator that leads, carried by the log and applied by
//! every one alike. "Log effects, not intents": applying never decides.
//!
//! What an operator can do, the pure check that says beforehand whether and with what effect, and what is committed:
//!
//! | verb | check | command | allowed when | then |
//! |---|---|---|---|---|
//! | cordon | – | `SetNode {Cordon}` | always | no new copies, no leadership it need not take; keeps what it has |
//! | uncordon, undrain | – | `SetNode {Serve}` | always | takes copies again; what a drain made too many is unloaded |
//! | zone, weight, limit of a node | [`crate::check_alter_node`] | `AlterNode` with `if_version` | always | plans, first assignments and repair go by them; copies stay where they are until a plan moves them |
//! | drain | [`crate::check_drain`] | `SetNode {Drain}` with `if_nodes` | its copies fit elsewhere | leaderships go first, then every copy is replaced ([`crate::repair`]) |
//! | remove | [`crate::check_remove`] | `RemoveNode` | not alive, holds nothing that counts | the node is forgotten |
//! | lost | [`crate::check_lose_node`] | `NodeLost` | failed | its copies leave the Live sets; they are replaced at once |
//! | copies of a table | [`crate::check_alter_table`] | `AlterTable` with `if_version` | there are nodes enough | repair makes or retires copies; a partition's `min_in_sync` rises once all of its copies count, and falls at once |
//! | when partitions are split by themselves | the same | the same | the table is by ranges | leaders look, and say when one is above (`automatic_splits`) |
//! | drop a table | – | `DropTable` | always | it is gone with its rows; every node deletes its copies ([`crate::condemned`]) |
//! | change settings | [`crate::check_configure`] | `Configure` with `if_version` | they fit each other, and none of them is [fixed](archon_types::Setting::fixed) | what reads them takes the new ones: the next turn, and nodes with the next answer to a heartbeat |
//! | rights of clients | [`crate::check_access`] | `SetAccess` with `before` | the table is there | nodes go by it from their next push on |
//! | certificates that count no more | [`crate::check_withdrawal`] | `Withdraw` with `before` | – | coordinators go by it at once, nodes from their next push on |
//! | bump, bar, offline, maintenance | [`crate::check_order`] | `Control` with `if_controls` | see [`crate::controls`] | the same |
//! | – | – | `RecordMaintenance` | that order stands | its time left goes on from there under the next leader ([`crate::controls`]) |
//! | change the quorum | [`crate::check_quorum_change`], [`crate::check_join`] | `ChangeQuorum` with `if_version` | a majority of those left answers | whoever leads has Raft do it step by step ([`crate::next_step`]) |
//! | raise the protocol | [`crate::check_raise`] | `RaiseProtocol` | every member speaks it | what older versions cannot read is written from then on ([`crate::upgrade`]) |
//! | note a door | – | `NoteDoor` | that life goes on | an event (`doors`) |
//! | compare the states | – | `CheckState` | – | nothing changes; each coordinator sums its state up as of then ([`crate::StateChecksum`]) |
//! | hold the protocol | – | `HoldProtocol` | the cluster speaks protocol 2 | it rises only when an operator says so |
//! | go on after a recovery | [`crate::check_settle`] | `AcceptRecovery` | every node that is not lost told what it holds | the next turn settles it ([`crate::recovery`]) |
//! | force-leader | [`crate::check_force_leader`] | `AcceptLoss` | no copy that counts is on a node that is alive | one copy leads, or the partition begins empty; all others retire |

use crate::controls::Order;
use crate::coordinators::{CHECKED_SINCE, WITHDRAWN_SINCE, Wish};
use crate::doors::DoorNews;
use crate::edit::PartitionChange;
use crate::migration::{MigrationId, MoveKind, Stage};
use crate::recovery::Standing;
use crate::registration::Register;
use crate::upgrade::HELD_SINCE;
use archon_types::{
    ClusterId, DOORS_SINCE, Holds, Incarnation, Millis, NodeGoal, NodeId, NodeTraits, OWN_SINCE, PROTOCOL_FIRST,
    PartitionId, Partitioning, PlacementId, RequestId, Right, Scope, SettingChange, Settings, TableId, TableTraits,
    Version,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// Who caused a change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Actor {
    /// A coordinator's own control turn, by its id.
    Coordinator(u64),
    /// A node's registration or report.
    Node(NodeId),
    /// A node that registers for the first time, by the name it gives itself.
    Newcomer(String),
    /// A person or script.
    Admin {
        /// Who that is, as its certificate says: `admin/alice`. Nobody knows without TLS.
        identity: Option<String>,
        /// The address that it came from.
        from: IpAddr,
        /// The coordinator through which it asked, at a console: `coordinator/2`. Not written while there is none: older versions do not
        /// know it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        via: Option<String>,
    },
}

/// The protocol that brought [`Actor::Admin::via`].
const VIA_SINCE: u32 = 2;

impl Actor {
    /// The same, without what is only known from a later protocol than this one on.
    #[must_use]
    pub fn by_protocol(self, protocol: u32) -> Self {
        match self {
            Self::Admin { identity, from, .. } if protocol < VIA_SINCE => Self::Admin { identity, from, via: None },
            actor => actor,
        }
    }
}

/// One log entry: commands that one proposer decided at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CommandBatch {
    /// Repeating a request with the same id gives the first answer and changes nothing.
    pub request: Option<RequestId>,
    /// The proposer's wall clock.
    pub at: Millis,
    /// Who caused it.
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
    /// Makes the cluster, once, with its `default` table.
    Bootstrap {
        /// The id it will have.
        cluster: ClusterId,
        /// Its settings, checked.
        settings: Settings,
    },
    /// A node begins a new life (PROTOCOL rules 8 and 19).
    Register(Box<Register>),
    /// The node stored its incarnation durably and may act in it.
    Activate {
        /// Which node.
        node: NodeId,
        /// Its present life.
        incarnation: Incarnation,
    },
    /// This life of the node is over, its leases too; all its leaderships end and successors are named at once.
    NodeFailed {
        /// Which node.
        node: NodeId,
        /// The life that ended.
        incarnation: Incarnation,
        /// Who leads next, where another Live replica can. One whose guard fails is left out, the rest holds.
        successors: Vec<Successor>,
    },
    /// What the operator wants of a node: serve, cordon, drain. Judged feasible by [`crate::check_drain`] beforehand.
    SetNode {
        /// Which node.
        node: NodeId,
        /// What is wanted.
        goal: NodeGoal,
        /// The version of the newest node row on which the judgement rests; the command is void once that changed, so
        /// that two drains that are feasible alone cannot both pass. `None`: whatever the other nodes do.
        if_nodes: Option<Version>,
    },
    /// Gives a node another zone, weight and limit, whatever it registered with. Judged by [`crate::check_alter_node`].
    AlterNode {
        /// Which node.
        node: NodeId,
        /// The version of its row when the operator decided.
        if_version: Version,
        /// All three as they are to be.
        traits: NodeTraits,
    },
    /// The operator declares that a failed node's data is lost: its copies leave their Live sets (PROTOCOL rule 2).
    NodeLost {
        /// Which node.
        node: NodeId,
        /// The version of its row when the operator decided.
        if_version: Version,
    },
    /// Forgets a node that is not alive and holds nothing that counts.
    RemoveNode {
        /// Which node.
        node: NodeId,
        /// The version of its row when the operator decided.
        if_version: Version,
    },
    /// Makes a table.
    CreateTable {
        /// Its name, unique.
        name: String,
        /// The partitions that it begins with.
        partitioning: Partitioning,
        /// Copies wanted of each, `1..=7`; 1 of leases.
        replication: u8,
        /// What its partitions are.
        holds: Holds,
    },
    /// Wants another number of copies of each partition of a table, or other limits above which they are split. Judged by
    /// [`crate::check_alter_table`].
    AlterTable {
        /// Which table.
        table: TableId,
        /// The version of its row when the operator decided.
        if_version: Version,
        /// All of it as it is to be.
        traits: TableTraits,
    },
    /// Drops a table, with everything in it. Named by its number: another table may go by the name by then.
    DropTable {
        /// Which table.
        table: TableId,
    },
    /// A node has deleted its copy of a dropped table.
    Deleted {
        /// Which node.
        node: NodeId,
        /// The copy.
        placement: PlacementId,
    },
    /// Changes rows. All of them, or none when one guard fails.
    Change(Vec<PartitionChange>),
    /// Carries out a plan, unless the table moved on or another plan runs.
    StartPlan {
        /// The version for which it was made.
        table_version: Version,
        /// The version of the moves' records for which it was made.
        moves_version: Version,
        /// Its moves.
        moves: Vec<PlannedMove>,
    },
    /// A migration's next stage, together with the change to the row that makes it so.
    SetMigration {
        /// Which migration.
        migration: MigrationId,
        /// Its new stage.
        stage: Stage,
        /// The change to its partition's row, if there is one.
        change: Option<PartitionChange>,
    },
    /// The operator wants what runs undone, as far as leadership has not moved.
    CancelPlan,
    /// Changes settings of the cluster. Judged by [`crate::check_configure`] beforehand; of those on which leases rest none
    /// changes (PROTOCOL rule 16).
    Configure {
        /// The version of the settings on which the judgement rests.
        if_version: Version,
        /// What changes, each setting once.
        changes: Vec<SettingChange>,
    },
    /// Grants a right to clients, or takes one back. Judged by [`crate::check_access`].
    SetAccess {
        /// Whose rights, to which tables.
        scope: Scope,
        /// What was granted for exactly this when the operator decided.
        before: Option<Right>,
        /// What is from now on.
        after: Option<Right>,
    },
    /// Withdraws certificates of an identity, or has them count again. Judged by [`crate::check_withdrawal`].
    Withdraw {
        /// Whose: `admin/alice`.
        identity: String,
        /// What was withdrawn when the operator decided: what begins before that.
        before: Option<Millis>,
        /// What is from now on.
        after: Option<Millis>,
    },
    /// An order of an operator about a partition or a member. Judged by [`crate::check_order`].
    Control {
        /// The version of all orders on which the judgement rests.
        if_controls: Version,
        /// The order.
        order: Order,
        /// In the operator's words; may be empty.
        why: String,
    },
    /// Records how much time is left of a maintenance, so that the next leading coordinator goes on from there.
    RecordMaintenance {
        /// The member.
        member: NodeId,
        /// The end that the order was given with. The record of another order is refused.
        until: Millis,
        /// Milliseconds that are left.
        left_ms: u64,
    },
    /// A node told where the log of one of its copies ends, while the state is recovered.
    Inspected {
        /// Which node.
        node: NodeId,
        /// Its present life.
        incarnation: Incarnation,
        /// The copy.
        placement: PlacementId,
        /// What it is.
        standing: Standing,
    },
    /// Every member speaks this protocol, and from now on the cluster does. Judged by [`crate::check_raise`].
    RaiseProtocol {
        /// Which one.
        to: u32,
    },
    /// An operator wants the protocol to stay as it is, or to rise by itself again.
    HoldProtocol {
        /// Whether it stays.
        held: bool,
    },
    /// The leading coordinator finds that clients do not reach a node, or reach it again. It is remembered as an event.
    NoteDoor(DoorNews),
    /// Each coordinator sums its state up as of this entry, so that they can be compared. Nothing changes.
    CheckState,
    /// An operator accepts what may be lost by the recovery.
    AcceptRecovery,
    /// What nodes told is taken for true, and partitions go on from it.
    SettleRecovery,
    /// Something is wanted of the quorum. Judged by [`crate::check_quorum_change`] or [`crate::check_join`].
    ChangeQuorum {
        /// The version of [`crate::Coordinators`] on which the judgement rests.
        if_version: Version,
        /// What is wanted.
        wish: Wish,
    },
    /// What was wanted of the quorum is so, or is not wanted any more.
    EndQuorumChange {
        /// The version of [`crate::Coordinators`] on which the judgement rests.
        if_version: Version,
        /// Whether it is done; else it is taken back, as far as it has not come.
        done: bool,
    },
    /// The operator accepts that acknowledged writes of a partition are lost (PROTOCOL rule 23): one copy is made its
    /// leader, or it begins anew and empty, and all other copies retire in the same commit.
    AcceptLoss {
        /// Which partition.
        partition: PartitionId,
        /// The row's version when the operator decided.
        if_version: Version,
        /// What becomes of it.
        outcome: LossOutcome,
    },
}

/// The protocol that brought [`Command::RecordMaintenance`].
pub(crate) const MAINTENANCE_RECORDED_SINCE: u32 = 2;

impl Command {
    /// The protocol that brought it: nothing of it is written before the cluster speaks that (PROTOCOL rule 64). What raises the
    /// protocol is written one step earlier, when everybody can read it.
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
            Self::NoteDoor(_) => DOORS_SINCE,
            Self::CheckState => CHECKED_SINCE,
            Self::Withdraw { .. } => WITHDRAWN_SINCE,
        }
    }

    /// Its name, for logs.
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
            Self::SettleRecovery => "SettleRecovery",
            Self::EndQuorumChange { .. } => "EndQuorumChange",
            Self::AcceptLoss { .. } => "AcceptLoss",
        }
    }
}

/// What becomes of a partition whose loss was accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LossOutcome {
    /// This copy, Live or Load, leads from now on, with whatever it holds.
    Lead {
        /// The copy.
        placement: PlacementId,
        /// The life of its node.
        incarnation: Incarnation,
    },
    /// None is left: the partition is assigned anew.
    Empty,
}

/// Who leads a partition after a node failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Successor {
    /// Which partition.
    pub partition: PartitionId,
    /// The row's version on which the choice rests.
    pub if_version: Version,
    /// The Live copy that leads next.
    pub placement: PlacementId,
    /// The life of its node.
    pub incarnation: Incarnation,
}

/// One move of a plan, as the log carries it: a disk format, so what is shown ([`archon_types::plan::Move`]) has a type of its own, and
/// why it was planned ([`crate::MoveReason`]) is a sentence by now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PlannedMove {
    /// What is moved.
    pub kind: MoveKind,
    /// Which partition.
    pub partition: PartitionId,
    /// The copy that is to go. Of a leadership, the copy that leads when the plan is made; what counts is its node.
    pub placement: PlacementId,
    /// Where it stands, or will when the plan's earlier moves of this partition are made.
    pub from: NodeId,
    /// Where a copy is to come, or where one is to lead.
    pub to: NodeId,
    /// Why, for people.
    pub reason: String,
    /// Bytes to copy, as estimated.
    pub bytes: u64,
}
