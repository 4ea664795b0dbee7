//! Changes of the quorum: newcomers ask to join, operators ask for the rest. Judged by the core first, then committed;
//! the leader carries them out.

use crate::raft::{Proposal, Standby};
use crate::service::admins::{Admins, Result};
use crate::service::call::{Call, Stage};
use crate::service::documents::answers;
use crate::service::{check_named, only};
use archon_coordinator_core::{
    Attempt, ClusterState, Doubt, Liveness, Newcomer, PendingChange, QuorumStep, check_cancel_quorum_change,
    check_coordinator_speaks, check_join, check_quorum_change, check_settle, check_take_over, doubts,
};
use archon_documents::{
    ChangeQuorum, LeadTransferred, PendingQuorumChange, QuorumAction, QuorumChanged, QuorumRecovery, RecoveryDoubt,
    TransferLead, coordinators,
};
use archon_proto::convert::admin::upgrade::protocol_range;
use archon_proto::convert::ids::{non_zero, request_id, storage_id, uuid_bytes};
use archon_proto::v1;
use archon_security::Role;
use archon_types::{DoubtKind, ErrorDetail, ErrorKind, NodeId, QuorumChange, generation_of};
use bytes::Bytes;
use futures::stream;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tonic::Status;

/// Pages of a snapshot file.
pub(in crate::service) type Pages = stream::Iter<std::vec::IntoIter<Result<v1::SnapshotQuorumPage, Status>>>;

/// Maximum time for the answer of a future voter: the time after which a member counts as dead.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// Size of each page in bytes.
const PAGE_BYTES: usize = 256 * 1024;

/// Divides a file into pages: the first one describes the file, without content.
fn pages(index: u64, file: &Bytes) -> Vec<Result<v1::SnapshotQuorumPage, Status>> {
    let head = v1::QuorumSnapshotHead { index, bytes: file.len() as u64 };
    let first = v1::SnapshotQuorumPage { head: Some(head), content: Bytes::new() };
    let begins = (0..file.len()).step_by(PAGE_BYTES);
    let page = |begin: usize| v1::SnapshotQuorumPage {
        head: None,
        content: file.slice(begin..file.len().min(begin.saturating_add(PAGE_BYTES))),
    };
    [first].into_iter().chain(begins.map(page)).map(Ok).collect()
}

answers! {
    ChangeQuorum: changed_quorum,
    TransferLead: transferred,
}

impl Admins {
    /// Accepts a newcomer.
    pub(in crate::service) async fn join(
        &self,
        request: v1::JoinQuorumRequest,
        call: &Call<'_>,
    ) -> Result<v1::JoinQuorumResponse> {
        let id = non_zero(request.id, "JoinQuorumRequest.id")?;
        call.check_coordinator(id)?;
        let newcomer = Newcomer {
            id,
            address: request.address,
            storage: storage_id(&request.storage, "JoinQuorumRequest.storage")?,
            voter: !request.learner,
        };
        self.context().transport.check(&newcomer.address)?;
        let speaks = (request.protocol_min, request.protocol_max);
        let speaks = protocol_range(speaks, "JoinQuorumRequest.protocol_min")?;
        request_id(&request.request_id, "JoinQuorumRequest.request_id")?;
        // A leader that hears too few members could not commit their new addresses.
        self.context().quorum()?.hear_address(id, newcomer.storage, &newcomer.address);
        let decide = |state: &ClusterState, _: &Liveness| {
            check_coordinator_speaks(state, id, speaks)?;
            Ok(check_join(state, &newcomer)?.ok_or(()))
        };
        let session = match self.commit_unless(call, decide).await? {
            Ok((session, _)) => session,
            Err(()) => self.context().leader(call.within).await?,
        };
        let quorum = session.quorum();
        let members = quorum.addresses().into_iter().map(|(id, address)| v1::QuorumMember { id, address }).collect();
        Ok(v1::JoinQuorumResponse { quorum: uuid_bytes(quorum.key()), members })
    }

