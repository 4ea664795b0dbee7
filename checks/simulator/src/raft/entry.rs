//! Entries of the log.

use super::Membership;
use archon_coordinator_core::{ClusterState, CommandBatch, Response, apply, members_changed, skip};

/// Content of an entry.
#[derive(Clone, Debug)]
pub(crate) enum EntryContent {
    /// Nothing; it begins a term.
    Blank,
    /// Commands. They are void in another term than they were proposed in.
    Batch(CommandBatch),
    /// The membership from now on.
    Members(Membership),
}

/// An entry of the replicated log.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) term: u64,
    pub(crate) what: EntryContent,
}

impl Entry {
    /// Applies it to a state; returns the responses to its commands, empty if they are void.
    pub(crate) fn apply_to(&self, state: &mut ClusterState, index: u64) -> Vec<Response> {
        match &self.what {
            EntryContent::Batch(batch) if batch.term == self.term => return apply(state, index, batch),
            EntryContent::Members(membership) => {
                let (members, joint) = membership.members();
                members_changed(state, index, members, joint);
            }
            EntryContent::Batch(_) | EntryContent::Blank => skip(state, index),
        }
        Vec::new()
    }
}
