//! Further views of Raft: the leader, confirmed reads, transfer of leadership. Code outside this folder does not see
//! openraft's types.

#[cfg(test)]
mod ended_tests;
#[cfg(test)]
mod fence_tests;
pub(crate) mod members;
pub(super) mod membership;
pub(super) mod propose;
mod rounds;
#[cfg(test)]
pub(super) mod test_founders;
pub(super) mod transfer;
pub(super) mod view;
pub(super) mod voter_reports;
pub(crate) mod voter_view;

use super::identity::generations::{Generations, Standby};
use super::log::log_space::LogSpace;
use super::log::store::LogSize;
use super::machine::ReplicatedState;
use super::machine::checksums::StateDifference;
use super::network::addresses::AddressChange;
use super::network::distances::Distances;
use super::network::hints::Hints;
use super::network::peer_lookup::PeerLookup;
use super::network::wire::LocalVoter;
use super::quorum::rounds::{Round, Rounds};
use super::quorum::voter_reports::VoterReports;
use super::types::{TypeConfig, Voter};
use crate::error::CoordinatorError;
use crate::quorum::timing::QuorumTiming;
use crate::raft::machine::raft::Raft;
use crate::raft::quorum::members::{addresses_of, members_to_ask};
use crate::raft::quorum::voter_view::spare;
use archon_coordinator_core::ClusterState;
use archon_telemetry::{Distribution, Histogram, LogReadings};
use archon_types::{ErrorDetail, ErrorKind, StorageId};
use archon_wal::Wal;
use openraft::ServerState;
use openraft::async_runtime::WatchReceiver as _;
use openraft::errors::{InitializeError, RaftError};
use openraft::metrics::RaftServerMetrics;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Maximum number of concurrent proposals; more are refused retryably.
const PROPOSALS_MAX: usize = 1_024;
/// Silence of a leader after which a coordinator does not follow it.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// Polling interval for states without a notification.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Measured durations.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// Duration from a proposal until it is applied.
    pub(super) commits: Histogram,
    /// Durations of the log's durable writes.
    syncs: Histogram,
}

/// The handle on Raft; clones share it.
#[derive(Clone)]
pub(crate) struct Quorum {
    pub(super) raft: Raft,
    pub(super) local_voter: LocalVoter,
    pub(super) proposals: Arc<Semaphore>,
    /// Coordinators known before the log named any.
    founders: Arc<BTreeMap<u64, String>>,
    replicated: Arc<ReplicatedState>,
    rounds: Rounds,
    wal: Wal,
    log_size: LogSize,
    times: Arc<Times>,
    pub(super) space: LogSpace,
    pub(super) voter_reports: VoterReports,
    introductions: PeerLookup,
    generations: Generations,
    hints: Hints,
    pub(super) distances: Distances,
}

/// A wait for changes of leadership.
pub(crate) struct Leadership {
    receiver: openraft::type_config::alias::WatchReceiverOf<TypeConfig, RaftServerMetrics<TypeConfig>>,
}

impl Leadership {
    /// Waits for a change since the last call; the first call may return at once.
    pub(crate) async fn changed(&mut self) {
        if self.receiver.changed().await.is_err() {
            // Raft ended: the waiting task checks its timer and its token.
            std::future::pending::<()>().await;
        }
    }
}

