//! Following: the accepted leader and entries, truncation, and acknowledgements (rule 10).

use crate::message::{Body, Entry, Position, ReplicaAddress};
use crate::mutant::Mutant;
use crate::output::{Alarm, Output};
use crate::replica::{Replica, Role};
use archon_types::{Epoch, Fact, Millis, Seq};

/// The leader of the present epoch, as its follower sees it.
#[derive(Debug)]
pub(crate) struct FollowedLeader {
    pub(crate) leader: ReplicaAddress,
    /// Position up to which our log equals the leader's; `None` until a first position matched in this epoch.
    pub(crate) matched: Option<Seq>,
    /// The highest commit position from the leader.
    commit: Seq,
    /// End of the log with which the leader began: earlier leaders may have answered for any of it.
    start: Seq,
    /// Position up to which we acknowledged.
    acked: Seq,
    ack_due: bool,
    adopted_due: Option<Position>,
    /// Time of the last append that was accepted.
    heard: Option<Millis>,
}

impl FollowedLeader {
    fn new(leader: ReplicaAddress) -> Self {
        Self {
            leader,
            matched: None,
            commit: Seq::ZERO,
            start: Seq::ZERO,
            acked: Seq::ZERO,
            ack_due: false,
            adopted_due: None,
            heard: None,
        }
    }

    /// Resets the match, as the log restarts.
    pub(crate) fn unmatch(&mut self) {
        *self = Self { commit: self.commit, start: self.start, ..Self::new(self.leader) };
    }
}

impl Replica {
    /// Handles a message by which a leader changes stored data.
    pub(crate) fn follow(
        &mut self,
        now: Millis,
        from: ReplicaAddress,
        epoch: Epoch,
        body: Body,
        out: &mut Vec<Output>,
    ) {
        if epoch < self.epoch && !self.breaks(Mutant::FollowOldEpoch) {
            self.refuse_epoch(from, out);
            return;
        }
        if !self.follows(from, epoch, out) || self.alarmed == Some(epoch) {
            return;
        }
        if let Body::Behind { base } = body {
            self.fall_behind(from, epoch, base, out);
            return;
        }
        if self.copying.as_ref().is_some_and(|copying| copying.leader != from || copying.epoch != epoch) {
            self.stop_copy(out);
        }
        if self.copying.is_some() {
            let body = Body::Nack { refused: Position::ZERO, hint: Position::ZERO, copying: true };
            self.send(from, epoch, body, out);
            return;
        }
        match body {
            Body::Adopt { at, start, commit } => self.on_append(now, from, epoch, (at, start, commit), None, out),
            Body::Append { before, entries, start, commit } => {
                self.on_append(now, from, epoch, (before, start, commit), Some(entries), out);
            }
            Body::Adopted { .. }
            | Body::Ack { .. }
            | Body::Nack { .. }
            | Body::Behind { .. }
            | Body::Confirm { .. }
            | Body::Confirmed { .. } => {}
        }
        self.answer_leader(out);
    }

    /// Returns when this replica accepted the last append of its leader, if it knows committed all that the leader has
    /// announced as committed and all that earlier leaders may have answered for, and knows of no newer leader.
    pub fn level_since(&self) -> Option<Millis> {
        let row = &self.configuration.as_ref()?.row;
        let following = self.following.as_ref().filter(|_| row.epoch <= self.epoch)?;
        let start = if self.breaks(Mutant::LevelBeforeStart) { Seq::ZERO } else { following.start }; // rule 33
        let is_level = following.commit.max(start) <= self.commit;
        following.heard.filter(|_| is_level)
    }

