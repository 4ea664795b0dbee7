//! Decisions of the coordinator, and nothing else: no clock, no randomness, no I/O, no hash order.
//!
//! The flow is one way. A shell passes heartbeats and reports to a [`Term`] and calls it for a turn, which examines the
//! [`ClusterState`] and returns changes as [`Command`]s; the shell commits them as a [`CommandBatch`] through Raft;
//! [`apply()`] changes the state under guards, without deciding anything; [`duties()`] and [`table_piece()`] derive the
//! pushes to each node from the new state. [`plan()`] answers the operator.
//!
//! | folder | holds |
//! |---|---|
//! | `state/` | the state, as data: rows of nodes and partitions with their indexes, records of moves, members of the quorum, standing orders (`controls/`), events; it imports no other folder |
//! | `command/` | changes, and their application (`apply/`) |
//! | `liveness/` | silence → failed; next leaders; ends of leases; isolated leaders; nodes that clients cannot reach |
//! | `placement/` | first assignment; plans; replacements of copies; steps, phases and blockers of moves |
//! | `ranges/` | splits and merges: proposals, progress, completion, abandonment, and checks of operators' ones |
//! | `leases/` | partitions of other services: owners, and their even spread |
//! | `quorum/coordinators/` | the members of the quorum, and its changes step by step |
//! | `quorum/upgrade/` | the protocol rises once every member speaks the next one |
//! | `quorum/recovery/` | recovery of the state from less than a majority, with reports of the nodes |
//! | `operator/` | advance checks of operators' verbs; remaining time of maintenance |
//! | `findings/` | findings of alerts and waits, their list, facts of events, the leader's memory, totals for metrics |
//! | `leader/` | one control turn; reports of nodes; duties of nodes |
//! | `leader/term/` | work of the leading coordinator: turns, leases after quorum rounds, answers to reports |
//! | `invariants/` | one property per file, shared by every test |

#[cfg(test)]
mod bounds_tests;
mod command;
mod findings;
#[cfg(test)]
mod growth_tests;
#[cfg(test)]
mod idle_tests;
mod invariants;
mod leader;
mod leases;
mod liveness;
mod mutant;
mod operator;
mod placement;
mod quorum;
mod ranges;
mod state;

pub use archon_types::Register;
pub use command::apply::{apply, skip};
pub use command::edit::{Edit, LeadershipEnd, PartitionChange};
pub use command::{Command, CommandBatch, LossOutcome, PlannedMove, Successor};
pub use findings::alerts::{Thresholds, alerts, not_served};
pub use findings::counts::{Counts, counts};
pub use findings::events::recorded_event;
pub use findings::explain::{Explainer, Shortage, explain};
pub use findings::intent::with_intent;
pub use findings::leader_view::LeaderView;
pub use findings::list::list_findings;
pub use findings::totals::Totals;
pub use findings::upgrade::{outdated_members, upgrade_waits};
pub use findings::waits::{Disks, disk_full, quorum_waits, waits};
pub use invariants::violation::Violation;
pub use invariants::{check, check_step};
pub use leader::duties::{
    DutiesMark, duties, duties_mark, nodes_delta, rows_piece, table_piece, table_ready, under_orders,
};
pub use leader::report::{on_report, on_reports, on_stopping};
pub use leader::term;
pub use leader::term::Term;
pub use leader::turn::{Turn, turn};
pub use leases::staying_leases;
pub use liveness::confirm::{Confirmation, check_confirmed, to_confirm};
pub use liveness::reachability::DoorView;
pub use liveness::{HeartbeatAnswer, Liveness};
pub use mutant::DisabledRule;
#[cfg(any(test, feature = "mutants"))]
pub use mutant::Mutant;
pub use operator::obstacle::{Obstacle, refusal};
pub use operator::{
    AccessChange, Attempt, Configuration, ConfigureError, DrainPlan, ForcedElection, LossPlan, MergePlan,
    NodeAlteration, QuorumRefusal, RefusedCertificates, RemovalPlan, SettleRefusal, SplitPlan, check_access,
    check_alter_node, check_alter_table, check_cancel_merge, check_cancel_quorum_change, check_cancel_split,
    check_configure, check_drain, check_force_leader, check_join, check_lose_node, check_merge, check_nodes_for,
    check_order, check_quorum_change, check_remove, check_settle, check_split, check_splittable, check_take_over,
    check_withdrawal, still_led,
};
pub use placement::migrate::{Phase, phase};
pub use placement::plan::moves::{Move, MoveReason, Subject, UnmetGoal, UnmetReason};
pub use placement::plan::{Goal, Plan, plan};
pub use placement::plan_summary::PlanSummary;
pub use placement::waits::{Waits, waiting_for};
pub use placement::withheld_repair::{WithheldRepair, withheld};
pub use quorum::coordinators::{
    Acquaintances, CATCH_UP_ENTRIES, ChecksumComparison, CoordinatorRefusal, CoordinatorStanding, Mark, Marks,
    QuorumHealth, QuorumStep, StateChecksum, VoterRefusal, compare, members_changed, next_step,
};
pub use quorum::recovery::reports::unheard;
pub use quorum::recovery::{
    Doubt, FormerAnswer, FormerFacts, FormerRound, RecoveryError, Takeover, TakeoverStep, begin_generation, doubts,
};
pub use quorum::upgrade::{
    CoordinatorsSpeak, UpgradeMember, UpgradeName, check_commands, check_coordinator_speaks, check_raise, laggards,
    newest_spoken, next_raise, upgrade_members,
};
pub use ranges::range_changes::RangeChange;
pub use state::actor::Actor;
pub use state::controls::{Bar, Controls, Maintenance, Note, Order};
pub use state::coordinators::{
    COORDINATORS_MAX, Coordinator, Coordinators, Members, Newcomer, PendingChange, Wish, majority,
};
pub use state::events::{DoorNews, Event, EventKind};
pub use state::former_leaders::{FormerLeader, FormerLeaders};
pub use state::image::Image;
pub use state::migration::{Migration, MigrationId, MoveKind, Stage};
pub use state::migrations::Migrations;
pub use state::node_row::NodeRow;
pub use state::nodes::Nodes;
pub use state::out_of_sync_copy::{Condition, OutOfSyncCopy};
pub use state::partitions::Partitions;
pub use state::protocols::{CHECKED_SINCE, HELD_SINCE};
pub use state::recovery::{FrozenReplica, Inventory, Recovery};
pub use state::response::Response;
pub use state::tombstones::Tombstones;
pub use state::{ClusterState, NODES_MAX, STRANGER_AGE_MS, STRANGERS_MAX};
