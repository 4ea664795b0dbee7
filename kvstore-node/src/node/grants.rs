//! Lease granted to this incarnation by the coordinator, for all threads.

use arc_swap::ArcSwap;
use archon_member::{GrantOutcome, Heartbeats, LeaseAnswer};
use archon_proto::convert::members::session::Member;
use archon_types::{Epoch, FencingProof, Millis, PartitionId};
use parking_lot::Mutex;
use std::sync::Arc;

/// The node's lease, written by the session and read by every shard just before an answer is sent.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    present: ArcSwap<archon_member::Grants>,
    /// Held during a change.
    changing: Mutex<()>,
}

impl Grants {
    /// Starts without a lease.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Processes the answer to a heartbeat, as [`archon_member::Grants::take`] does.
    pub(crate) fn take(&self, heartbeats: &Heartbeats, answer: LeaseAnswer, now: Millis) -> GrantOutcome {
        self.change(|grants| grants.take(heartbeats, answer, now))
    }

    /// Ends the lease for good: this incarnation is fenced.
    pub(crate) fn end(&self) {
        self.change(archon_member::Grants::end);
    }

    /// Processes a report that an incarnation is fenced, as [`archon_member::Grants::told_over`] does.
    pub(crate) fn told_over(&self, member: Member, over: FencingProof) -> bool {
        self.change(|grants| grants.told_over(member.node, member.incarnation, over))
    }

    fn change<T>(&self, change: impl FnOnce(&mut archon_member::Grants) -> T) -> T {
        let _changing = self.changing.lock();
        let mut grants = archon_member::Grants::clone(&self.present.load());
        let result = change(&mut grants);
        self.present.store(Arc::new(grants));
        result
    }

    /// Returns whether the lease is valid at `now`, whatever it covers.
    pub(crate) fn is_valid(&self, now: Millis) -> bool {
        self.present.load().is_valid(now)
    }

    /// Returns whether the lease covers the leadership of `partition` in `epoch` at `now`.
    pub(crate) fn covers(&self, partition: PartitionId, epoch: Epoch, now: Millis) -> bool {
        self.present.load().covers(partition, epoch, now)
    }

    /// Returns the end of the lease, if there is one.
    pub(crate) fn until(&self) -> Option<Millis> {
        self.present.load().until()
    }
}
