//! Leading: proposals, appends to followers and loaders, acknowledgements, the commit position, hand-over.

use crate::confirm::ReadConfirmations;
use crate::live_set::Requests;
use crate::message::{Body, Entry, Position, ReplicaAddress};
use crate::mutant::Mutant;
use crate::output::Output;
use crate::progress::Progress;
use crate::replica::{Replica, Role};
use archon_types::{Epoch, ErrorKind, Fact, Incarnation, Millis, PartitionStatus, PlacementId, ReplicaState, Seq};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

/// An uncommitted proposal.
#[derive(Debug)]
pub(crate) struct Proposal {
    pub(crate) seq: Seq,
    pub(crate) ticket: u64,
    pub(crate) bytes: usize,
}

/// One leadership.
#[derive(Debug)]
pub(crate) struct Lead {
    pub(crate) epoch: Epoch,
    /// True once the take-over is done.
    pub(crate) serving: bool,
    /// True if it is ready, but the coordinator has not recorded yet that this partition has a leader.
    pub(crate) announced: bool,
    /// The end of the log when the epoch began.
    pub(crate) start: Seq,
    /// The replica that leads next, once all proposals are committed.
    pub(crate) handing: Option<PlacementId>,
    /// Time at which its lease ended for good.
    pub(crate) withdrawn: Option<Millis>,
    pub(crate) followers: BTreeMap<PlacementId, Progress>,
    pub(crate) proposals: VecDeque<Proposal>,
    pub(crate) proposals_bytes: usize,
    pub(crate) requests: Requests,
    pub(crate) confirms: ReadConfirmations,
    pub(crate) reads: u64,
    pub(crate) online_reported: Millis,
}

impl Lead {
    pub(crate) fn new(epoch: Epoch, start: Seq) -> Self {
        Self {
            epoch,
            serving: false,
            announced: false,
            start,
            handing: None,
            withdrawn: None,
            followers: BTreeMap::new(),
            proposals: VecDeque::new(),
            proposals_bytes: 0,
            requests: Requests::default(),
            confirms: ReadConfirmations::default(),
            reads: 0,
            online_reported: Millis::ZERO,
        }
    }

    /// Returns whether this leadership is ending.
    pub(crate) fn is_ending(&self) -> bool {
        self.handing.is_some() || self.withdrawn.is_some()
    }
}

impl Replica {
    /// Applies a configuration of the epoch that it leads: the other replicas, and the answer to its request if the
    /// version has risen.
    pub(crate) fn learn(&mut self, now: Millis, risen: bool) {
        let end = self.log.last();
        let (own, resend_ms) = (self.identity.placement, self.timing().resend_ms());
        let any_life = self.breaks(Mutant::AckOfOtherLife);
        let (Role::Lead(lead), Some(configuration)) = (&mut self.role, &self.configuration) else { return };
        let row = &configuration.row;
        if risen {
            lead.requests.take_answer(row, now, resend_ms);
        }
        let others = || row.placements.iter().filter(|other| other.id != own && other.state != ReplicaState::Unload);
        lead.followers.retain(|placement, _| others().any(|other| other.id == *placement));
        for other in others() {
            let peer = configuration.peers.get(&other.id);
            let incarnation = peer.map_or(Incarnation::ZERO, |peer| peer.incarnation);
            let address = ReplicaAddress { placement: other.id, node: other.node, incarnation };
            // Another incarnation of the same replica has acknowledged nothing (rule 11).
            if any_life && let Some(known) = lead.followers.get_mut(&other.id) {
                known.address = address;
            }
            if lead.followers.get(&other.id).is_none_or(|known| known.address != address) {
                lead.followers.insert(other.id, Progress::new(address, end, now));
                lead.confirms.forget(other.id);
                // A back-off because of the former incarnation does not apply to this one.
                lead.requests.add_backoff.remove(&other.id);
                lead.requests.candidate.take_if(|(placement, _)| *placement == other.id);
            }
            if let Some(progress) = lead.followers.get_mut(&other.id) {
                let counts = other.state == ReplicaState::Live;
                if progress.counts && !counts {
                    // It was probably dropped because it is silent or about to exit, so it must answer before it
                    // counts again. Even then its addition waits, as it may answer once more and exit; but not if the
                    // partition stalls without it.
                    *progress = Progress::new(address, end, now);
                    if row.live().count() >= usize::from(row.min_in_sync) {
                        lead.requests.delay_addition(other.id, now, resend_ms);
                    }
                }
                progress.counts = counts;
                progress.failed = peer.is_some_and(|peer| peer.failed);
                if progress.failed {
                    lead.requests.candidate.take_if(|(placement, _)| *placement == other.id);
                }
                if other.state != ReplicaState::Live {
                    progress.confirm_since = None; // a replica that is not in sync owes no confirmation
                }
            }
        }
    }