    /// Changes the members, or cancels the change in progress.
    pub(super) async fn changed_quorum(&self, asked: ChangeQuorum, call: &Call<'_>) -> Result<QuorumChanged> {
        let ChangeQuorum { action, force } = asked;
        let change = action.change();
        if let Some(QuorumChange::SetAddress { address, .. }) = &change {
            self.context().transport.check(address)?;
        }
        if action == QuorumAction::Settle
            && let Some(changed) = self.ordered_takeover(force, call).await?
        {
            return Ok(QuorumChanged { changed });
        }
        let session = self.context().leader(call.within).await?;
        let health = match &change {
            Some(QuorumChange::Promote { id: comes } | QuorumChange::Replace { new: comes, .. }) => {
                session.quorum().health_if_answers(*comes, ANSWERS_WITHIN.min(call.within)).await
            }
            _ => session.quorum().health(),
        };
        if let Some(change @ QuorumChange::SetAddress { id, address }) = &change
            && !force
        {
            // Checks that need no answers of other members come first.
            session.quorum().replicated().read(|state| check_quorum_change(state, &health, change, force))?;
            let answers = session.quorum().check_answers(&self.context().transport, *id, address).await;
            answers.map_err(|why| {
                let message = format!(
                    "coordinator {id} does not answer at {address}: {why}; start it there first, with --advertise \
                     {address}, or use \
                     --force"
                );
                ErrorDetail::new(ErrorKind::Refused, message)
            })?;
        }
        let decide = |state: &ClusterState, _: &Liveness| match &change {
            Some(change) => Ok(check_quorum_change(state, &health, change, force)?.ok_or(())),
            None if action == QuorumAction::Cancel => Ok(Ok(check_cancel_quorum_change(state)?)),
            None => {
                let settled = check_settle(state, force);
                Ok(settled.map_err(|refusal| ErrorDetail::new(ErrorKind::Refused, refusal.to_string()))?.ok_or(()))
            }
        };
        let changed = self.commit_unless(call, decide).await?.is_ok();
        Ok(QuorumChanged { changed })
    }

    /// Makes a recovery that stands by take over, if this coordinator leads it; `None` if it does not. Returns true if
    /// anything changed.
    async fn ordered_takeover(&self, accept_loss: bool, call: &Call<'_>) -> Result<Option<bool>> {
        let quorum = self.context().quorum()?;
        if quorum.standby().is_none() || !quorum.replicated().read(ClusterState::stands_by) {
            return Ok(None);
        }
        let term = quorum.confirm(call.within).await?;
        let former_works = quorum.standby().is_none_or(|standby| !standby.is_quiet);
        call.reaches(Stage::Judged);
        let (decided, protocol) = quorum.replicated().read(|state| {
            check_named(call.cluster(), state)?;
            // A repeated request must not be judged by the state that it made itself.
            if Attempt::next(state, call.request()).is_err() {
                return Ok((None, state.protocol));
            }
            let decided = check_take_over(state, former_works, accept_loss);
            decided
                .map(|command| (command, state.protocol))
                .map_err(|refusal| ErrorDetail::new(ErrorKind::Refused, refusal.to_string()))
        })?;
        let Some(command) = decided else {
            call.reaches(Stage::Idle);
            return Ok(Some(false));
        };
        call.reaches(Stage::Proposed);
        let who = call.who().by_protocol(protocol);
        let proposal = Proposal { term, request: Some(call.request()), who, commands: vec![command] };
        let answer = only(quorum.propose(proposal, call.within).await?);
        call.reaches(if answer.is_ok() { Stage::Done } else { Stage::Judged });
        answer.map(|_| Some(true))
    }

    /// Returns the current state of this coordinator as a file in pages.
    pub(in crate::service) async fn saved(&self, request: v1::SnapshotQuorumRequest, call: &Call<'_>) -> Result<Pages> {
        request_id(&request.request_id, "SnapshotQuorumRequest.request_id")?;
        let session = self.context().confirmed(call.within).await?;
        call.reaches(Stage::Judged);
        let replicated = Arc::clone(session.quorum().replicated());
        replicated.read(|state| check_named(request.cluster.as_ref(), state))?;
        let failed =
            |what: String| ErrorDetail::new(ErrorKind::Internal, format!("the state cannot be written: {what}"));
        let made = tokio::task::spawn_blocking(move || replicated.file()).await;
        let (index, file) =
            made.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))?;
        call.reaches(Stage::Done);
        Ok(stream::iter(pages(index, &file)))
    }

    /// Makes another voter lead.
    pub(super) async fn transferred(&self, asked: TransferLead, call: &Call<'_>) -> Result<LeadTransferred> {
        let session = self.context().confirmed(call.within).await?;
        call.reaches(Stage::Judged);
        let quorum = session.quorum();
        quorum.replicated().read(|state| check_named(call.cluster(), state))?;
        if asked.coordinator_id != Some(quorum.id()) {
            quorum.transfer_lead(asked.coordinator_id).await?;
            call.reaches(Stage::Done);
        }
        Ok(LeadTransferred { leader_id: quorum.view().leader })
    }
}

