//! What coordinators say to each other.

use super::Entry;
use archon_coordinator_core::CoordinatorStanding;
use archon_types::StorageId;
use std::sync::Arc;

/// A message; whoever gets it judges by number and directory whether it hears it.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) from: u64,
    pub(crate) storage: StorageId,
    pub(crate) to: u64,
    pub(crate) body: Body,
}

/// What it says.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// Entries that follow on the one `before`, by place and term; none, to be heard.
    Append {
        term: u64,
        before: (usize, u64),
        entries: Vec<Arc<Entry>>,
        commit: usize,
    },
    /// Up to where the log is the leader's, or where to begin instead.
    Appended {
        term: u64,
        upto: Result<usize, usize>,
    },
    /// Would you hear me, if I stood for election? Whoever does not asks about the sender.
    Probe,
    /// A vote is asked for; the term and the place of the log's last entry.
    AskVote {
        term: u64,
        last: (u64, usize),
    },
    Vote {
        term: u64,
        granted: bool,
    },
    /// The leader has this one stand for election.
    TakeOver {
        term: u64,
    },
    /// What are I, and perhaps another one, to you?
    Hello {
        subject: Option<(u64, StorageId)>,
    },
    /// The answer to whoever has this directory.
    Known {
        asked: StorageId,
        standing: CoordinatorStanding,
        subject: Option<(u64, StorageId, CoordinatorStanding)>,
    },
}
