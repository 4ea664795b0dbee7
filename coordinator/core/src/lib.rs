//! Decisions of the coordinator, and nothing else: no clock, no randomness, no I/O, no hash order.
//!
//! The flow is one way. A shell passes heartbeats and reports to a [`Term`] and calls it for a turn, which examines the
//! [`ClusterState`] and returns changes as [`Command`]s; the shell commits them as a [`CommandBatch`] through Raft;
//! [`apply()`] changes the state under guards, without deciding anything; [`duties()`] and [`table_piece()`] derive the
//! pushes to each node from the new state. [`plan()`] answers the operator.
//!
//! | file | holds |
//! |---|---|
//! | `state`, `image`, `names`, `node_row`, `partitions`, `former_leaders`, `condemned`, `migration` | the state |
//! | `command`, `edit`, `registration`, `response`, `apply/` | changes, and their application |
//! | `liveness`, `withdrawals`, `failover` | silence → failed; next leaders; ends of leases |
//! | `controls/` | bars, partitions offline, renewed leaderships, maintenance: orders of operators |
//! | `coordinators/` | the members of the quorum, and its changes step by step |
//! | `upgrade/` | the protocol rises once every member speaks the next one |
//! | `recovery/` | recovery of the state from less than a majority, with reports of the nodes |
//! | `departed` | data that out-of-sync copies may still hold |
//! | `leases/` | partitions of other services: owners, and their even spread |
//! | `isolated_leaders` | leaders that hear too few followers |
//! | `assign`, `plan`, `score` | first assignment; few moves to an even spread |
//! | `repair`, `lack` | replacements of failed, lost and leaving copies; reasons for missing ones |
//! | `operate` | advance checks of operators' verbs |
//! | `migrate`, `waits`, `tally` | next step and phase of a move; blockers of moves; progress of a plan |
//! | `automatic_splits`, `automatic_merges`, `proposals` | automatic splits and merges of partitions above a limit, or small |
//! | `splits`, `merges`, `rest` | completion and abandonment of splits and merges; pauses before the next attempt |
//! | `reshapings` | progress and blockers of splits and merges, for people |
//! | `turn`, `report` | one control turn; reports of nodes |
//! | `term/` | work of the leading coordinator: turns, leases after quorum rounds, answers to reports |
//! | `doors` | nodes that clients cannot reach, by the reports of their keepers |
//! | `unserved` | start of the unavailability of partitions |
//! | `alerts` | conditions that need attention before or while a partition is unavailable |
//! | `totals` | counts of all objects, from indexes |
//! | `duties`, `explain`, `remembered`, `events` | duties of nodes; reasons for unavailability; past events |
//! | `invariants/` | one property per file, shared by every test |

mod alerts;
pub mod apply;
pub mod assign;
mod automatic_merges;
mod automatic_splits;
#[cfg(test)]
mod bounds_tests;
pub mod command;
pub mod condemned;
pub mod confirm;
pub mod controls;
pub mod coordinators;
mod countdowns;
mod departed;
mod doors;
pub mod duties;
mod edit;
mod eligible_nodes;
pub mod events;
pub mod explain;
pub mod failover;
pub mod former_leaders;
#[cfg(test)]
mod growth_tests;
#[cfg(test)]
mod idle_tests;
mod image;
pub mod invariants;
mod isolated_leaders;
mod lack;
mod leases;
pub mod liveness;
mod merges;
pub mod migrate;
pub mod migration;
mod mutant;
mod names;
mod node_row;
pub mod nodes;
pub mod operate;
pub mod partitions;
pub mod plan;
mod proposals;
pub mod recovery;
mod registration;
mod remembered;
pub mod repair;
pub mod report;
mod reshapings;
mod response;
mod rest;
mod score;
mod splits;
pub mod state;
mod tally;
pub mod term;
mod totals;
pub mod turn;
mod unserved;
pub mod upgrade;
mod waits;
mod withdrawals;

pub use alerts::{Alert, Held, Thresholds, alerts, not_served};
pub use apply::{apply, skip};
pub use command::{Actor, Command, CommandBatch, LossOutcome, PlannedMove, Successor};
pub use condemned::Condemned;
pub use confirm::{Confirmation, check_confirmed, to_confirm};
pub use controls::{Bar, Controls, Maintenance, Note, Order};
pub use coordinators::{
    Acquaintances, COORDINATORS_MAX, Compared, Coordinator, CoordinatorStanding, Coordinators, Mark, Marks, Members,
    Newcomer, Outdated, PendingChange, QuorumHealth, QuorumStep, StateChecksum, Unheard, Wish, compare, majority,
    members_changed, next_step,
};
pub use departed::{Condition, Departed};
pub use doors::{DoorNews, DoorView};
pub use duties::{DutiesMark, duties, duties_mark, nodes_delta, rows_piece, table_piece, table_ready};
pub use edit::{Edit, Ending, PartitionChange};
pub use events::{Event, EventKind};
pub use explain::{Counts, Explainer, Shortage, Why, counts, explain};
pub use former_leaders::{FormerLeader, FormerLeaders};
pub use image::Image;
pub use invariants::{Violation, check, check_step};
pub use lack::{Withheld, withheld};
pub use leases::staying_leases;
pub use liveness::{HeartbeatAnswer, Liveness};
pub use migrate::{Phase, phase};
pub use migration::{Migration, MigrationId, Migrations, MoveKind, Stage};
pub use mutant::Broken;
#[cfg(any(test, feature = "mutants"))]
pub use mutant::Mutant;
pub use node_row::NodeRow;
pub use nodes::Nodes;
pub use operate::{
    AccessChange, Configuration, ConfigureError, DrainPlan, ForcedElection, LossPlan, MergePlan, NodeAlteration,
    Obstacle, QuorumRefusal, RefusedCertificates, RemovalPlan, SettleRefusal, SplitPlan, check_access,
    check_alter_node, check_alter_table, check_cancel_merge, check_cancel_quorum_change, check_cancel_split,
    check_configure, check_drain, check_force_leader, check_join, check_lose_node, check_merge, check_nodes_for,
    check_order, check_quorum_change, check_remove, check_settle, check_split, check_splittable, check_take_over,
    check_withdrawal, refusal, still_led,
};
pub use partitions::Partitions;
pub use plan::{Goal, Move, MoveReason, Plan, Subject, Unmet, UnmetReason, plan};
pub use recovery::{
    Doubt, FormerAnswer, FormerFacts, FormerRound, Inventory, Recovery, RecoveryError, Standing, Takeover,
    TakeoverStep, begin_generation, doubts, unheard,
};
pub use registration::Register;
pub use remembered::Remembered;
pub use report::{on_report, on_reports, on_stopping};
pub use reshapings::Reshaping;
pub use response::Response;
pub use state::ClusterState;
pub use tally::PlanSummary;
pub use term::Term;
pub use totals::Totals;
pub use turn::{Turn, turn};
pub use upgrade::{
    CoordinatorsSpeak, HELD_SINCE, UpgradeMember, UpgradeName, check_commands, check_coordinator_speaks, check_raise,
    laggards, newest_spoken, next_raise, upgrade_members,
};
pub use waits::{Waits, waiting_for};