impl Quorum {
    /// Creates a handle on a running Raft. The rounds end with `stop`.
    pub(super) fn new(
        raft: Raft,
        local_voter: LocalVoter,
        founders: Arc<BTreeMap<u64, String>>,
        replicated: Arc<ReplicatedState>,
        (wal, log_size, space, voter_reports, introductions, generations, hints): (
            Wal,
            LogSize,
            LogSpace,
            VoterReports,
            PeerLookup,
            Generations,
            Hints,
        ),
        stop: &CancellationToken,
    ) -> (Self, tokio::task::JoinHandle<()>) {
        let (rounds, task) = Rounds::start(raft.clone(), local_voter.timing, stop.clone());
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
                generations,
                hints,
                distances: Distances::default(),
            },
            task,
        )
    }

    /// Returns heartbeat and election timing.
    pub(crate) fn timing(&self) -> QuorumTiming {
        self.local_voter.timing
    }

    /// Returns this coordinator's id.
    pub(crate) fn id(&self) -> u64 {
        self.local_voter.id
    }

    /// Returns the replicated state.
    pub(crate) fn replicated(&self) -> &Arc<ReplicatedState> {
        &self.replicated
    }

    /// Returns the log, for watching its progress.
    pub(crate) fn wal(&self) -> &Wal {
        &self.wal
    }

    /// Returns the sizes of the log's files.
    pub(crate) fn log_readings(&self) -> LogReadings {
        let progress = self.wal.progress();
        LogReadings {
            syncs: progress.fsyncs,
            batches: progress.batches,
            written_bytes: progress.bytes,
            sync_seconds: self.times.syncs.read(),
        }
    }

    /// Returns the encoded bytes of the entries that Raft's log holds in memory.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.log_size.bytes()
    }

    /// Returns the distribution of times from proposal to application.
    pub(crate) fn commit_times(&self) -> Distribution {
        self.times.commits.read()
    }

    /// Returns the measured durations.
    pub(super) fn times(&self) -> &Times {
        &self.times
    }

    /// Returns the key of the quorum, which messages between its members carry.
    pub(crate) fn key(&self) -> Uuid {
        self.local_voter.quorum
    }

    /// Returns the addresses of all members in the log.
    pub(crate) fn recorded_addresses(&self) -> BTreeMap<u64, String> {
        let members = addresses_of(self.raft.server_metrics().borrow_watched().membership_config.membership());
        if members.is_empty() { self.founders.as_ref().clone() } else { members }
    }

    /// Returns the current addresses of all members: those in the log, except for members found at another one.
    pub(crate) fn addresses(&self) -> BTreeMap<u64, String> {
        self.hints.reached_at(self.recorded_addresses())
    }

    /// Returns the members that answer at another address than the one in the log.
    pub(crate) fn found_elsewhere(&self) -> BTreeMap<u64, AddressChange> {
        self.hints.found()
    }

    /// Notes the address that a coordinator reports of itself; a member with this directory is searched for there.
    pub(crate) fn hear_address(&self, id: u64, storage: StorageId, address: &str) {
        let members = |state: &ClusterState| state.coordinators.members.get(&id).map(|member| member.storage);
        if self.replicated.read(members) == Some(storage) && id != self.local_voter.id {
            self.hints.hear(id, address);
        }
    }

    /// Returns the members that were not found at another address either, with the reason.
    pub(super) fn missing(&self) -> BTreeMap<u64, String> {
        self.hints.missing()
    }

    /// Returns the current addresses without numbers, for callers.
    pub(crate) fn coordinators(&self) -> Vec<String> {
        self.addresses().into_values().collect()
    }

    /// Returns true if this coordinator is no longer a member.
    pub(crate) fn is_removed(&self) -> bool {
        self.introductions.is_removed()
    }

    /// Returns the reason for which this coordinator must end, if others know more of its data directory than is in it.
    pub(crate) fn outdated(&self) -> Option<String> {
        self.local_voter.marks.outdated()
    }

    /// Returns the entry as of which this coordinator's state is not the majority's, if it is not.
    pub(crate) fn wrong_state(&self) -> Option<u64> {
        self.local_voter.checksums.wrong()
    }

    /// Returns the coordinators with differing states, as known to this one, which leads.
    pub(crate) fn differing_states(&self) -> BTreeMap<u64, StateDifference> {
        self.local_voter.checksums.differ()
    }

    /// Returns the duration of the newest checksum.
    pub(crate) fn checksum_took(&self) -> Duration {
        self.local_voter.checksums.took()
    }

    /// Returns the distribution of checksum durations.
    pub(crate) fn checksum_times(&self) -> Distribution {
        self.local_voter.checksums.times()
    }

    /// Returns the coordinators at members' addresses that live in a generation that does not continue this one's, each
    /// with its generation.
    pub(crate) fn other_generations(&self) -> BTreeMap<u64, u64> {
        self.generations.others()
    }

    /// Returns the coordinators at members' addresses that live in a later generation and wait for this one, each with
    /// its generation.
    pub(crate) fn waiting_generations(&self) -> BTreeMap<u64, u64> {
        self.generations.waiting()
    }

    /// Returns true if leases may be granted: no later generation has taken the place of this one.
    pub(crate) fn may_grant(&self) -> bool {
        self.generations.may_grant()
    }

    /// Sets or ends this leader's wait for the coordinators of other generations.
    pub(crate) fn set_standby(&self, standby: Option<Standby>) {
        self.generations.set_standby(standby);
    }

    /// Returns the reason for which no lease is granted after the last round of questions.
    pub(crate) fn blocked(&self) -> Option<String> {
        self.generations.blocked()
    }

    /// Returns the wait of this coordinator, which leads, for those of other generations.
    pub(crate) fn standby(&self) -> Option<Standby> {
        self.generations.standby()
    }

    /// Knowledge of other generations.
    pub(super) const fn generations(&self) -> &Generations {
        &self.generations
    }

    /// Addresses of the members that are asked for other generations.
    pub(super) fn members(&self) -> BTreeMap<u64, String> {
        members_to_ask(&self.raft, &self.replicated, &self.founders, self.local_voter.id)
    }

    /// Returns true if this coordinator follows a leader that it heard a short time ago.
    pub(super) fn hears_leader(&self) -> bool {
        self.introductions.hears_leader(self.local_voter.timing.silence(SILENCE_MAX))
    }

    /// Returns the generation that a recovery began without this coordinator, if one did.
    pub(crate) fn later_generation(&self) -> Option<u64> {
        self.generations.later()
    }

    /// Sets the first members: every coordinator of the peer list, each with its data directory.
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

    /// Returns the term in which this coordinator believes that it leads.
    pub(crate) fn leading_term(&self) -> Option<u64> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let leads = metrics.state == ServerState::Leader && metrics.current_leader == Some(self.local_voter.id);
        (leads && metrics.running_state.is_ok()).then_some(metrics.current_term)
    }

    /// Returns the leader's address, if another coordinator is known to lead.
    pub(crate) fn leader_address(&self) -> Option<String> {
        let leader = self.leader()?;
        // Raft also knows a leader from before a restart.
        if leader == self.local_voter.id || self.missing().contains_key(&leader) {
            return None;
        }
        self.addresses().remove(&leader)
    }

    /// Checks that a leader is known; for this coordinator itself, that more than half of all voters hear it.
    ///
    /// # Errors
    /// `NoQuorum`: no leader is known, or this coordinator leads and too few hear it.
    pub(crate) fn check_leader(&self) -> Result<(), ErrorDetail> {
        if self.standby().is_some() {
            return Err(self.not_leading());
        }
        if self.leading_term().is_none() {
            return if self.leader_address().is_some() { Ok(()) } else { Err(self.not_leading()) };
        }
        if spare(&self.view().voters).is_some() {
            Ok(())
        } else {
            Err(ErrorDetail::new(ErrorKind::NoQuorum, self.unconfirmed()))
        }
    }

    pub(super) fn leader(&self) -> Option<u64> {
        let metrics = self.raft.server_metrics();
        metrics.borrow_watched().current_leader
    }

    /// Returns the error for a request that only the leader may answer: names the leader, or states that none is known.
    pub(crate) fn not_leading(&self) -> ErrorDetail {
        if let Some(standby) = self.standby() {
            return ErrorDetail::new(ErrorKind::NoQuorum, standby.text).with_retry_after_ms(1_000);
        }
        match self.leader_address() {
            Some(address) => {
                let message = format!("coordinator {} does not lead; ask {address}", self.local_voter.id);
                ErrorDetail::new(ErrorKind::NotCoordinatorLeader, message).with_leader(Some(address))
            }
            None => {
                let message =
                    "no coordinator leads now; check that more than half of the coordinators run and reach each other";
                let missing = self.missing().into_values();
                let message = std::iter::once(message.to_owned()).chain(missing).collect::<Vec<_>>().join("; ");
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
            Round::Confirmed { term } => {
                self.generations.note_majority();
                Ok(term)
            }
            Round::NotLeading => Err(self.not_leading()),
            Round::NoQuorum => Err(ErrorDetail::new(ErrorKind::NoQuorum, self.unconfirmed()).with_retry_after_ms(100)),
            Round::Overloaded => {
                let message = "too many requests wait for a quorum round";
                Err(ErrorDetail::new(ErrorKind::Overloaded, message).with_retry_after_ms(50))
            }
        }
    }

    /// Returns a text for a failed round: the voters that do not answer.
    fn unconfirmed(&self) -> String {
        let voters = self.view().voters;
        let away: Vec<String> =
            voters.iter().filter(|voter| voter.voter && voter.is_away()).map(ToString::to_string).collect();
        let id = self.local_voter.id;
        match &away[..] {
            [] => format!("coordinator {id} leads, and too few of the others confirmed it in time"),
            [one] => format!("coordinator {id} leads, but {one} does not answer it"),
            _ => format!("coordinator {id} leads, but {} do not answer it", away.join(", ")),
        }
    }

    /// Returns a wait for possible changes of the leader, the term or the voter set.
    pub(crate) fn leadership(&self) -> Leadership {
        Leadership { receiver: self.raft.server_metrics() }
    }

    /// Returns once Raft no longer runs, for any reason; Raft reports the reason, except after a panic.
    pub(crate) async fn raft_ended(&self) {
        let mut metrics = self.raft.metrics();
        while metrics.changed().await.is_ok() {}
    }

    /// Makes Raft panic, as it does if one of its assumptions does not hold.
    #[cfg(test)]
    pub(super) async fn break_raft(&self) {
        // The call returns no result: Raft is gone.
        let _ = self.raft.with_raft_state(|_| panic!("broken by a test")).await;
    }

    /// Returns the reason for which the quorum accepts no changes now, as far as known to this coordinator, which
    /// leads.
    pub(crate) fn read_only(&self) -> Option<String> {
        // The common case, answered at once.
        if self.space.lack().is_none() && self.voter_reports.has_no_lack() {
            return None;
        }
        voter_view::read_only(self.local_voter.id, &self.view().voters)
    }

    /// Ends Raft.
    pub(crate) async fn shutdown(&self) {
        if let Err(error) = self.raft.shutdown().await {
            tracing::warn!(%error, "raft did not end cleanly");
        }
        self.replicated.end();
    }
}
