//! A coordinator of a quorum whose members change: its directory, its process, and who waits for it.

use crate::event::ProposalReply;
use crate::raft::{Disk, Voter};
use archon_coordinator_core::Response;
use std::collections::BTreeMap;

/// Why a process runs that is no member yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Begins {
    /// It is of the first ones, or was: it asks them whom they know.
    Founder,
    /// It asks to be let in, to become a voter or to stay a learner.
    Joins { voter: bool },
}

/// Who waits for an entry of the log, which is of this term.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) entry_term: u64,
    /// Of the proposal.
    pub(crate) term: u64,
    pub(crate) reply: Option<ProposalReply>,
    /// The name that a registration claims.
    pub(crate) claimed: Option<String>,
}

/// What an entry did for whoever waits for it.
pub(crate) type Answered = (Waiting, Vec<Response>);

/// Where the coordinator of this process listens until it moves.
pub(crate) fn first_address(number: usize) -> String {
    format!("c{number}:7000")
}

#[derive(Debug)]
pub(crate) struct Member {
    /// Where it listens.
    pub(crate) address: String,
    pub(crate) raft: Voter,
    pub(crate) begins: Begins,
    pub(crate) up: bool,
    /// Its process ended for good, or its machine is gone; nothing starts it again.
    pub(crate) ended: bool,
    /// Counts processes.
    pub(crate) boots: u64,
    /// How long no leader may be heard until it stands for election.
    pub(crate) election_timeout: u64,
    /// It was started elsewhere than the log says, and has the others told.
    pub(crate) moved: bool,
    pub(crate) waiting: BTreeMap<usize, Waiting>,
    /// The next step of a change is not looked for before this entry is applied, or this instant has come.
    pub(crate) steps_after: (usize, u64),
    /// The last term in which it was seen to lead.
    pub(crate) led: u64,
}

impl Member {
    pub(crate) fn new(address: String, disk: Disk, begins: Begins) -> Self {
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

    /// Whether its directory is what it was: somebody may start it again and it takes part.
    pub(crate) fn is_whole(&self) -> bool {
        !self.ended
    }
}
