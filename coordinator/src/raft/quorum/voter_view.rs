//! The members of the quorum as one coordinator sees them.

use crate::quorum::timing::TooFar;
use crate::raft::log::low_space::LowSpace;
use archon_coordinator_core::{CoordinatorsSpeak, majority};
use archon_types::{CoordinatorRole, MemberCertificate, ProtocolRange};
use std::fmt;

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
    pub(crate) lack: Option<LowSpace>,
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

/// Returns the reason for which the quorum accepts no changes, in the view of the leader `me`: it has no space itself,
/// or too few reachable voters have. Proposals could not be committed then, and would fill the leader's own log.
pub(crate) fn read_only(me: u64, voters: &[VoterView]) -> Option<String> {
    let voters: Vec<&VoterView> = voters.iter().filter(|voter| voter.voter).collect();
    let lacking = |voter: &&&VoterView| voter.lack.is_some();
    let able = voters.iter().filter(|voter| voter.lack.is_none() && (voter.id == me || !voter.is_away())).count();
    let own = voters.iter().filter(lacking).any(|voter| voter.id == me);
    let few = able * 2 <= voters.len() && voters.iter().any(|voter| lacking(&voter));
    if !own && !few {
        return None;
    }
    let told: Vec<String> = voters.iter().filter_map(|voter| Some(format!("{voter}: {}", voter.lack?))).collect();
    let away = voters.iter().filter(|voter| voter.id != me && voter.lack.is_none() && voter.is_away());
    let told: Vec<String> = told.into_iter().chain(away.map(|voter| format!("{voter} does not answer"))).collect();
    Some(told.join("; "))
}
