//! The rest of the coordinator's view of Raft: who leads, confirmed reads, handing leadership away. Nothing outside
//! this folder sees openraft's types.

use super::introductions::Introductions;
use super::lack::{self, Lack};
use super::log_space::LogSpace;
use super::machine::Replicated;
use super::rounds::{Round, Rounds};
use super::store::LogSize;
use super::types::{Raft, TypeConfig, Voter};
use super::voter_reports::VoterReports;
use super::wire::LocalVoter;
use crate::error::CoordinatorError;
use archon_telemetry::{Distribution, Histogram, LogReadings};
use archon_types::{CoordinatorRole, ErrorDetail, ErrorKind, MemberCertificate};
use archon_wal::Wal;
use openraft::async_runtime::WatchReceiver as _;
use openraft::errors::{InitializeError, RaftError};
use openraft::metrics::RaftServerMetrics;
use openraft::{Instant as _, ServerState};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Most proposals under way at once; more are refused retryably.
const PROPOSALS_MAX: usize = 1_024;
/// How long a leader may take to give way.
pub(crate) const TRANSFER_DEADLINE: Duration = Duration::from_secs(1);
/// A voter that is behind by no more than what may be under way counts as caught up.
const TRANSFER_LAG_MAX: u64 = 64;
/// How often a state that has no signal of its own is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// A member as this coordinator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VoterView {
    /// Its id.
    pub(crate) id: u64,
    /// Its address.
    pub(crate) address: String,
    /// What it is to the quorum.
    pub(crate) role: CoordinatorRole,
    /// Whether its vote counts.
    pub(crate) voter: bool,
    /// How far its log is behind the leader's, where this coordinator leads.
    pub(crate) entries_behind: Option<u64>,
    /// Why it takes nothing new into its log: of this coordinator itself, and of the others where this one leads.
    pub(crate) lack: Option<Lack>,
    /// Whether a snapshot of it waits for space on its disk, as far as this coordinator knows.
    pub(crate) snapshot_waits: bool,
    /// By which certificate it talks: of the others where this coordinator leads, if by TLS.
    pub(crate) certificate: Option<MemberCertificate>,
}

impl VoterView {
    /// Whether the leader, if this is its view, has not heard it for a second.
    pub(crate) fn is_away(&self) -> bool {
        self.role == CoordinatorRole::Unreachable
    }
}

impl fmt::Display for VoterView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "coordinator {} at {}", self.id, self.address)
    }
}

/// Raft as this coordinator sees it now; hints, not proof.
#[derive(Clone, Debug)]
pub(crate) struct QuorumView {
    /// This coordinator's id.
    pub(crate) id: u64,
    /// `leader`, `follower` or `candidate`.
    pub(crate) role: CoordinatorRole,
    /// Who leads, if known.
    pub(crate) leader: Option<u64>,
    /// The present term.
    pub(crate) term: u64,
    /// Index of the last entry in the log, zero if there is none.
    pub(crate) last_log_index: u64,
    /// Index of the last applied entry, zero if there is none.
    pub(crate) applied_index: u64,
    /// The members, learners included.
    pub(crate) voters: Vec<VoterView>,
    /// Why Raft ended, if it did.
    pub(crate) fatal: Option<String>,
}

/// How long things take.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// From a proposal until it is applied.
    pub(super) commits: Histogram,
    /// The log's durable writes.
    syncs: Histogram,
}

/// The handle on Raft; clones share it.
#[derive(Clone)]
pub(crate) struct Quorum {
    pub(super) raft: Raft,
    pub(super) local_voter: LocalVoter,
    pub(super) proposals: Arc<Semaphore>,
    /// Whom it knew before the log named anybody.
    founders: Arc<BTreeMap<u64, String>>,
    replicated: Arc<Replicated>,
    rounds: Rounds,
    wal: Wal,
    log_size: LogSize,
    times: Arc<Times>,
    pub(super) space: LogSpace,
    voter_reports: VoterReports,
    introductions: Introductions,
}

/// A wait for changes of leadership.
pub(crate) struct Leadership {
    receiver: openraft::type_config::alias::WatchReceiverOf<TypeConfig, RaftServerMetrics<TypeConfig>>,
}

impl Leadership {
    /// Waits for a change since the last call; the first call may return at once.
    pub(crate) async fn changed(&mut self) {
        if self.receiver.changed().await.is_err() {
            // Raft ended: whoever waits looks at its timer and its token.
            std::future::pending::<()>().await;
        }
    }
}