    /// Returns whether a proposal of `bytes` may be logged.
    pub(crate) fn may_propose(&self, bytes: usize) -> Result<(), ErrorKind> {
        let Role::Lead(lead) = &self.role else { return Err(ErrorKind::NotPartitionLeader) };
        if !lead.serving || lead.is_ending() {
            return Err(ErrorKind::Unavailable);
        }
        if self.read_only {
            return Err(ErrorKind::ReadOnly);
        }
        let enough = self.is_enough() || self.breaks(Mutant::CommitBelowMin);
        if !enough || (lead.requests.stalled && !self.breaks(Mutant::AdmitStalled)) {
            return Err(ErrorKind::NotEnoughReplicas); // rule 2
        }
        let full = lead.proposals.len() >= self.limits.uncommitted_entries_max
            || (lead.proposals_bytes > 0
                && lead.proposals_bytes.saturating_add(bytes) > self.limits.uncommitted_bytes_max);
        if full { Err(ErrorKind::Overloaded) } else { Ok(()) }
    }

    pub(crate) fn propose(&mut self, ticket: u64, bytes: Bytes, out: &mut Vec<Output>) {
        if let Err(kind) = self.may_propose(bytes.len()) {
            out.push(Output::Refuse { ticket, kind });
            return;
        }
        let (Role::Lead(lead), Some(seq)) = (&mut self.role, self.log.last().seq.next()) else {
            out.push(Output::Refuse { ticket, kind: ErrorKind::Internal });
            return;
        };
        let at = Position::new(lead.epoch, seq);
        lead.proposals.push_back(Proposal { seq, ticket, bytes: bytes.len() });
        lead.proposals_bytes += bytes.len();
        let entry = Entry { at, bytes };
        self.writes.entry(entry.clone());
        self.log.push(entry);
        out.push(Output::Accepted { ticket, at });
    }

    /// Commits the entries that every counted replica holds durably.
    pub(crate) fn advance_commit(&mut self, out: &mut Vec<Output>) {
        let Role::Lead(lead) = &self.role else { return };
        if !lead.serving || !(self.is_enough() || self.breaks(Mutant::CommitBelowMin)) {
            return;
        }
        let undurable = self.breaks(Mutant::AckUndurable); // rule 20
        let mut upto = if undurable { self.log.last().seq } else { self.log.durable() };
        if upto <= self.commit {
            return;
        }
        let counted = if self.breaks(Mutant::AnswerBeforeCommit) { Vec::new() } else { self.counted() };
        for placement in counted {
            upto = upto
                .min(lead.followers.get(&placement).filter(|peer| peer.matched).map_or(Seq::ZERO, |peer| peer.acked));
        }
        if upto <= self.commit {
            return;
        }
        self.commit = upto;
        out.push(Output::Commit { upto });
        if let Role::Lead(lead) = &mut self.role {
            while lead.proposals.front().is_some_and(|proposal| proposal.seq <= upto) {
                if let Some(proposal) = lead.proposals.pop_front() {
                    lead.proposals_bytes -= proposal.bytes;
                }
            }
        }
    }

    /// Returns the progress of the replica with exactly this address, if this replica leads `epoch`.
    pub(crate) fn progress(&mut self, from: ReplicaAddress, epoch: Epoch) -> Option<&mut Progress> {
        let (any_epoch, any_life) = (self.breaks(Mutant::AckOfOtherEpoch), self.breaks(Mutant::AckOfOtherLife));
        match &mut self.role {
            Role::Lead(lead) if lead.epoch == epoch || any_epoch => {
                lead.followers.get_mut(&from.placement).filter(|progress| progress.address == from || any_life)
            }
            Role::Lead(_) | Role::Released { .. } | Role::Follow => None,
        }
    }