/// Returns the change in progress, for people; `step`: the next step, which only the leading coordinator knows.
pub(in crate::service) fn pending(state: &ClusterState, step: Option<&QuorumStep>) -> Option<PendingQuorumChange> {
    let PendingChange { wish, who, at, .. } = state.coordinators.pending.as_ref()?;
    Some(PendingQuorumChange {
        change: wish.to_string(),
        next: step.map(next),
        began_at_ms: at.get(),
        by: state.cause(who),
    })
}

/// Maximum number of replicas named in one doubt.
const COPIES_NAMED_MAX: usize = 16;
/// Maximum number of doubts listed individually.
const DOUBTS_TOLD_MAX: usize = 100;

/// Returns the progress of a recovery, for people; `refused`: members of another history that ask to register, with the
/// reasons of their refusals.
pub(in crate::service) fn recovery(
    state: &ClusterState,
    refused: &BTreeMap<String, String>,
    standby: Option<Standby>,
) -> Option<QuorumRecovery> {
    let recovery = state.recovery.as_deref()?;
    if state.stands_by() || standby.is_some() {
        let asks = || Standby::new("the leading coordinator asks the former ones whether they work".to_owned());
        let Standby { text, is_quiet, needs_order } = standby.unwrap_or_else(asks);
        let kind = DoubtKind::FormerQuorum.into();
        let may_be_accepted = is_quiet && needs_order;
        let doubt = RecoveryDoubt { kind, about: "coordinators".to_owned(), text, may_be_accepted };
        return Some(QuorumRecovery {
            began_at_ms: recovery.begun.get(),
            base_index: recovery.base.get(),
            doubts: vec![doubt],
            doubts_total: 1,
        });
    }
    let doubts = doubts(state);
    Some(QuorumRecovery {
        began_at_ms: recovery.begun.get(),
        base_index: recovery.base.get(),
        doubts: doubts.iter().take(DOUBTS_TOLD_MAX).map(|doubt| told(state, doubt, refused)).collect(),
        doubts_total: u32::try_from(doubts.len()).unwrap_or(u32::MAX),
    })
}

fn told(state: &ClusterState, doubt: &Doubt, refused: &BTreeMap<String, String>) -> RecoveryDoubt {
    let refusal = |node| refused.get_key_value(&state.node_name(node));
    let (kind, subject, text) = match doubt {
        // It is alive, and nothing has to be given up for it.
        Doubt::Unheard { node, .. } if let Some((name, why)) = refusal(*node) => {
            (DoubtKind::OtherHistory, name.clone(), format!("it is refused: {why}"))
        }
        Doubt::Unheard { node, copies: None } => {
            let row = state.node(*node).map(|row| row.node.address.clone()).unwrap_or_default();
            (DoubtKind::Unheard, state.node_name(*node), format!("it has not registered; it was at {row}"))
        }
        Doubt::Unheard { node, copies: Some(copies) } => {
            (DoubtKind::Unheard, state.node_name(*node), format!("it has not reported {copies} of its replicas yet"))
        }
        Doubt::Behind { node, told } => {
            let base = state.recovery.as_ref().map_or(0, |recovery| recovery.base.get());
            let text = behind(told.get(), base);
            (DoubtKind::Behind, state.node_name(*node), text)
        }
        Doubt::OtherHistory { node } => {
            let text = "it belonged to a generation recovered from a different state: data written there is ignored, \
                        and stays on its disk until its replicas are up to date";
            (DoubtKind::OtherHistory, state.node_name(*node), text.to_owned())
        }
        Doubt::Older { node } => {
            let text = "its data directory is an older copy that lacks the newest writes of the node: its replicas are \
                        not in sync. Stop it and start it with its newest --data-dir, if that still exists";
            (DoubtKind::Older, state.node_name(*node), text.to_owned())
        }
        Doubt::Ranges { table } => {
            let text = "it is a range table, and the lost changes may include a split or merge: keys may be missing, \
                        or old values may reappear";
            let name = state.tables.get(table).map(|row| row.name.clone()).unwrap_or_default();
            (DoubtKind::Ranges, name, text.to_owned())
        }
        Doubt::NoCopy { partition } => {
            let text = "no node holds a replica of it: a lost change moved or dropped it, or its data is gone";
            (DoubtKind::NoCopy, state.partition_name(*partition), text.to_owned())
        }
        Doubt::Unknown { node, copies } => {
            let text = format!(
                "it holds {copies} replicas of unknown partitions ({}); they stay as they are",
                strange_copies(state, *node)
            );
            (DoubtKind::Unknown, state.node_name(*node), text)
        }
        Doubt::Contested { partition } => {
            let text = "the replica with the most entries knows an older epoch than another one: acknowledged writes of \
                        the last epoch may be undone";
            (DoubtKind::Contested, state.partition_name(*partition), text.to_owned())
        }
    };
    RecoveryDoubt { kind: kind.into(), about: subject, text, may_be_accepted: doubt.may_be_accepted() }
}