impl Quorum {
    /// A handle on a running Raft. The rounds end with `stop`.
    pub(super) fn new(
        raft: Raft,
        local_voter: LocalVoter,
        founders: Arc<BTreeMap<u64, String>>,
        replicated: Arc<Replicated>,
        (wal, log_size, space, voter_reports, introductions): (Wal, LogSize, LogSpace, VoterReports, Introductions),
        stop: &CancellationToken,
    ) -> (Self, tokio::task::JoinHandle<()>) {
        let (rounds, task) = Rounds::start(raft.clone(), stop.clone());
        let proposals = Arc::new(Semaphore::new(PROPOSALS_MAX));
        let times = Arc::new(Times::default());
        let counted = Arc::clone(&times);
        wal.observe_syncs(move |took| counted.syncs.observe(took));
        (
            Self {
                raft,
                local_voter,
                proposals,
                founders,
                replicated,
                rounds,
                wal,
                log_size,
                times,
                space,
                voter_reports,
                introductions,
            },
            task,
        )
    }

    /// This coordinator's id.
    pub(crate) fn id(&self) -> u64 {
        self.local_voter.id
    }

    /// The replicated state.
    pub(crate) fn replicated(&self) -> &Arc<Replicated> {
        &self.replicated
    }

    /// The log's files, for watching their progress.
    pub(crate) fn wal(&self) -> &Wal {
        &self.wal
    }

    /// The sizes of the log's files.
    pub(crate) fn log_readings(&self) -> LogReadings {
        let progress = self.wal.progress();
        LogReadings {
            syncs: progress.fsyncs,
            batches: progress.batches,
            written_bytes: progress.bytes,
            sync_seconds: self.times.syncs.read(),
        }
    }

