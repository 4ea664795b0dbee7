//! What a peer may say before openraft hears it, which takes its peers at their word: a term beyond which nobody can count
//! would end elections for good, entries with a hole would be stored and refused by the next start, and a snapshot that
//! contradicts its own header ends the process. All of it is judged before anything is stored.

use super::types::{Entry, LogId, Membership, SnapshotMeta, TypeConfig, Vote};
use archon_coordinator_core::COORDINATORS_MAX;
use archon_types::limits::check_address;
use archon_types::{GENERATIONS_MAX, first_number};
use openraft::EntryPayload;
use openraft::raft::{
    AppendEntriesRequest, SnapshotResponse, StreamAppendError, StreamAppendResult, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use std::collections::BTreeSet;

/// How far a term may lie above the own. A voter that was cut off for years misses fewer elections, and as many messages of
/// this kind would be needed to reach the last term.
pub(crate) const TERM_JUMP_MAX: u64 = 1 << 32;

/// Most members that an entry may name: while one takes another's place, both are there.
const MEMBERS_MAX: usize = COORDINATORS_MAX + 1;

/// What a message is judged by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standard {
    /// The peer that sent it.
    pub(crate) sender: u64,
    /// The term of this voter's own vote.
    pub(crate) term: u64,
}

/// What is wrong with a message, in words.
pub(crate) type Verdict = Result<(), String>;

/// A message or an answer of a peer.
pub(crate) trait Judged {
    /// Whether openraft may hear it.
    ///
    /// # Errors
    /// What a coordinator that follows the protocol never says.
    fn judge(&self, by: Standard) -> Verdict;
}

impl Standard {
    /// A term that can be reached.
    pub(super) fn term(&self, term: u64) -> Verdict {
        match term.checked_sub(self.term) {
            // Whoever has never voted has come to a quorum that may be of any generation.
            Some(_) if self.term == 0 && term < first_number(GENERATIONS_MAX + 1) => Ok(()),
            Some(above) if above > TERM_JUMP_MAX => Err(format!(
                "term {term} of coordinator {} is more than {TERM_JUMP_MAX} above the own, {}: no election leads there",
                self.sender, self.term
            )),
            _ => Ok(()),
        }
    }

    /// A vote that its sender leads by, or asks for.
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
            return Err(format!("the vote of coordinator {} says otherwise: {of}", self.sender));
        }
        self.term(vote.leader_id.term)
    }

    /// A vote of whoever answers, for whoever it is.
    fn any_vote(&self, vote: &Vote) -> Verdict {
        // Who has never voted says so by term zero. Whom it has voted for need not be known here: one that is behind does not
        // know who has joined since.
        if vote.leader_id.term > 0 && vote.leader_id.voted_for == 0 {
            return Err(format!("coordinator {} has voted for nobody in term {}", self.sender, vote.leader_id.term));
        }
        self.term(vote.leader_id.term)
    }

    /// Members with whom a quorum can go on.
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

/// A position of the log under `vote`: none lies beyond the leader's own term.
fn under(what: &str, position: Option<&LogId>, vote: &Vote) -> Verdict {
    match position {
        Some(at) if at.leader_id.term > vote.leader_id.term => {
            Err(format!("{what} is of term {}, beyond its sender's own, {}", at.leader_id.term, vote.leader_id.term))
        }
        _ => Ok(()),
    }
}

/// Entries that follow on each other and on `before`.
fn follow_on(before: Option<&LogId>, entries: &[Entry]) -> Verdict {
    let mut last = before.copied();
    for entry in entries {
        let at = entry.log_id;
        let next = last.map_or(Some(0), |last| last.index.checked_add(1));
        // The log counts one further than Raft does.
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

impl Judged for AppendEntriesRequest<TypeConfig> {
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

impl Judged for VoteRequest<TypeConfig> {
    fn judge(&self, by: Standard) -> Verdict {
        by.own_vote(&self.vote, false)?;
        under("the candidate's last entry", self.last_log_id.as_ref(), &self.vote)
    }
}

impl Judged for TransferLeaderRequest<TypeConfig> {
    fn judge(&self, by: Standard) -> Verdict {
        by.own_vote(self.from_leader(), true)?;
        under("the leader's last entry", self.last_log_id(), self.from_leader())
    }
}

/// The header of a snapshot: whose it is, where it ends, and how many bytes follow.
pub(crate) type SnapshotHeader = (Vote, SnapshotMeta, u64);

impl Judged for SnapshotHeader {
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

/// Whether a snapshot that ends at `last` can be of the log of which `committed` is known to be committed.
///
/// # Errors
/// It holds another entry where one is committed.
pub(crate) fn continues(last: Option<&LogId>, committed: Option<&LogId>) -> Verdict {
    match (last, committed) {
        (Some(last), Some(committed)) if last > committed && last.index <= committed.index => Err(format!(
            "the snapshot ends at entry {} of term {}, but entry {} of term {} is committed here",
            last.index, last.leader_id.term, committed.index, committed.leader_id.term
        )),
        _ => Ok(()),
    }
}

impl Judged for VoteResponse<TypeConfig> {
    fn judge(&self, by: Standard) -> Verdict {
        by.any_vote(&self.vote)
    }
}

impl Judged for SnapshotResponse<TypeConfig> {
    fn judge(&self, by: Standard) -> Verdict {
        by.any_vote(&self.vote)
    }
}

impl Judged for StreamAppendResult<TypeConfig> {
    fn judge(&self, by: Standard) -> Verdict {
        match self {
            Err(StreamAppendError::HigherVote(vote)) => by.any_vote(vote),
            Ok(_) | Err(StreamAppendError::Conflict(_)) => Ok(()),
        }
    }
}

impl Judged for TransferLeaderResponse<TypeConfig> {
    /// It is only logged.
    fn judge(&self, _: Standard) -> Verdict {
        Ok(())
    }
}
