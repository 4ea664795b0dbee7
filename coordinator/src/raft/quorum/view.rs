//! The quorum as one coordinator sees it.

use super::Quorum;
use crate::quorum::timing::TooFar;
use crate::raft::log::lack::Lack;
use archon_coordinator_core::CoordinatorsSpeak;
use archon_coordinator_core::majority;
use archon_types::{CoordinatorRole, MemberCertificate, ProtocolRange};
use openraft::async_runtime::WatchReceiver as _;
use openraft::{Instant as _, ServerState};
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

/// A member as this coordinator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VoterView {
    /// Its id.
    pub(crate) id: u64,
    /// Its address.
    pub(crate) address: String,
    /// Round trip to it, if that is too long for the quorum's timing.
    pub(crate) too_far: Option<TooFar>,
    /// Reason for which it was not found at another address either, if it was searched for.
    pub(crate) missing: Option<String>,
    /// Its role in the quorum.
    pub(crate) role: CoordinatorRole,
    /// True if its vote counts.
    pub(crate) voter: bool,
    /// Number of entries by which its log is behind the leader's, if this coordinator leads.
    pub(crate) entries_behind: Option<u64>,
    /// Reason for which it accepts nothing new into its log: for this coordinator itself, and for others if this one
    /// leads.
    pub(crate) lack: Option<Lack>,
    /// True if a snapshot of it waits for space on its disk, as far as this coordinator knows.
    pub(crate) snapshot_waits: bool,
    /// Its certificate: for others if this coordinator leads, and TLS is used.
    pub(crate) certificate: Option<MemberCertificate>,
    /// Its protocols: for this coordinator itself, and for others if this one leads and hears them.
    pub(crate) speaks: Option<ProtocolRange>,
}

impl VoterView {
    /// Returns true if the leader, in its own view, has not heard this voter for one second or four heartbeats, the longer of both.
    pub(crate) fn is_away(&self) -> bool {
        self.role == CoordinatorRole::Unreachable
    }
}

/// Returns the number of voters that may still fail, in the leader's view; `None` if too few answer already.
pub(crate) fn spare(voters: &[VoterView]) -> Option<usize> {
    let votes = voters.iter().filter(|voter| voter.voter);
    let heard = votes.clone().filter(|voter| !voter.is_away()).count();
    heard.checked_sub(majority(votes.count()))
}

#[cfg(test)]
impl VoterView {
    /// Creates a voter without further facts.
    pub(crate) fn of(id: u64, role: CoordinatorRole) -> Self {
        Self {
            id,
            address: format!("127.0.0.1:{id}"),
            too_far: None,
            missing: None,
            role,
            voter: true,
            entries_behind: None,
            lack: None,
            snapshot_waits: false,
            certificate: None,
            speaks: None,
        }
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
    /// The leader, if known.
    pub(crate) leader: Option<u64>,
    /// The present term.
    pub(crate) term: u64,
    /// Index of the last entry in the log, zero if there is none.
    pub(crate) last_log_index: u64,
    /// Index of the last applied entry, zero if there is none.
    pub(crate) applied_index: u64,
    /// The members, learners included.
    pub(crate) voters: Vec<VoterView>,
    /// Reason for which Raft ended, if it did.
    pub(crate) fatal: Option<String>,
}

impl QuorumView {
    /// Returns the protocols of each member, as far as known here.
    pub(crate) fn coordinators_speak(&self) -> CoordinatorsSpeak {
        self.voters.iter().map(|voter| (voter.id, voter.speaks)).collect()
    }
}

impl Quorum {
    /// Returns Raft's state in this coordinator's view.
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
        let silence = self.timing().silence(Duration::from_secs(1));
        let (addresses, mut missing) = (self.recorded_addresses(), self.missing());
        let voters = addresses.iter().map(|(id, address)| {
            // Before the log names members, the founders count.
            let voter = votes.is_empty() || votes.contains(id);
            let matched = metrics.replication.as_ref().and_then(|all| all.get(id)).copied().flatten();
            let heard = metrics.heartbeat.as_ref().and_then(|all| all.get(id)).copied().flatten();
            let behind = matched.map(|matched| last_log_index.saturating_sub(matched.index));
            let silent = heard.is_none_or(|heard| heard.elapsed() > silence);
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
                () if *id == self.local_voter.id => self.replicated().snapshot_waits(),
                () => leads && !silent && self.voter_reports.snapshot_waits(*id),
            };
            let certificate = self.voter_reports.certificate(*id).filter(|_| leads && !silent);
            let speaks = match () {
                () if *id == self.local_voter.id => Some(self.local_voter.spoken.range()),
                () if leads && !silent => self.voter_reports.speaks(*id),
                () => None,
            };
            let refusal = || self.voter_reports.refusal(*id).filter(|_| leads && silent);
            let refusal = || refusal().map(|why| format!("coordinator {id} does not answer at {address}: {why}"));
            VoterView {
                id: *id,
                address: address.clone(),
                too_far: self.distances.too_far(*id),
                missing: missing.remove(id).or_else(refusal),
                role,
                voter,
                entries_behind: behind,
                lack,
                snapshot_waits,
                certificate,
                speaks,
            }
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
}
