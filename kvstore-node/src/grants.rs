//! What the coordinator has granted this incarnation, for all threads.

use arc_swap::ArcSwap;
use archon_member::{Heartbeats, LeaseAnswer, Taken};
use archon_proto::convert::session::Member;
use archon_types::{Epoch, Millis, Over, PartitionId};
use parking_lot::Mutex;
use std::sync::Arc;

/// The node's lease, written by the session and read by every shard just before an answer leaves.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    present: ArcSwap<archon_member::Grants>,
    /// Held while they are changed.
    changing: Mutex<()>,
}

impl Grants {
    /// No lease yet.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Takes in the answer to a heartbeat, as [`archon_member::Grants::take`] does.
    pub(crate) fn take(&self, heartbeats: &Heartbeats, answer: LeaseAnswer, now: Millis) -> Taken {
        self.change(|grants| grants.take(heartbeats, answer, now))
    }

    /// Ends the lease for good: this incarnation is over.
    pub(crate) fn end(&self) {
        self.change(archon_member::Grants::end);
    }

    /// Takes in word that a life is over, as [`archon_member::Grants::told_over`] does.
    pub(crate) fn told_over(&self, member: Member, over: Over) -> bool {
        self.change(|grants| grants.told_over(member.node, member.incarnation, over))
    }

    fn change<T>(&self, change: impl FnOnce(&mut archon_member::Grants) -> T) -> T {
        let _changing = self.changing.lock();
        let mut grants = archon_member::Grants::clone(&self.present.load());
        let result = change(&mut grants);
        self.present.store(Arc::new(grants));
        result
    }

    /// Whether the lease holds at `now`, whatever it covers.
    pub(crate) fn is_valid(&self, now: Millis) -> bool {
        self.present.load().is_valid(now)
    }

    /// Whether the lease covers the leadership of `partition` in `epoch` at `now`.
    pub(crate) fn covers(&self, partition: PartitionId, epoch: Epoch, now: Millis) -> bool {
        self.present.load().covers(partition, epoch, now)
    }

    /// When the lease ends, if there is one.
    pub(crate) fn until(&self) -> Option<Millis> {
        self.present.load().until()
    }
}