    /// Encoded bytes of the entries that Raft's log holds in memory.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.log_size.bytes()
    }

    /// How long proposals took until they were applied.
    pub(crate) fn commit_times(&self) -> Distribution {
        self.times.commits.read()
    }

    /// How long things take, to be counted.
    pub(super) fn times(&self) -> &Times {
        &self.times
    }

    /// The key of the quorum, which messages between its members carry.
    pub(crate) fn key(&self) -> Uuid {
        self.local_voter.quorum
    }

    /// The addresses of all members, as the log has them.
    pub(crate) fn addresses(&self) -> BTreeMap<u64, String> {
        let metrics = self.raft.server_metrics();
        let members = Arc::clone(&metrics.borrow_watched().membership_config);
        match members.nodes().next() {
            Some(_) => members.nodes().map(|(id, voter)| (*id, voter.address.clone())).collect(),
            None => self.founders.as_ref().clone(),
        }
    }

    /// The same without numbers, for those who call them.
    pub(crate) fn coordinators(&self) -> Vec<String> {
        self.addresses().into_values().collect()
    }

    /// Whether this coordinator is no member any more.
    pub(crate) fn is_removed(&self) -> bool {
        self.introductions.is_removed()
    }

    /// Makes the first members: every coordinator of the peer list, each with its data directory.
    pub(crate) async fn initialize(&self, storages: &BTreeMap<u64, Uuid>) -> Result<(), CoordinatorError> {
        let mut voters = BTreeMap::new();
        for (id, address) in self.founders.iter() {
            let Some(storage) = storages.get(id) else { continue };
            voters.insert(*id, Voter { address: address.clone(), storage: *storage });
        }
        match self.raft.initialize(voters).await {
            Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(()),
            Err(error) => Err(CoordinatorError::Raft { what: error.to_string() }),
        }
    }

    /// The term in which this coordinator believes that it leads.
    pub(crate) fn leading_term(&self) -> Option<u64> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let leads = metrics.state == ServerState::Leader && metrics.current_leader == Some(self.local_voter.id);
        (leads && metrics.running_state.is_ok()).then_some(metrics.current_term)
    }

    /// The leader's address, if another coordinator is known to lead.
    pub(crate) fn leader_address(&self) -> Option<String> {
        let leader = self.leader()?;
        if leader == self.local_voter.id {
            return None;
        }
        self.addresses().remove(&leader)
    }

    /// Whether somebody is known to lead; of this coordinator itself, if more than half of all hear it.
    ///
    /// # Errors
    /// `NoQuorum`: nobody is, or this coordinator leads and too few hear it.
    pub(crate) fn check_leader(&self) -> Result<(), ErrorDetail> {
        if self.leading_term().is_none() {
            return if self.leader_address().is_some() { Ok(()) } else { Err(self.not_leading()) };
        }
        let voters: Vec<VoterView> = self.view().voters.into_iter().filter(|voter| voter.voter).collect();
        let heard = voters.iter().filter(|voter| !voter.is_away()).count();
        if heard * 2 > voters.len() { Ok(()) } else { Err(ErrorDetail::new(ErrorKind::NoQuorum, self.unconfirmed())) }
    }

    fn leader(&self) -> Option<u64> {
        let metrics = self.raft.server_metrics();
        metrics.borrow_watched().current_leader
    }

    /// Why this coordinator cannot answer what only the leader may: who does, or that nobody is known to.
    pub(crate) fn not_leading(&self) -> ErrorDetail {
        match self.leader_address() {
            Some(address) => {
                let message = format!("coordinator {} does not lead; ask {address}", self.local_voter.id);
                ErrorDetail::new(ErrorKind::NotCoordinatorLeader, message).with_leader(Some(address))
            }
            None => {
                let message =
                    "no coordinator leads now; check that more than half of the coordinators run and reach each other";
                ErrorDetail::new(ErrorKind::NoQuorum, message).with_retry_after_ms(100)
            }
        }
    }

    /// Confirms by a quorum round, begun after this call, that this coordinator leads; its state then holds every
    /// change answered before. Returns the term.
    ///
    /// # Errors
    /// `NotCoordinatorLeader`, `NoQuorum` when the round did not finish in time, `Overloaded`.
    pub(crate) async fn confirm(&self, within: Duration) -> Result<u64, ErrorDetail> {
        match self.rounds.wait(within).await {
            Round::Confirmed { term } => Ok(term),
            Round::NotLeading => Err(self.not_leading()),
            Round::NoQuorum => Err(ErrorDetail::new(ErrorKind::NoQuorum, self.unconfirmed()).with_retry_after_ms(100)),
            Round::Overloaded => {
                let message = "too many requests wait for a quorum round";
                Err(ErrorDetail::new(ErrorKind::Overloaded, message).with_retry_after_ms(50))
            }
        }
    }

    /// Why a round came to nothing: who does not answer.
    fn unconfirmed(&self) -> String {
        let voters = self.view().voters;
        let away: Vec<String> =
            voters.iter().filter(|voter| voter.voter && voter.is_away()).map(ToString::to_string).collect();
        let id = self.local_voter.id;
        match away.is_empty() {
            true => format!("coordinator {id} leads, and too few of the others confirmed it in time"),
            false => format!("coordinator {id} leads, but {} do not answer it", away.join(", ")),
        }
    }

    /// Raft as it looks from here.
    pub(crate) fn view(&self) -> QuorumView {
        // The borrow is short: holding it would freeze the core.
        let metrics = self.raft.metrics().borrow_watched().clone();
        let role = |state: ServerState| match state {
            ServerState::Leader => CoordinatorRole::Leader,
            ServerState::Candidate => CoordinatorRole::Candidate,
            _ => CoordinatorRole::Follower,
        };
        let last_log_index = metrics.last_log_index.unwrap_or(0);
        let leads = metrics.state == ServerState::Leader;
        let members = &metrics.membership_config;
        let votes: BTreeSet<u64> = members.voter_ids().collect();
        let addresses = self.addresses();
        let voters = addresses.iter().map(|(id, address)| {
            // Before the log names anybody those who found the quorum are meant.
            let voter = votes.is_empty() || votes.contains(id);
            let matched = metrics.replication.as_ref().and_then(|all| all.get(id)).copied().flatten();
            let heard = metrics.heartbeat.as_ref().and_then(|all| all.get(id)).copied().flatten();
            let behind = matched.map(|matched| last_log_index.saturating_sub(matched.index));
            let silent = heard.is_none_or(|heard| heard.elapsed() > Duration::from_secs(1));
            let role = match () {
                () if *id == self.local_voter.id && voter => role(metrics.state),
                () if metrics.current_leader == Some(*id) => CoordinatorRole::Leader,
                () if leads && silent && *id != self.local_voter.id => CoordinatorRole::Unreachable,
                () if !voter => CoordinatorRole::Learner,
                () => CoordinatorRole::Follower,
            };
            let behind = if *id == self.local_voter.id { leads.then_some(0) } else { behind };
            let lack = match () {
                () if *id == self.local_voter.id => self.space.lack(),
                () if leads && !silent => self.voter_reports.lack(*id),
                () => None,
            };
            let snapshot_waits = match () {
                () if *id == self.local_voter.id => self.replicated.snapshot_waits(),
                () => leads && !silent && self.voter_reports.snapshot_waits(*id),
            };
            let certificate = self.voter_reports.certificate(*id).filter(|_| leads && !silent);
            let address = address.clone();
            VoterView { id: *id, address, role, voter, entries_behind: behind, lack, snapshot_waits, certificate }
        });
        QuorumView {
            id: self.local_voter.id,
            role: role(metrics.state),
            leader: metrics.current_leader,
            term: metrics.current_term,
            last_log_index,
            applied_index: metrics.last_applied.map_or(0, |id| id.index),
            voters: voters.collect(),
            fatal: metrics.running_state.as_ref().err().map(ToString::to_string),
        }
    }

    /// Tells when who leads, the term or the voter set may have changed.
    pub(crate) fn leadership(&self) -> Leadership {
        Leadership { receiver: self.raft.server_metrics() }
    }

    /// Why the quorum takes no changes now, as far as this coordinator knows, which leads.
    pub(crate) fn read_only(&self) -> Option<String> {
        // Nearly always, and at once.
        if self.space.lack().is_none() && self.voter_reports.has_no_lack() {
            return None;
        }
        lack::read_only(self.local_voter.id, &self.view().voters)
    }

    /// Whether another coordinator that has space could take over from this one, which has none.
    pub(super) fn should_give_way(&self) -> bool {
        if self.space.lack().is_none() || self.leading_term().is_none() {
            return false;
        }
        let voters = self.view().voters;
        let able = |voter: &VoterView| {
            let near = voter.entries_behind.is_some_and(|behind| behind <= TRANSFER_LAG_MAX);
            voter.voter && voter.id != self.local_voter.id && near && voter.lack.is_none() && !voter.is_away()
        };
        voters.iter().any(able)
    }

    /// Hands leadership to the voter that is nearest to the end of the log, if this coordinator leads and one has it
    /// all; to one without space on its disk only if no other can have it. Returns whether another one took over within a second.
    pub(crate) async fn give_way(&self) -> bool {
        let voters = self.view().voters.into_iter().filter(|voter| voter.voter);
        self.give_way_to(&voters.map(|voter| voter.id).collect()).await
    }

    /// As [`Quorum::give_way`], to one of these.
    pub(super) async fn give_way_to(&self, among: &BTreeSet<u64>) -> bool {
        let Some(term) = self.leading_term() else { return true };
        let view = self.view();
        let able = view
            .voters
            .iter()
            .filter(|voter| among.contains(&voter.id) && voter.id != self.local_voter.id)
            .filter(|voter| voter.role == CoordinatorRole::Follower);
        let able = able.filter_map(|voter| Some((voter.lack.is_some(), voter.entries_behind?, voter.id)));
        let Some((_, _, next)) = able.filter(|(_, behind, _)| *behind <= TRANSFER_LAG_MAX).min() else { return false };
        if let Err(error) = self.raft.trigger().transfer_leader(next).await {
            tracing::warn!(%error, "leadership could not be handed over");
            return false;
        }
        tracing::info!(to = next, term, "handing leadership over");
        let waited = tokio::time::timeout(TRANSFER_DEADLINE, async {
            while self.leader().is_none_or(|leader| leader == self.local_voter.id) {
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        });
        waited.await.is_ok()
    }

    /// Whether this voter could lead now.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn may_lead(&self, view: &QuorumView, id: u64) -> Result<(), ErrorDetail> {
        let refuse = |kind, why: String| Err(ErrorDetail::new(kind, why));
        match view.voters.iter().find(|voter| voter.id == id) {
            None => refuse(ErrorKind::NotFound, format!("there is no coordinator {id}")),
            Some(voter) if !voter.voter => {
                refuse(ErrorKind::Refused, format!("coordinator {id} is a learner: promote it first"))
            }
            Some(voter) if voter.is_away() => {
                refuse(ErrorKind::Refused, format!("coordinator {id} does not answer; start it first"))
            }
            Some(voter) => match voter.entries_behind {
                Some(behind) if behind <= TRANSFER_LAG_MAX => Ok(()),
                _ => refuse(
                    ErrorKind::Refused,
                    format!("coordinator {id} has not caught up with the log; try again in a moment"),
                ),
            },
        }
    }

    /// Why a hand-over of the lead came to nothing.
    pub(super) fn nobody_took_over(&self, to: Option<u64>) -> ErrorDetail {
        let whom = to.map_or_else(|| "no other coordinator has".to_owned(), |to| format!("coordinator {to} has not"));
        let message =
            format!("{whom} taken the lead within {} s; see `archon quorum list`", TRANSFER_DEADLINE.as_secs());
        ErrorDetail::new(ErrorKind::Unavailable, message).with_retry_after_ms(500)
    }

    /// Ends Raft.
    pub(crate) async fn shutdown(&self) {
        if let Err(error) = self.raft.shutdown().await {
            tracing::warn!(%error, "raft did not end cleanly");
        }
        self.replicated.end();
    }
}
