//! The majority in which a coordinator takes part (PROTOCOL rule 60).

use archon_types::Millis;

/// A coordinator works for this long, in milliseconds, after it took part in a majority. Followers hear of theirs every 5 s.
pub(crate) const WORKS_MS: u64 = 15_000;

/// It grants leases for this long at most after that: well before it ceases to work for others.
pub(crate) const GRANTS_MS: u64 = 5_000;

/// The majority in which this coordinator takes part, as leader or follower, on the clock that includes suspend.
///
/// From the first sight of a majority until none was seen for [`WORKS_MS`], or until this process was paused, is one period. Leases are
/// granted only in a period in which a round of questions began that found no later generation in its place: a recovery that takes over
/// meanwhile asks this coordinator afterwards, and hears that it works.
#[derive(Debug, Default)]
pub(crate) struct Majority {
    seen: Option<Millis>,
    /// Time when this process ran last, and the longest pause after that.
    ran: Millis,
    pause_max_ms: u64,
    pub(crate) period: u64,
    cleared: Option<u64>,
}

impl Majority {
    /// Notes that this process runs. A pause of more than `pause_max_ms` milliseconds ends the period.
    pub(in crate::raft) fn tick(&mut self, now: Millis, pause_max_ms: u64) {
        if now.since(self.ran) > self.pause_max_ms {
            self.period += 1;
        }
        (self.ran, self.pause_max_ms) = (now, pause_max_ms);
    }

    /// Notes that this coordinator takes part in a majority.
    pub(in crate::raft) fn note(&mut self, now: Millis) {
        if !self.works(now) {
            self.period += 1;
        }
        self.seen = Some(now);
    }

    /// Returns true if this coordinator works with a majority.
    pub(in crate::raft) fn works(&self, now: Millis) -> bool {
        self.seen.is_some_and(|seen| now.since(seen) <= WORKS_MS)
    }

    /// Returns the current period.
    pub(super) fn period(&self, now: Millis) -> Option<u64> {
        self.works(now).then_some(self.period)
    }

    /// Notes that a round begun in this period found no later generation in place of this one.
    pub(in crate::raft) const fn clear(&mut self, period: u64) {
        self.cleared = Some(period);
    }

    /// Blocks leases until another round of questions.
    pub(super) const fn unclear(&mut self) {
        self.cleared = None;
    }

    /// Returns true if leases wait for a round of questions.
    pub(in crate::raft) fn waits(&self, now: Millis) -> bool {
        self.works(now) && self.cleared != Some(self.period)
    }

    /// Returns true if leases may be granted.
    pub(in crate::raft) fn may_grant(&self, now: Millis) -> bool {
        let ran = now.since(self.ran) <= self.pause_max_ms;
        ran && self.cleared == Some(self.period) && self.seen.is_some_and(|seen| now.since(seen) <= GRANTS_MS)
    }
}