    pub(crate) fn on_adopted(
        &mut self,
        now: Millis,
        from: ReplicaAddress,
        epoch: Epoch,
        at: Position,
        held: Seq,
        out: &mut Vec<Output>,
    ) {
        let (ours, last) = (self.log.holds(at), self.log.last().seq);
        let Some(progress) = self.progress(from, epoch) else { return };
        if !ours || held > last {
            return;
        }
        if !progress.matched {
            progress.match_at(at);
        }
        self.on_ack(now, from, epoch, held, out);
    }

    pub(crate) fn on_ack(&mut self, now: Millis, from: ReplicaAddress, epoch: Epoch, held: Seq, out: &mut Vec<Output>) {
        let last = self.log.last().seq;
        let Some(progress) = self.progress(from, epoch) else { return };
        if !progress.matched || held > last {
            return;
        }
        progress.acknowledge(held, last, now);
        self.consider_requests(now, out);
        self.advance(now, out);
        self.evict();
    }

    pub(crate) fn on_nack(
        &mut self,
        now: Millis,
        from: ReplicaAddress,
        epoch: Epoch,
        (refused, hint, copying): (Position, Position, bool),
        out: &mut Vec<Output>,
    ) {
        if let Role::Lead(lead) = &self.role
            && epoch > lead.epoch
            && lead.followers.get(&from.placement).is_some_and(|known| known.address == from)
        {
            let led = lead.epoch;
            if self.believes(epoch) {
                self.step_down(out); // another replica leads, or led, after us
                self.overtaken_by(now, led, epoch, out);
            }
            return;
        }
        let meeting = self.log.floor(hint);
        let base = self.log.base();
        let Some(progress) = self.progress(from, epoch) else { return };
        if copying {
            progress.pause(true, now);
            return;
        }
        if progress.matched {
            let stale = refused.seq < progress.acked || refused.seq >= progress.next;
            if stale {
                return;
            }
            // It has matched before, so the missing entries were lost in transit: continue at its end.
            if let Some(at) = meeting.filter(|at| *at == hint && at.seq >= progress.acked) {
                progress.rewind(at.seq);
                return;
            }
        } else if refused != progress.probe && refused != Position::ZERO {
            return;
        }
        match meeting {
            Some(at) => progress.probe_at(at, now),
            None => {
                progress.pause(false, now);
                self.send(from, epoch, Body::Behind { base }, out);
            }
        }
    }

    pub(crate) fn log_read(
        &mut self,
        now: Millis,
        read: u64,
        reader: PlacementId,
        entries: Vec<Entry>,
        out: &mut Vec<Output>,
    ) {
        let known = entries.iter().all(|entry| self.log.holds(entry.at));
        let contiguous =
            entries.windows(2).all(|pair| matches!(pair, [one, two] if one.at.seq.next() == Some(two.at.seq)));
        let Role::Lead(lead) = &mut self.role else { return };
        let Some(progress) = lead.followers.get_mut(&reader).filter(|progress| progress.reading == Some(read)) else {
            return;
        };
        progress.reading = None;
        let fits = entries.first().is_some_and(|entry| entry.at.seq == progress.next);
        if progress.matched && known && contiguous && fits {
            self.append(now, reader, entries, out);
        } else {
            // Trimmed meanwhile, or unreadable: probe it again after a while.
            progress.pause(false, now);
        }
    }

    /// Sends entries that begin at the follower's next position.
    fn append(&mut self, now: Millis, placement: PlacementId, entries: Vec<Entry>, out: &mut Vec<Output>) {
        let commit = self.commit;
        let Role::Lead(lead) = &mut self.role else { return };
        let (epoch, start) = (lead.epoch, lead.start);
        let Some(progress) = lead.followers.get_mut(&placement) else { return };
        let Some(before) = self.log.position_at(progress.next.previous()) else {
            // The log was trimmed past its known end: probe it again.
            progress.probe_at(self.log.base(), now);
            return;
        };
        match entries.last() {
            Some(last) => {
                let bytes = entries.iter().map(|entry| entry.bytes.len()).sum();
                progress.sent(last.at.seq, bytes, commit, now);
            }
            None => progress.announced(commit, now),
        }
        let to = progress.address;
        self.send(to, epoch, Body::Append { before, entries, start, commit }, out);
    }

