//! Validation of peers' messages before openraft receives them, because openraft trusts its peers: the maximum term
//! would end elections for good, entries with a gap would be stored and refused by the next start, and a snapshot that
//! contradicts its own header ends the process. Everything is checked before it is stored.

use crate::raft::types::{Entry, LogId, Membership, SnapshotMeta, TypeConfig, Vote};
use archon_coordinator_core::COORDINATORS_MAX;
use archon_types::limits::check_address;
use archon_types::{GENERATIONS_MAX, first_number};
use openraft::EntryPayload;
use openraft::raft::{
    AppendEntriesRequest, SnapshotResponse, StreamAppendError, StreamAppendResult, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use std::collections::BTreeSet;

/// Maximum distance of a peer's term above the own one. A voter that was cut off for years misses fewer elections, and
/// as many messages of this kind would be needed to reach the last term.
pub(crate) const TERM_JUMP_MAX: u64 = 1 << 32;

/// Maximum number of members in an entry: while one takes another's place, both are there.
const MEMBERS_MAX: usize = COORDINATORS_MAX + 1;

/// Facts by which a message is checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standard {
    /// The sender.
    pub(crate) sender: u64,
    /// The term of this voter's own vote.
    pub(crate) term: u64,
}

/// Description of the fault.
pub(crate) type Verdict = Result<(), String>;

/// A message or an answer of a peer.
pub(crate) trait PeerMessage {
    /// Checks that openraft may receive it.
    ///
    /// # Errors
    /// A statement that no coordinator following the protocol makes.
    fn judge(&self, by: Standard) -> Verdict;
}

impl Standard {
    /// Checks that a term is reachable.
    pub(in crate::raft) fn term(&self, term: u64) -> Verdict {
        match term.checked_sub(self.term) {
            // A voter that has never voted may have come to a quorum of any generation.
            Some(_) if self.term == 0 && term < first_number(GENERATIONS_MAX + 1) => Ok(()),
            Some(above) if above > TERM_JUMP_MAX => Err(format!(
                "term {term} of coordinator {} is more than {TERM_JUMP_MAX} above the own, {}: no election leads there",
                self.sender, self.term
            )),
            _ => Ok(()),
        }
    }

    /// Checks a vote by which its sender leads or asks to lead.
    fn own_vote(&self, vote: &Vote, committed: bool) -> Verdict {
        if vote.leader_id.voted_for != self.sender {
            return Err(format!(
                "coordinator {} speaks for coordinator {}; each speaks for itself",
                self.sender, vote.leader_id.voted_for
            ));
        }
        if vote.committed != committed {
            let of = if committed {
                "a leader's vote is one that was granted"
            } else {
                "a candidate's vote is not yet granted"
            };
            return Err(format!("the vote of coordinator {} contradicts that: {of}", self.sender));
        }
        self.term(vote.leader_id.term)
    }

    /// Checks the vote in an answer, for any candidate.
    fn any_vote(&self, vote: &Vote) -> Verdict {
        // A voter that has never voted reports term zero. The candidate of its vote need not be known here: a voter
        // that is behind does not know members that joined since.
        if vote.leader_id.term > 0 && vote.leader_id.voted_for == 0 {
            return Err(format!(
                "coordinator {} has a vote without a candidate in term {}",
                self.sender, vote.leader_id.term
            ));
        }
        self.term(vote.leader_id.term)
    }

    /// Checks that a quorum can continue with these members.
    fn members(&self, members: &Membership) -> Verdict {
        let refuse = |what: &str| Err(format!("coordinator {} names members of whom {what}", self.sender));
        let configs = members.get_joint_config();
        if !(1..=2).contains(&configs.len()) || configs.iter().any(BTreeSet::is_empty) {
            return refuse("none votes, or more change than two sets can say");
        }
        if members.nodes().count() > MEMBERS_MAX {
            return refuse("there are more than a quorum has");
        }
        if members.nodes().any(|(id, voter)| *id == 0 || check_address(&voter.address).is_err()) {
            return refuse("one has no number or no address");
        }
        if members.voter_ids().any(|id| members.get_node(&id).is_none()) {
            return refuse("a voter is none");
        }
        Ok(())
    }
}

/// Checks a position of the log under `vote`: none lies beyond the leader's own term.
fn under(what: &str, position: Option<&LogId>, vote: &Vote) -> Verdict {
    match position {
        Some(at) if at.leader_id.term > vote.leader_id.term => {
            Err(format!("{what} is of term {}, beyond its sender's own, {}", at.leader_id.term, vote.leader_id.term))
        }
        _ => Ok(()),
    }
}

