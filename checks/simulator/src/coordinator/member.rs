//! A coordinator in a quorum with changing members: its directory, its process, and its waiting callers.

use crate::event::ProposalReply;
use crate::raft::{Disk, Voter};
use archon_coordinator_core::Response;
use std::collections::BTreeMap;

/// Reason why a process runs that is not yet a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StartReason {
    /// It is one of the first ones, or was: it asks them for their members.
    Founder,
    /// It requests admission, as a voter or as a permanent learner.
    Joins { voter: bool },
}

/// A caller that waits for a log entry of this term.
#[derive(Clone, Debug)]
pub(crate) struct WaitingCaller {
    pub(crate) entry_term: u64,
    /// Term of the proposal.
    pub(crate) term: u64,
    pub(crate) reply: Option<ProposalReply>,
    /// The name that a registration claims.
    pub(crate) claimed: Option<String>,
}

/// A waiting caller, and the result of its entry.
pub(crate) type EntryResult = (WaitingCaller, Vec<Response>);

/// Returns the address of a coordinator process before any move.
pub(crate) fn first_address(number: usize) -> String {
    format!("c{number}:7000")
}

#[derive(Debug)]
pub(crate) struct Member {
    /// Its address.
    pub(crate) address: String,
    pub(crate) raft: Voter,
    pub(crate) begins: StartReason,
    pub(crate) up: bool,
    /// Its process ended permanently, or its machine is lost; it is not restarted.
    pub(crate) ended: bool,
    /// Counter of processes.
    pub(crate) boots: u64,
    /// Time without a leader before it stands for election.
    pub(crate) election_timeout: u64,
    /// It was started at another address than the log's, and notifies the others.
    pub(crate) moved: bool,
    pub(crate) waiting: BTreeMap<usize, WaitingCaller>,
    /// The next step of a change waits for this entry to be applied, or for this instant.
    pub(crate) steps_after: (usize, u64),
    /// Last term in which it was seen to lead.
    pub(crate) led: u64,
}

impl Member {
    pub(crate) fn new(address: String, disk: Disk, begins: StartReason) -> Self {
        Self {
            address,
            raft: Voter::new(disk, 0, 0),
            begins,
            up: false,
            ended: false,
            boots: 0,
            election_timeout: 0,
            moved: false,
            waiting: BTreeMap::new(),
            steps_after: (0, 0),
            led: 0,
        }
    }

    /// Returns true if its directory is undamaged: restarted, it takes part.
    pub(crate) fn is_whole(&self) -> bool {
        !self.ended
    }
}

/// Returns the machine at an address.
pub(crate) fn host_of(address: &str) -> Option<usize> {
    address.strip_prefix('n')?.split(':').next()?.parse().ok()
}
