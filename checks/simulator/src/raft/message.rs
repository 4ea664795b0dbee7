//! Messages between coordinators.

use super::Entry;
use archon_coordinator_core::CoordinatorStanding;
use archon_types::StorageId;
use std::sync::Arc;

/// A message; the receiver accepts it by number and directory.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) from: u64,
    pub(crate) storage: StorageId,
    pub(crate) to: u64,
    pub(crate) body: Body,
}

/// Content.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// Entries that follow on the one `before`, by position and term; empty as a heartbeat.
    Append {
        term: u64,
        before: (usize, u64),
        entries: Vec<Arc<Entry>>,
        commit: usize,
    },
    /// Position up to which the log matches, or where to begin instead.
    Appended {
        term: u64,
        upto: Result<usize, usize>,
    },
    /// Asks whether the receiver would hear the sender as a candidate. If not, it asks about the sender.
    Probe,
    /// Asks for a vote, with the term and the position of the log's last entry.
    AskVote {
        term: u64,
        last: (u64, usize),
    },
    Vote {
        term: u64,
        granted: bool,
    },
    /// The leader asks this one to stand for election.
    TakeOver {
        term: u64,
    },
    /// Asks what the sender, and possibly another one, is to the receiver.
    Hello {
        subject: Option<(u64, StorageId)>,
    },
    /// The answer to the process with this directory.
    Known {
        asked: StorageId,
        standing: CoordinatorStanding,
        subject: Option<(u64, StorageId, CoordinatorStanding)>,
    },
}