/// Checks that entries follow on each other and on `before`.
fn follow_on(before: Option<&LogId>, entries: &[Entry]) -> Verdict {
    let mut last = before.copied();
    for entry in entries {
        let at = entry.log_id;
        let next = last.map_or(Some(0), |last| last.index.checked_add(1));
        // The log counts one higher than Raft does.
        if next != Some(at.index) || at.index >= u64::MAX - 1 {
            return Err(format!("entry {} does not follow on {:?}", at.index, last.map(|last| last.index)));
        }
        if last.is_some_and(|last| at.leader_id.term < last.leader_id.term) {
            return Err(format!("entry {} is of an older term than the one before it", at.index));
        }
        last = Some(at);
    }
    Ok(())
}

impl PeerMessage for AppendEntriesRequest<TypeConfig> {
    fn judge(&self, by: Standard) -> Verdict {
        by.own_vote(&self.vote, true)?;
        under("the entry before", self.prev_log_id.as_ref(), &self.vote)?;
        under("the committed entry", self.leader_commit.as_ref(), &self.vote)?;
        follow_on(self.prev_log_id.as_ref(), &self.entries)?;
        under("the last entry", self.entries.last().map(|entry| &entry.log_id), &self.vote)?;
        let mut members = self.entries.iter().filter_map(|entry| match &entry.payload {
            EntryPayload::Membership(members) => Some(members),
            _ => None,
        });
        members.try_for_each(|members| by.members(members))
    }
}

impl PeerMessage for VoteRequest<TypeConfig> {
    fn judge(&self, by: Standard) -> Verdict {
        by.own_vote(&self.vote, false)?;
        under("the candidate's last entry", self.last_log_id.as_ref(), &self.vote)
    }
}

impl PeerMessage for TransferLeaderRequest<TypeConfig> {
    fn judge(&self, by: Standard) -> Verdict {
        by.own_vote(self.from_leader(), true)?;
        under("the leader's last entry", self.last_log_id(), self.from_leader())
    }
}

/// Header of a snapshot: the vote of its sender, its end, and the number of bytes that follow.
pub(crate) type SnapshotHeader = (Vote, SnapshotMeta, u64);

impl PeerMessage for SnapshotHeader {
    fn judge(&self, by: Standard) -> Verdict {
        let (vote, meta, _) = self;
        by.own_vote(vote, true)?;
        if meta.last_log_id.is_none() {
            return Err("the snapshot ends nowhere".to_owned());
        }
        under("the snapshot's last entry", meta.last_log_id.as_ref(), vote)?;
        if *meta.last_membership.log_id() > meta.last_log_id {
            return Err("the snapshot's voters were set after its end".to_owned());
        }
        by.members(meta.last_membership.membership())
    }
}

/// Checks that a snapshot that ends at `last` can be of the log in which `committed` is known to be committed.
///
/// # Errors
/// It holds another entry in place of a committed one.
pub(crate) fn continues(last: Option<&LogId>, committed: Option<&LogId>) -> Verdict {
    match (last, committed) {
        (Some(last), Some(committed)) if last > committed && last.index <= committed.index => Err(format!(
            "the snapshot ends at entry {} of term {}, but entry {} of term {} is committed here",
            last.index, last.leader_id.term, committed.index, committed.leader_id.term
        )),
        _ => Ok(()),
    }
}

impl PeerMessage for VoteResponse<TypeConfig> {
    fn judge(&self, by: Standard) -> Verdict {
        by.any_vote(&self.vote)
    }
}

impl PeerMessage for SnapshotResponse<TypeConfig> {
    fn judge(&self, by: Standard) -> Verdict {
        by.any_vote(&self.vote)
    }
}

impl PeerMessage for StreamAppendResult<TypeConfig> {
    fn judge(&self, by: Standard) -> Verdict {
        match self {
            Err(StreamAppendError::HigherVote(vote)) => by.any_vote(vote),
            Ok(_) | Err(StreamAppendError::Conflict(_)) => Ok(()),
        }
    }
}

impl PeerMessage for TransferLeaderResponse<TypeConfig> {
    /// It is only logged.
    fn judge(&self, _: Standard) -> Verdict {
        Ok(())
    }
}
