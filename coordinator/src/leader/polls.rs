//! Polls of participants for their duties, woken when a row with a placement of theirs changed, or an order that
//! concerns them. `core` decides which poll is parked, and its answer.

use archon_coordinator_core::ClusterState;
use archon_coordinator_core::term::{self, Poll, PollAnswer};
use archon_types::{ErrorDetail, Incarnation, NodeId, Version};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;

/// The polls of one term.
#[derive(Default)]
pub(crate) struct Polls {
    polls: Mutex<term::Polls>,
    wakes: Mutex<BTreeMap<NodeId, Arc<Notify>>>,
}

impl Polls {
    /// Begins a participant's poll. Returns it with the notification that wakes it.
    pub(crate) fn begin(
        &self,
        member: NodeId,
        incarnation: Incarnation,
        obeyed: (u64, Version),
    ) -> (Poll, Arc<Notify>) {
        let poll = self.polls.lock().begin(member, incarnation, obeyed);
        let mut wakes = self.wakes.lock();
        let wake = wakes.entry(member).or_default();
        // The previous poll ends.
        wake.notify_waiters();
        (poll, Arc::clone(wake))
    }

    /// Answers a poll, as [`term::Polls::answer`].
    ///
    /// # Errors
    /// Like [`term::Polls::answer`].
    pub(crate) fn answer(&self, state: &ClusterState, term: u64, poll: Poll) -> Result<PollAnswer, ErrorDetail> {
        self.polls.lock().answer(state, term, poll)
    }

    /// Wakes the polls of these members.
    pub(crate) fn wake(&self, members: impl Iterator<Item = NodeId>) {
        let wakes = self.wakes.lock();
        for wake in members.filter_map(|member| wakes.get(&member)) {
            wake.notify_waiters();
        }
    }

    /// Forgets participants that are gone.
    pub(crate) fn retain(&self, keep: impl Fn(NodeId) -> bool) {
        self.polls.lock().retain(&keep);
        self.wakes.lock().retain(|member, _| keep(*member));
    }
}
