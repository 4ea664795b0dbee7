//! Participants that wait for their duties: one poll of each, woken when a row with a placement of theirs changed.

use archon_coordinator_core::term::Told;
use archon_types::NodeId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;

/// A participant's poll.
#[derive(Default)]
struct Poll {
    told: Option<Told>,
    /// Rises with every poll: a newer one ends the one before, so that each participant has one at most.
    number: u64,
    wake: Arc<Notify>,
}

/// The polls of one term.
#[derive(Default)]
pub(crate) struct Polls {
    polls: Mutex<BTreeMap<NodeId, Poll>>,
}

impl Polls {
    /// A participant polls. Gives the poll's number, and what wakes it.
    pub(crate) fn begin(&self, member: NodeId) -> (u64, Arc<Notify>) {
        let mut polls = self.polls.lock();
        let poll = polls.entry(member).or_default();
        poll.number += 1;
        poll.wake.notify_waiters();
        (poll.number, Arc::clone(&poll.wake))
    }

    /// What the participant was told last in this term; `None` too if it has begun another poll.
    pub(crate) fn told(&self, member: NodeId, number: u64) -> Option<Option<Told>> {
        self.polls.lock().get(&member).filter(|poll| poll.number == number).map(|poll| poll.told)
    }

    /// Takes note of what it is told.
    pub(crate) fn tell(&self, member: NodeId, told: Told) {
        if let Some(poll) = self.polls.lock().get_mut(&member) {
            poll.told = Some(told);
        }
    }

    /// Something changed for these members.
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