    /// Makes `from` the leader to follow in `epoch`, unless there is another or there can be none.
    fn follows(&mut self, from: ReplicaAddress, epoch: Epoch, out: &mut Vec<Output>) -> bool {
        let row = self.configuration.as_ref().map(|configuration| &configuration.row);
        if row.is_some_and(|row| row.epoch == epoch && row.leader != Some(from.placement)) {
            return false;
        }
        let leads = row.is_some_and(|row| row.epoch == epoch && row.leader == Some(from.placement));
        let followed = self.following.as_ref().is_some_and(|following| epoch == self.epoch && following.leader == from);
        if !followed && !self.can_lead(from, epoch) {
            return false;
        }
        if epoch > self.epoch {
            let led = match &self.role {
                Role::Lead(lead) => Some(lead.epoch),
                Role::Released { epoch, .. } => Some(*epoch),
                Role::Follow => None,
            };
            self.step_down(out);
            self.role = Role::Follow;
            if let Some(led) = led {
                self.overtaken_perhaps(led, epoch);
            }
            self.epoch = epoch;
            if self.breaks(Mutant::EpochVolatile) {
                self.epoch_durable = epoch;
            } else {
                self.writes.epoch(epoch);
            }
            self.following = Some(FollowedLeader::new(from));
            return true;
        }
        if !matches!(self.role, Role::Follow) {
            return false; // our own epoch: no other replica leads it
        }
        // Another one was followed in an epoch before it was granted: the row decides.
        if !followed && leads && !self.breaks(Mutant::FirstHeardStays) {
            self.stop_copy(out);
            self.following = None;
        }
        self.following.get_or_insert_with(|| FollowedLeader::new(from)).leader == from
    }

    /// Returns whether `from` can be a leader unknown to this replica (rule 25): a placement of the row, on the node
    /// that it sends from, in an epoch that elections can have reached. A placement newer than the row is followed once
    /// the row is known here; until then the leader asks again.
    fn can_lead(&self, from: ReplicaAddress, epoch: Epoch) -> bool {
        let row = self.configuration.as_ref().map(|configuration| &configuration.row);
        let named = row.is_some_and(|row| row.placement(from.placement).is_some_and(|known| known.node == from.node));
        (named || self.breaks(Mutant::FollowStranger)) && self.believes(epoch)
    }

    /// Returns whether an epoch is possible by the row known here.
    pub(crate) fn believes(&self, epoch: Epoch) -> bool {
        let row = self.configuration.as_ref().map(|configuration| &configuration.row);
        row.is_none_or(|row| row.may_reach(epoch)) || self.breaks(Mutant::AnyEpochBelieved)
    }

    /// Handles appends; `Adopt` is an empty append that asks about one position.
    fn on_append(
        &mut self,
        now: Millis,
        from: ReplicaAddress,
        epoch: Epoch,
        (before, start, commit): (Position, Seq, Seq),
        entries: Option<Vec<Entry>>,
        out: &mut Vec<Output>,
    ) {
        let adopt = entries.is_none();
        let entries = entries.unwrap_or_default();
        if !is_sound(epoch, before, &entries) || self.writes.bytes() > self.limits.unpersisted_bytes_max {
            return; // malformed, or more than the disk can absorb: the leader will ask again
        }
        if self.engine_lags && !entries.is_empty() {
            if let Some(following) = &mut self.following {
                following.commit = following.commit.max(commit);
            }
            return; // more than the engine can absorb: the leader will ask again
        }
        // Everything committed in an older epoch was in the leader's log when its own epoch began.
        let older = self.log.epoch_at(self.commit).is_some_and(|found| found < epoch);
        if older && start < self.commit && !self.breaks(Mutant::NoCut) && !self.breaks(Mutant::CutCommitted) {
            self.alarm(from, epoch, start, out);
            return;
        }
        let by_number = self.breaks(Mutant::NoCut) && before.seq <= self.log.last().seq;
        if !self.log.holds(before) && !by_number {
            if self.engine_lags
                && !adopt
                && let Some(following) = &mut self.following
                && following.matched.is_some()
            {
                // It left entries unanswered and lost none: the leader would send them again at once after a refusal.
                // Only committed rows leave memory, so the commit position is taken.
                following.commit = following.commit.max(commit);
                following.ack_due = true;
                return;
            }
            let hint = self.log.floor(before).unwrap_or(self.log.base());
            self.send(from, epoch, Body::Nack { refused: before, hint, copying: false }, out);
            return;
        }
        let mut held = before.seq;
        for entry in entries {
            let seq = entry.at.seq;
            match self.log.epoch_at(seq) {
                // Below the base everything is committed, so it is the same.
                None if seq <= self.log.base().seq => {}
                Some(known) if known == entry.at.epoch || self.breaks(Mutant::NoCut) => {}
                conflict => {
                    if conflict.is_some() && !self.cut(from, epoch, held, out) {
                        return;
                    }
                    self.writes.entry(entry.clone());
                    self.log.push(entry);
                }
            }
            held = seq;
        }
        let Some(following) = &mut self.following else { return };
        let matched = following.matched.map_or(held, |matched| matched.max(held));
        following.matched = Some(matched);
        following.commit = following.commit.max(commit);
        following.start = following.start.max(start);
        following.heard = Some(now);
        if adopt {
            following.adopted_due = Some(before);
        } else {
            following.ack_due = true;
        }
        // Entries beyond the leader's whole old log that are not of its epoch diverge.
        let beyond = matched.next().and_then(|next| self.log.epoch_at(next));
        if matched >= start && beyond.is_some_and(|found| found < epoch) && !self.breaks(Mutant::NoCut) {
            self.cut(from, epoch, matched, out);
        }
    }