    /// Sends every follower the entries it lacks, within its window.
    pub(crate) fn flush_lead(&mut self, now: Millis, out: &mut Vec<Output>) {
        let mut fed = None;
        while let Role::Lead(lead) = &self.role {
            let after = fed.map_or(Bound::Unbounded, Bound::Excluded);
            let Some((&next, _)) = lead.followers.range((after, Bound::Unbounded)).next() else { break };
            fed = Some(next);
            self.feed(now, next, out);
        }
        self.begin_confirm_round(now, out);
    }

    fn feed(&mut self, now: Millis, placement: PlacementId, out: &mut Vec<Output>) {
        let resend_ms = self.timing().resend_ms();
        let patient = !self.is_live(placement);
        let (commit, limits, last) = (self.commit, self.limits, self.log.last().seq);
        loop {
            let Role::Lead(lead) = &mut self.role else { return };
            let (epoch, start) = (lead.epoch, lead.start);
            let Some(progress) = lead.followers.get_mut(&placement) else { return };
            if progress.probe_due(now) {
                progress.probed(now, resend_ms, patient);
                // The probed position may be trimmed by now; the base is the oldest there is.
                if !self.log.holds(progress.probe) {
                    progress.probe = self.log.base();
                }
                let (to, at) = (progress.address, progress.probe);
                self.send(to, epoch, Body::Adopt { at, start, commit }, out);
                return;
            }
            let bytes_max = if patient { limits.catch_up_bytes_max } else { limits.in_flight_bytes_max };
            let open = progress.is_open(limits.in_flight_appends_max, bytes_max);
            if !open || progress.next > last || progress.reading.is_some() {
                return;
            }
            let next = progress.next;
            if next <= self.log.base().seq {
                // The log was trimmed past it.
                progress.probe_at(self.log.base(), now);
                continue;
            }
            if let Some(entries) = self.log.recent_from(next, limits.append_entries_max, limits.append_bytes_max) {
                self.append(now, placement, entries, out);
                continue;
            }
            lead.reads += 1;
            progress.reading = Some(lead.reads);
            out.push(Output::ReadLog {
                read: lead.reads,
                reader: placement,
                from: next,
                upto: self.log.recent_first().previous(),
                bytes_max: limits.append_bytes_max,
            });
            return;
        }
    }

    pub(crate) fn tick_lead(&mut self, now: Millis, out: &mut Vec<Output>) {
        let (timing, commit) = (self.timing(), self.commit);
        let mut pings = Vec::new();
        let mut online = None;
        let row = self.configuration.as_ref().map(|configuration| &configuration.row);
        let live = |placement| row.is_some_and(|row| row.live().any(|live| live.id == placement));
        if let Role::Lead(lead) = &mut self.role {
            for (placement, progress) in &mut lead.followers {
                progress.tick();
                let asked = live(*placement) && progress.keep_alive(now, timing);
                if asked || progress.ping_due(commit, now, timing.resend_ms()) {
                    pings.push(*placement);
                }
            }
            if (lead.serving || lead.announced) && now.since(lead.online_reported) >= timing.replication_timeout_ms {
                lead.online_reported = now;
                online = Some(lead.epoch);
            }
        }
        for placement in pings {
            self.append(now, placement, Vec::new(), out);
        }
        if let (Some(epoch), Role::Lead(lead)) = (online, &self.role)
            && self.online_unheard(lead)
        {
            self.report(epoch, Fact::Online, out);
        }
        self.tick_requests(now, out);
        self.tick_confirms(now, out);
        self.advance(now, out);
    }

    /// Returns whether the coordinator has not recorded yet that this leader serves.
    pub(crate) fn online_unheard(&self, lead: &Lead) -> bool {
        let row = self.configuration.as_ref().map(|configuration| &configuration.row);
        row.is_some_and(|row| row.epoch == lead.epoch && row.status != PartitionStatus::Online)
    }
}
