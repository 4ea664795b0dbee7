//! What the coordinator decides, and nothing else: no clock, no randomness, no I/O, no hash order.
//!
//! The flow is one way. A shell tells a [`Term`] of heartbeats and reports, and asks it for a turn, which looks at
//! the [`ClusterState`] and names what should change as [`Command`]s; the shell commits them as a [`CommandBatch`]
//! through Raft; [`apply()`] changes the state under guards, without deciding anything; [`duties()`] and [`table_piece()`]
//! derive from the new state what each node is pushed. [`plan()`] answers the operator.
//!
//! | file | holds |
//! |---|---|
//! | `state`, `image`, `names`, `node_row`, `partitions`, `former_leaders`, `condemned`, `migration` | what is |
//! | `command`, `edit`, `registration`, `response`, `apply/` | what may change, and how |
//! | `liveness`, `withdrawals`, `failover` | silence → failed; who leads next; when a lease is over |
//! | `controls/` | bars, partitions offline, renewed leaderships, maintenance: what operators ordered |
//! | `coordinators/` | the members of the quorum, and how it is changed step by step |
//! | `upgrade/` | the protocol rises once every member speaks the next one |
//! | `recovery/` | the state begins anew from less than a majority, and nodes tell what is true |
//! | `departed` | what copies that do not count can still hold |
//! | `leases/` | partitions of other services: who owns each, and how they stay evenly spread |
//! | `isolated_leaders` | leaders that hear too few followers |
//! | `assign`, `plan`, `score` | first assignment; few moves to an even spread |
//! | `repair`, `lack` | copies in place of failed, lost and leaving ones; why some are not made |
//! | `operate` | what an operator may do, judged beforehand |
//! | `migrate`, `waits`, `tally` | the next step of a move, and its phase; what moves wait for; how a plan's moves stand |
//! | `automatic_splits`, `automatic_merges`, `proposals` | which partitions that are above a limit, or small, are split and merged by themselves, and when |
//! | `splits`, `merges`, `rest` | when those under way are done or given up; how long nothing is tried again after that |
//! | `reshapings` | how far those under way are, and whom they wait for, for people |
//! | `turn`, `report` | one control turn; facts that nodes tell |
//! | `term/` | what a coordinator does while it leads: turns, leases after quorum rounds, answers to reports |
//! | `doors` | which nodes clients do not reach, by the word of those who knock there |
//! | `unserved` | since when what ought to be served is not |
//! | `alerts` | what should be looked at before something is not served, or since it stays so |
//! | `totals` | how much of everything there is, from indexes |
//! | `duties`, `explain`, `remembered`, `events` | what a node should do; why something is not served; what happened |
//! | `invariants/` | one property per file, shared by every test |

mod alerts;
pub mod apply;
pub mod assign;
mod automatic_merges;
mod automatic_splits;
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
    check_order, check_quorum_change, check_remove, check_settle, check_split, check_splittable, check_withdrawal,
    refusal, still_led,
};
pub use partitions::Partitions;
pub use plan::{Goal, Move, MoveReason, Plan, Subject, Unmet, UnmetReason, plan};
pub use recovery::{Doubt, Inventory, Recovery, RecoveryError, Standing, begin_generation, doubts, unheard};
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
