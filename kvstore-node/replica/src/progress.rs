//! Progress of one other replica as its leader knows it, within one epoch and one incarnation of that replica (rule
//! 11).

use crate::input::Timing;
use crate::message::{Position, ReplicaAddress};
use archon_types::{Millis, Seq};
use std::collections::VecDeque;

/// Most probes for a point of match between two ticks; further ones wait for the next tick.
const FAST_PROBES_MAX: u8 = 32;

/// Inverse of the share of the replication time-out within which a loader that keeps pace acknowledges what its
/// leader's log held at one moment.
const PACE_PART: u64 = 20;
/// Rounds after which a loader will not become faster, so that it need not keep pace to be waited for.
const ROUNDS_MAX: u8 = 10;

/// A loader catches up in rounds, each of which ends when it holds what the leader's log held when the round began, as
/// in section 4.2.1 of Ongaro's dissertation on Raft. The duration of the last one predicts how long writes would wait
/// for it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Pace {
    /// Target and start of the present round.
    round: Option<(Seq, Millis)>,
    rounds: u8,
    /// Duration of the last round.
    last_ms: Option<u64>,
}

impl Pace {
    /// Records that it holds the log up to `acked`, of a log that ends at `end`.
    fn heard(&mut self, acked: Seq, end: Seq, now: Millis) {
        if let Some((_, since)) = self.round.take_if(|(target, _)| *target <= acked) {
            self.rounds = self.rounds.saturating_add(1);
            self.last_ms = Some(now.since(since));
        }
        if acked < end {
            self.round.get_or_insert((end, now));
        } else if self.last_ms.is_none() {
            self.last_ms = Some(0); // it lacked nothing
        }
    }
}

/// A follower or loader, as its leader sees it.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) address: ReplicaAddress,
    /// True once a point of match was found under this epoch. Until then it is probed by `Adopt`.
    pub(crate) matched: bool,
    /// Durable there and equal to our log up to here; meaningful only once matched.
    pub(crate) acked: Seq,
    /// The next entry to send.
    pub(crate) next: Seq,
    /// The probed position while unmatched.
    pub(crate) probe: Position,
    probe_sent: Option<Millis>,
    probe_since: Option<Millis>,
    probe_wait_ms: u64,
    fast_probes: u8,
    /// True while it pulls a copy; it is probed slowly then.
    pub(crate) copying: bool,
    /// The point of match: acknowledgements up to here are requested again.
    matched_at: Seq,
    /// Sent and not acknowledged, since the last rewind: end and bytes of each message.
    window: VecDeque<(Seq, usize)>,
    window_bytes: usize,
    /// First send time of entries that are not acknowledged; survives rewinds.
    waiting: VecDeque<(Seq, Millis)>,
    last_sent: Millis,
    /// The commit position last announced to it.
    pub(crate) announced_commit: Seq,
    /// The read from disk in progress for it.
    pub(crate) reading: Option<u64>,
    /// Time since when a confirmation is owed.
    pub(crate) confirm_since: Option<Millis>,
    /// Time since when a sign of life is owed.
    alive_since: Option<Millis>,
    pace: Pace,
    /// True if the coordinator has failed its node.
    pub(crate) failed: bool,
    /// True if it was Live when its leader last received its row.
    pub(crate) counts: bool,
}

impl Progress {
    pub(crate) fn new(address: ReplicaAddress, end: Position, now: Millis) -> Self {
        Self {
            address,
            matched: false,
            acked: Seq::ZERO,
            next: end.seq.next().unwrap_or(end.seq),
            probe: end,
            probe_sent: None,
            probe_since: None,
            probe_wait_ms: 0,
            fast_probes: 0,
            copying: false,
            matched_at: Seq::ZERO,
            window: VecDeque::new(),
            window_bytes: 0,
            waiting: VecDeque::new(),
            last_sent: now,
            announced_commit: Seq::ZERO,
            reading: None,
            confirm_since: None,
            alive_since: None,
            pace: Pace::default(),
            failed: false,
            counts: false,
        }
    }

    /// Returns whether it holds everything up to `upto` durably.
    pub(crate) fn holds(&self, upto: Seq) -> bool {
        self.matched && self.acked >= upto
    }

    /// Returns whether to probe for the point of match now.
    pub(crate) fn probe_due(&self, now: Millis) -> bool {
        !self.matched && self.probe_sent.is_none_or(|sent| now.since(sent) >= self.probe_wait_ms)
    }

    /// Notes that `Adopt` goes out. `patient` replicas are not in sync and are probed at growing intervals.
    pub(crate) fn probed(&mut self, now: Millis, resend_ms: u64, patient: bool) {
        let first = self.probe_sent.is_none();
        self.probe_sent = Some(now);
        self.probe_since.get_or_insert(now);
        self.probe_wait_ms = if first || !patient {
            resend_ms
        } else {
            self.probe_wait_ms.saturating_mul(2).clamp(resend_ms, resend_ms.saturating_mul(16))
        };
    }

    /// Probes `at` next, as it does not hold the probed position.
    pub(crate) fn probe_at(&mut self, at: Position, now: Millis) {
        self.unmatch();
        self.probe = at;
        self.probe_since = None;
        self.copying = false;
        if self.fast_probes < FAST_PROBES_MAX {
            self.fast_probes += 1;
            self.probe_sent = None;
        } else {
            self.probe_sent = Some(now);
        }
    }