/// Lists the partitions of which a node holds replicas unknown to the state, by the numbers of their tables and their
/// own.
fn strange_copies(state: &ClusterState, node: NodeId) -> String {
    let inventory = state.recovery.as_ref().and_then(|recovery| recovery.inventories.get(&node));
    let strange = inventory.into_iter().flat_map(|inventory| inventory.copies.values().flatten());
    let mut strange = strange.map(|standing| standing.partition).filter(|id| state.partitions.get(*id).is_none());
    let mut text: Vec<String> = strange.by_ref().take(COPIES_NAMED_MAX).map(|id| id.to_string()).collect();
    text.extend(strange.next().map(|_| "…".to_owned()));
    text.join(", ")
}

/// Describes how far a state, which ends at `base`, is behind the last one that a node received.
fn behind(told: u64, base: u64) -> String {
    let go_on = "partitions continue from the replicas with the most entries";
    match generation_of(told) {
        // Numbers start over with each generation: the numbers between them do not count.
        later if later > generation_of(base) => {
            format!("it was in generation {later}, which is unknown here: all decisions in it are lost, and {go_on}")
        }
        _ => {
            let lost = told.saturating_sub(base);
            format!("it knows of changes up to entry {told}: up to {lost} of them are lost, and {go_on}")
        }
    }
}

/// Describes the condition for which a change of the quorum waits.
pub(in crate::service) fn next(step: &QuorumStep) -> String {
    match step {
        QuorumStep::Done => "done".to_owned(),
        QuorumStep::LeaveJoint => "switching to the new voters".to_owned(),
        QuorumStep::AddLearner(id, _) => format!("coordinator {id} is to copy the log"),
        QuorumStep::SetAddress(id, coordinator) => {
            format!("coordinator {id} is to be reached at {}", coordinator.address)
        }
        QuorumStep::CatchUp(id, Some(behind)) => {
            format!("coordinator {id} copies the log and lacks {behind} entries")
        }
        QuorumStep::CatchUp(id, None) => format!("coordinator {id} does not answer; it must copy the log first"),
        QuorumStep::GiveWay(_) => "another coordinator is to lead first".to_owned(),
        QuorumStep::SetVoters(voters) => format!("the voters are to be {}", coordinators(voters)),
        QuorumStep::Forget(gone) => format!("{} is to leave", coordinators(gone)),
    }
}

impl Call<'_> {
    /// Refuses a caller that uses another coordinator's name.
    fn check_coordinator(&self, id: u64) -> Result<(), ErrorDetail> {
        self.check_name("/archon.v1.Admin/JoinQuorum", Role::Coordinator, &id.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::first_number;

    #[test]
    fn gap_between_generations_is_not_counted_as_loss() {
        assert!(behind(120, 100).contains("up to 20 of them"), "{}", behind(120, 100));
        let later = behind(first_number(2) + 7, 220);
        assert!(later.contains("generation 2") && !later.contains("999"), "{later}");
    }
}
