//! Loading: a replica that is not in sync catches up from the leader's log like a follower, or pulls a copy first if
//! that log no longer reaches back far enough.

use crate::message::{Body, Position, ReplicaAddress};
use crate::mutant::Mutant;
use crate::output::Output;
use crate::replica::Replica;
use archon_types::{Epoch, ReplicaState, Seq, Version};

/// A copy being pulled.
#[derive(Debug)]
pub(crate) struct PullState {
    pub(crate) number: u64,
    pub(crate) leader: ReplicaAddress,
    /// The epoch that its source leads: in another one the source may have discarded its data.
    pub(crate) epoch: Epoch,
    /// Pages are pulled only after this write: if the process ends in mid-copy, no record may remain that claims the
    /// discarded data.
    after_token: u64,
    started: bool,
}

impl Replica {
    /// Handles a leader's log that begins after `base`: discards the stored data and pulls a copy, if this replica
    /// certainly lacks entries that the leader can no longer send.
    pub(crate) fn fall_behind(&mut self, from: ReplicaAddress, epoch: Epoch, base: Position, out: &mut Vec<Output>) {
        // A delayed message must never reset a replica that has caught up meanwhile: an in-sync one holds every
        // committed position, and a leader trims its log only below its commit position.
        let row = self.configuration.as_ref().map(|configuration| &configuration.row);
        let own = row.and_then(|row| row.placement(self.identity.placement));
        let loading = own.is_some_and(|own| own.state == ReplicaState::Load);
        let lacking = base.seq > self.log.base().seq && !self.log.holds(base);
        let already = self.copying.as_ref().is_some_and(|copying| copying.leader == from && copying.epoch == epoch);
        if !loading || !lacking || already {
            return;
        }
        self.stop_copy(out);
        if self.log.last() != Position::ZERO {
            self.writes.reset(Position::ZERO);
            self.log.reset(Position::ZERO);
            self.commit = Seq::ZERO;
        }
        if let Some(following) = &mut self.following {
            following.unmatch();
        }
        self.copies += 1;
        let after_token = self.writes.token_of_gathered();
        self.copying = Some(PullState { number: self.copies, leader: from, epoch, after_token, started: false });
        self.start_copy(out);
    }

    /// Lets the shell pull pages, once the old log is certainly gone from the disk.
    pub(crate) fn start_copy(&mut self, out: &mut Vec<Output>) {
        let Some(copying) = &mut self.copying else { return };
        if copying.started || !self.writes.is_done(copying.after_token) {
            return;
        }
        copying.started = true;
        out.push(Output::StartCopy { copy: copying.number, leader: copying.leader, epoch: copying.epoch });
    }

    /// Ends the present copy if its source no longer leads the epoch in which it began: a replica that does not lead
    /// may be reset at any time, and keeps no log for others.
    pub(crate) fn stop_orphaned_copy(&mut self, out: &mut Vec<Output>) {
        let Some(row) = self.configuration.as_ref().map(|configuration| &configuration.row) else { return };
        let orphaned = self.copying.as_ref().is_some_and(|copying| {
            row.epoch > copying.epoch || (row.epoch == copying.epoch && row.leader != Some(copying.leader.placement))
        });
        if orphaned && !self.breaks(Mutant::KeepsOrphanedCopy) {
            self.stop_copy(out);
        }
    }

    /// Ends a copy that is no longer useful.
    pub(crate) fn stop_copy(&mut self, out: &mut Vec<Output>) {
        if let Some(PullState { number, started: true, .. }) = self.copying.take() {
            out.push(Output::StopCopy { copy: number });
        }
    }

    /// Completes a copy: the log continues after `at`, as a follower's.
    pub(crate) fn copied(&mut self, number: u64, at: Position, version: Version, out: &mut Vec<Output>) {
        let Some(copying) = self.copying.take_if(|copying| copying.number == number && copying.started) else { return };
        self.copied_at = version;
        if at.epoch > self.epoch {
            self.epoch = at.epoch;
            self.writes.epoch(at.epoch);
            self.following = None;
        }
        self.writes.reset(at);
        self.log.reset(at);
        self.commit = at.seq;
        if let Some(following) = &mut self.following {
            following.unmatch();
        }
        let body = Body::Nack { refused: Position::ZERO, hint: at, copying: false };
        self.send(copying.leader, self.epoch, body, out);
    }
}