    /// Probes again later, as it is pulling a copy (or was just asked to). An in-sync replica has no use for a copy: if
    /// it lacks trimmed entries it has lost data, and owes an answer until it is dropped.
    pub(crate) fn pause(&mut self, copying: bool, now: Millis) {
        self.unmatch();
        self.copying = copying;
        self.probe_sent = Some(now);
        self.probe_since = self.counts.then(|| self.probe_since.unwrap_or(now));
    }

    fn unmatch(&mut self) {
        self.matched = false;
        self.acked = Seq::ZERO;
        self.window.clear();
        self.window_bytes = 0;
        self.waiting.clear();
        self.alive_since = None;
        self.reading = None;
        self.pace = Pace::default();
    }

    /// Records a point of match.
    pub(crate) fn match_at(&mut self, at: Position) {
        self.matched = true;
        self.matched_at = at.seq;
        self.copying = false;
        self.probe_since = None;
        self.next = at.seq.next().unwrap_or(at.seq);
    }

    /// Records that it holds everything up to `held`, of a log that ends at `end`.
    pub(crate) fn acknowledge(&mut self, held: Seq, end: Seq, now: Millis) {
        (self.confirm_since, self.alive_since) = (None, None); // it is there
        self.acked = self.acked.max(held);
        self.pace.heard(self.acked, end, now);
        if self.next <= self.acked {
            self.next = self.acked.next().unwrap_or(self.acked);
        }
        while self.window.front().is_some_and(|(end, _)| *end <= self.acked) {
            if let Some((_, bytes)) = self.window.pop_front() {
                self.window_bytes -= bytes;
            }
        }
        while self.waiting.front().is_some_and(|(end, _)| *end <= self.acked) {
            self.waiting.pop_front();
        }
    }

    /// Returns whether it would get what it lacks about as fast as writes come, so that they may wait for it.
    pub(crate) fn keeps_pace(&self, now: Millis, timing: Timing) -> bool {
        let pace_ms = timing.replication_timeout_ms / PACE_PART;
        let late = self.pace.round.is_some_and(|(_, since)| now.since(since) > pace_ms);
        let kept = self.pace.last_ms.is_some_and(|last_ms| last_ms <= pace_ms) && !late;
        self.matched && (kept || self.pace.rounds >= ROUNDS_MAX)
    }

    /// Returns the time for which writes may wait for a loader that kept pace: a multiple of its last round.
    pub(crate) fn timeout_ms(&self, timing: Timing) -> u64 {
        let last_ms = self.pace.last_ms.unwrap_or_default();
        last_ms.saturating_mul(4).clamp(timing.resend_ms(), timing.replication_timeout_ms.max(timing.resend_ms()))
    }

    /// Continues after `hint`, which it holds, as it lacks what was sent.
    pub(crate) fn rewind(&mut self, hint: Seq) {
        self.next = hint.next().unwrap_or(hint);
        self.reading = None;
        self.window.clear();
        self.window_bytes = 0;
    }

    /// Returns whether more may be sent.
    pub(crate) fn is_open(&self, appends_max: usize, bytes_max: usize) -> bool {
        self.matched && self.window.len() < appends_max.max(1) && self.window_bytes < bytes_max.max(1)
    }

    /// Notes that entries up to `end` go out.
    pub(crate) fn sent(&mut self, end: Seq, bytes: usize, commit: Seq, now: Millis) {
        self.window.push_back((end, bytes));
        self.window_bytes += bytes;
        if self.waiting.back().is_none_or(|(before, _)| *before < end) {
            self.waiting.push_back((end, now));
        }
        self.next = end.next().unwrap_or(end);
        self.announced(commit, now);
    }

    /// Notes that the commit position is announced to it.
    pub(crate) fn announced(&mut self, commit: Seq, now: Millis) {
        self.announced_commit = commit;
        self.last_sent = now;
    }

    /// Returns whether to send an empty append: for an overdue acknowledgement, or to announce the commit position.
    pub(crate) fn ping_due(&self, commit: Seq, now: Millis, resend_ms: u64) -> bool {
        let quiet_ms = now.since(self.last_sent);
        // An acknowledgement that overtook the answer to the probe was ignored, and without writes no other follows.
        let unheard = self.acked < self.matched_at;
        let owing = !self.waiting.is_empty() || self.alive_since.is_some() || unheard;
        self.matched && ((owing && quiet_ms >= resend_ms) || (self.announced_commit < commit && quiet_ms > 0))
    }

    /// Asks an in-sync replica for a sign of life after a long silence, or if its node has failed. Returns whether to
    /// send an empty append to it now.
    pub(crate) fn keep_alive(&mut self, now: Millis, timing: Timing) -> bool {
        let quiet_ms = now.since(self.last_sent);
        let due = self.matched
            && self.silent_since().is_none()
            && quiet_ms >= if self.failed { timing.failed_timeout_ms() } else { timing.keep_alive_ms };
        if due {
            self.alive_since = Some(now);
        }
        due
    }

    /// Returns the time since when it owes an answer.
    pub(crate) fn silent_since(&self) -> Option<Millis> {
        [self.probe_since, self.waiting.front().map(|(_, since)| *since), self.confirm_since, self.alive_since]
            .into_iter()
            .flatten()
            .min()
    }

    /// Returns whether it has owed an answer for too long.
    pub(crate) fn is_silent(&self, now: Millis, timing: Timing) -> bool {
        let timeout_ms = if self.failed { timing.failed_timeout_ms() } else { timing.replication_timeout_ms };
        self.silent_since().is_some_and(|since| now.since(since) >= timeout_ms)
    }

    /// Notes that time passed.
    pub(crate) fn tick(&mut self) {
        self.fast_probes = 0;
    }
}