    /// Cuts the tail after `after`, the point of match; refuses to cut committed entries.
    fn cut(&mut self, from: ReplicaAddress, epoch: Epoch, after: Seq, out: &mut Vec<Output>) -> bool {
        if after < self.commit && !self.breaks(Mutant::CutCommitted) {
            self.alarm(from, epoch, after, out);
            return false;
        }
        self.writes.cut(after);
        self.log.cut(after);
        true
    }

    fn alarm(&mut self, leader: ReplicaAddress, epoch: Epoch, agreed: Seq, out: &mut Vec<Output>) {
        self.alarmed = Some(epoch);
        self.following = None;
        let own = self.identity.placement;
        out.push(Output::Alarm(Alarm::LostData { leader, epoch, own, commit: self.commit, agreed }));
        self.report(epoch, Fact::LostData { leader: leader.placement, commit: self.commit, agreed }, out);
    }

    /// Acknowledges durable entries to the leader, and advances the commit position over the match with it.
    pub(crate) fn answer_leader(&mut self, out: &mut Vec<Output>) {
        let undurable = self.breaks(Mutant::AckUndurable); // rule 20
        let durable = if undurable { self.log.last().seq } else { self.log.durable() };
        let (epoch, unmatched) = (self.epoch, self.breaks(Mutant::CommitUnmatched));
        if self.epoch_durable < epoch {
            return; // the epoch is persisted before anything is acknowledged under it
        }
        let Some(following) = &mut self.following else { return };
        let Some(matched) = following.matched else { return };
        let (held, to) = (matched.min(durable), following.leader);
        let commit = following.commit.min(if unmatched { durable } else { held });
        if let Some(at) = following.adopted_due.take() {
            (following.acked, following.ack_due) = (held, held < matched);
            self.send(to, epoch, Body::Adopted { at, held }, out);
        } else if held > following.acked || (following.ack_due && held == matched) {
            (following.acked, following.ack_due) = (held, held < matched);
            self.send(to, epoch, Body::Ack { held }, out);
        }
        if commit > self.commit {
            self.commit = commit;
            out.push(Output::Commit { upto: commit });
            self.evict();
        }
    }

    pub(crate) fn refuse_epoch(&self, to: ReplicaAddress, out: &mut Vec<Output>) {
        let body = Body::Nack { refused: Position::ZERO, hint: Position::ZERO, copying: false };
        self.send(to, self.epoch, body, out);
    }
}

/// Returns whether entries follow each other and `before`, in epochs that neither fall nor exceed the leader's.
fn is_sound(epoch: Epoch, before: Position, entries: &[Entry]) -> bool {
    let mut at = before;
    for entry in entries {
        if at.seq.next() != Some(entry.at.seq) || entry.at.epoch < at.epoch || entry.at.epoch == Epoch::ZERO {
            return false;
        }
        at = entry.at;
    }
    at.epoch <= epoch
}
