//! Guarded application of committed commands. It never decides: a command with a failed guard is refused and changes
//! nothing; the proposer decided everything else. No clock, no randomness and no constant of this build decides
//! anything here, so every coordinator computes the same state.

mod access;
mod alter;
mod cluster;
mod configure;
mod control;
mod dropped;
pub(crate) mod entry;
mod histories;
mod migration;
mod node;
mod participant;
mod quorum;
mod recovery;
mod register;
mod stage;
mod upgrade;

pub(crate) use alter::min_in_sync;
pub(crate) use configure::leases_stay;
pub(crate) use dropped::may_hold;

use crate::command::apply::entry::Entry;
use crate::command::{Command, CommandBatch};
use crate::state::response::Response;
use crate::state::{ANSWER_AGE_MS, ANSWERS_MAX, ClusterState, KeptAnswer};
use archon_types::{ErrorDetail, ErrorKind, Millis, RequestId};

/// Applies the batch of log entry `index` and answers each of its commands, in order. A request id that was answered
/// before gets its first answer again.
///
/// The caller compares the batch's term with the entry's own first, and calls [`skip`] when they differ.
pub fn apply(state: &mut ClusterState, index: u64, batch: &CommandBatch) -> Vec<Response> {
    state.applied = state.applied.max(index);
    if let Some(request) = batch.request
        && let Some(kept) = state.answers.iter().find(|kept| kept.request == request)
    {
        return kept.responses.clone();
    }
    let entry = Entry { index, at: batch.at, who: &batch.who };
    let responses: Vec<Response> = batch
        .commands
        .iter()
        .map(|command| apply_one(state, entry, command).unwrap_or_else(Response::Refused))
        .collect();
    if let Some(request) = batch.request {
        keep_answer(state, request, batch.at, &responses);
    }
    responses
}

/// Takes note of a log entry that changes nothing here: a blank one, or a batch whose proposer's term
/// is not the entry's (it decided on a state that another leader has changed since). No request is recorded.
pub fn skip(state: &mut ClusterState, index: u64) {
    state.applied = state.applied.max(index);
}

fn apply_one(state: &mut ClusterState, entry: Entry<'_>, command: &Command) -> Result<Response, ErrorDetail> {
    if !state.is_bootstrapped() && !matches!(command, Command::Bootstrap { .. }) {
        let message = "the cluster is not bootstrapped yet; try again in a moment";
        return Err(ErrorDetail::new(ErrorKind::Unavailable, message).with_retry_after_ms(200));
    }
    match command {
        Command::Bootstrap { cluster, settings } => cluster::bootstrap(state, entry, *cluster, settings),
        Command::Register(register) => register::register(state, entry, register),
        Command::Activate { node, incarnation } => node::activate(state, entry, *node, *incarnation),
        Command::NodeFailed { node, incarnation, successors } => {
            node::failed(state, entry, *node, *incarnation, successors)
        }
        Command::SetNode { node, goal, if_nodes } => node::set_goal(state, entry, *node, *goal, *if_nodes),
        Command::AlterNode { node, if_version, traits } => alter::node(state, entry, *node, *if_version, traits),
        Command::NodeLost { node, if_version } => node::declare_lost(state, entry, *node, *if_version),
        Command::RemoveNode { node, if_version } => node::remove(state, entry, *node, *if_version),
        Command::CreateTable { name, partitioning, replication, holds } => {
            cluster::create_table(state, entry, name, partitioning, *replication, *holds)
        }
        Command::AlterTable { table, if_version, traits } => alter::table(state, entry, *table, *if_version, *traits),
        Command::DropTable { table } => dropped::drop_table(state, entry, *table),
        Command::Deleted { node, placement } => dropped::deleted(state, entry, *node, *placement),
        Command::Change(changes) => {
            let mut stage = stage::StagedRows::new(state, entry);
            for change in changes {
                stage.change(change)?;
            }
            stage.into_effect().commit(state, entry);
            entry.done()
        }
        Command::StartPlan { table_version, moves_version, moves } => {
            migration::start_plan(state, entry, (*table_version, *moves_version), moves)
        }
        Command::SetMigration { migration, stage, change } => {
            migration::set(state, entry, *migration, stage, change.as_ref())
        }
        Command::CancelPlan => migration::cancel_plan(state, entry),
        Command::Configure { if_version, changes } => configure::configure(state, entry, *if_version, changes),
        Command::SetAccess { scope, before, after, weight_before, weight_max } => {
            access::set(state, entry, scope, (*before, *weight_before), (*after, *weight_max))
        }
        Command::Withdraw { identity, before, after } => access::withdraw(state, entry, identity, *before, *after),
        Command::Control { if_controls, order, why } => control::control(state, entry, *if_controls, *order, why),
        Command::RecordMaintenance { member, until, left_ms } => {
            control::record_maintenance(state, entry, *member, *until, *left_ms)
        }
        Command::ChangeQuorum { if_version, wish } => quorum::change(state, entry, *if_version, wish),
        Command::EndQuorumChange { if_version, done } => quorum::end(state, entry, *if_version, *done),
        Command::Inspected { node, incarnation, placement, standing } => {
            recovery::inspected(state, entry, (*node, *incarnation), *placement, *standing)
        }
        Command::RaiseProtocol { to } => upgrade::raise(state, entry, *to),
        Command::HoldProtocol { held } => upgrade::hold(state, entry, *held),
        Command::CheckState => entry.done(),
        Command::NoteDoor(news) => node::note_door(state, entry, news),
        Command::AcceptRecovery => recovery::accept(state, entry),
        Command::NoteFormerQuorum => recovery::note_former_quorum(state, entry),
        Command::TakeOver => recovery::take_over(state, entry),
        Command::SettleRecovery => recovery::settle(state, entry),
        Command::AcceptLoss { partition, if_version, outcome } => {
            cluster::accept_loss(state, entry, *partition, *if_version, *outcome)
        }
    }
}

fn keep_answer(state: &mut ClusterState, request: RequestId, at: Millis, responses: &[Response]) {
    let too_old = |kept: &KeptAnswer| at.since(kept.at) > ANSWER_AGE_MS;
    while state.answers.len() >= ANSWERS_MAX || state.answers.front().is_some_and(too_old) {
        state.answers.pop_front();
    }
    state.answers.push_back(KeptAnswer { request, at, responses: responses.to_vec() });
}
