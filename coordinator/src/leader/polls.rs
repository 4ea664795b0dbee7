//! Polls of participants for their duties: one of each, woken when a row with a placement of theirs changed, or an order
//! that concerns them.

use archon_coordinator_core::term::SentDuties;
use archon_types::NodeId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;

/// A participant's poll.
#[derive(Default)]
struct Poll {
    told: Option<SentDuties>,
    /// Rises with every poll: a newer one ends the previous one, so that each participant has at most one.
    number: u64,
    wake: Arc<Notify>,
}

/// The polls of one term.
#[derive(Default)]
pub(crate) struct Polls {
    polls: Mutex<BTreeMap<NodeId, Poll>>,
}

impl Polls {
    /// Begins a participant's poll. Returns its number, and the notification that wakes it.
    pub(crate) fn begin(&self, member: NodeId) -> (u64, Arc<Notify>) {
        let mut polls = self.polls.lock();
        let poll = polls.entry(member).or_default();
        poll.number += 1;
        poll.wake.notify_waiters();
        (poll.number, Arc::clone(&poll.wake))
    }

    /// Returns the last duties sent to the participant in this term; `None` if it has begun another poll.
    pub(crate) fn told(&self, member: NodeId, number: u64) -> Option<Option<SentDuties>> {
        self.polls.lock().get(&member).filter(|poll| poll.number == number).map(|poll| poll.told)
    }

    /// Records the duties sent to it.
    pub(crate) fn tell(&self, member: NodeId, told: SentDuties) {
        if let Some(poll) = self.polls.lock().get_mut(&member) {
            poll.told = Some(told);
        }
    }

    /// Wakes the polls of these members.
    pub(crate) fn wake(&self, members: impl Iterator<Item = NodeId>) {
        let polls = self.polls.lock();
        for poll in members.filter_map(|member| polls.get(&member)) {
            poll.wake.notify_waiters();
        }
    }

    /// Forgets participants that are gone.
    pub(crate) fn retain(&self, keep: impl Fn(NodeId) -> bool) {
        self.polls.lock().retain(|member, _| keep(*member));
    }
}
