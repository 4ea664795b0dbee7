//! Decisions of a contender for a lock. Pure: rows and times come in as arguments.
//!
//! No wall clock is read. A contender measures on its own clock how long it has seen a row unchanged: the holder writes
//! the row to renew it, and acts for one lease from the moment when it *sent* the newest write. That moment is before
//! the contender's first read of the revision ended, so the holder has stopped once the contender has seen the
//! revision for a lease.

use super::row::LockRow;
use archon_types::Revision;

/// Next step of a contender.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Write the row if it has this revision: the lock is free, or its holder's lease has ended.
    Write(Revision),
    /// An earlier write of this contender took effect, with this revision.
    Own(Revision),
    /// Read again; the lease of the holder ends after this time, in milliseconds, unless it is renewed.
    Wait { lease_left_ms: u64 },
    /// The holder lives, and this contender does not wait for live holders.
    Held(Holder),
}

/// Holder of a lock, as a contender sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Holder {
    /// Name for people.
    pub(super) name: String,
    pub(super) revision: Revision,
}

/// A contender for one lock.
#[derive(Debug)]
pub(super) struct Contender {
    owner: String,
    waits_for_live_holders: bool,
    observed: Option<Observation>,
}

/// The first read of the present revision.
#[derive(Debug)]
struct Observation {
    revision: Revision,
    since_ms: u64,
}

impl Contender {
    pub(super) const fn new(owner: String, waits_for_live_holders: bool) -> Self {
        Self { owner, waits_for_live_holders, observed: None }
    }

    /// Takes a read of the row. `now_ms` is a time *after* the read was answered, of a clock that never runs faster
    /// than the holder's by more than 1 %.
    pub(super) fn observe(&mut self, found: Option<(Revision, &LockRow)>, now_ms: u64) -> Step {
        let Some((revision, row)) = found else {
            self.observed = None;
            return Step::Write(Revision::ZERO);
        };
        if row.owner == self.owner {
            return Step::Own(revision);
        }
        let wait_ms = stale_after_ms(row.lease_ms);
        match &self.observed {
            Some(first) if first.revision == revision => {
                let seen_ms = now_ms.saturating_sub(first.since_ms);
                match wait_ms.saturating_sub(seen_ms) {
                    0 => Step::Write(revision),
                    lease_left_ms => Step::Wait { lease_left_ms },
                }
            }
            // A second revision proves a live holder: it was written after the first read.
            Some(_) if !self.waits_for_live_holders => Step::Held(Holder { name: row.holder.clone(), revision }),
            _ => {
                self.observed = Some(Observation { revision, since_ms: now_ms });
                Step::Wait { lease_left_ms: wait_ms }
            }
        }
    }
}

/// Returns the time after which a lease has certainly ended: clock rates differ by 1 % at most, and both clocks are
/// read in whole milliseconds.
pub(super) const fn stale_after_ms(lease_ms: u64) -> u64 {
    lease_ms.saturating_add(lease_ms.div_ceil(100)).saturating_add(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row(owner: &str) -> LockRow {
        LockRow { owner: owner.to_owned(), holder: "host:1".to_owned(), lease_ms: 1_000 }
    }

    fn revision(number: u64) -> Revision {
        Revision::new(number)
    }

    #[test]
    fn absent_row_is_written_as_new() {
        let mut contender = Contender::new("a".to_owned(), true);
        assert_eq!(contender.observe(None, 5), Step::Write(Revision::ZERO));
    }

    #[test]
    fn unchanged_row_is_taken_after_a_lease_with_drift() {
        let (mut contender, row) = (Contender::new("a".to_owned(), true), row("b"));
        assert_eq!(contender.observe(Some((revision(3), &row)), 50), Step::Wait { lease_left_ms: 1_012 });
        assert_eq!(contender.observe(Some((revision(3), &row)), 1_061), Step::Wait { lease_left_ms: 1 });
        assert_eq!(contender.observe(Some((revision(3), &row)), 1_062), Step::Write(revision(3)));
    }

    #[test]
    fn renewed_row_begins_another_wait() {
        let (mut contender, row) = (Contender::new("a".to_owned(), true), row("b"));
        contender.observe(Some((revision(3), &row)), 0);
        assert_eq!(contender.observe(Some((revision(4), &row)), 2_000), Step::Wait { lease_left_ms: 1_012 });
        assert_eq!(contender.observe(Some((revision(4), &row)), 2_500), Step::Wait { lease_left_ms: 512 });
    }

    #[test]
    fn released_and_retaken_row_begins_another_wait() {
        let (mut contender, row) = (Contender::new("a".to_owned(), true), row("b"));
        contender.observe(Some((revision(3), &row)), 0);
        contender.observe(None, 900);
        assert_eq!(contender.observe(Some((revision(3), &row)), 2_000), Step::Wait { lease_left_ms: 1_012 });
    }

    #[test]
    fn impatient_contender_waits_for_dead_holders_only() {
        let (mut contender, row) = (Contender::new("a".to_owned(), false), row("b"));
        assert!(matches!(contender.observe(Some((revision(3), &row)), 0), Step::Wait { .. }));
        let held = Holder { name: "host:1".to_owned(), revision: revision(4) };
        assert_eq!(contender.observe(Some((revision(4), &row)), 100), Step::Held(held));
        let mut contender = Contender::new("a".to_owned(), false);
        contender.observe(Some((revision(3), &row)), 0);
        assert_eq!(contender.observe(Some((revision(3), &row)), 1_012), Step::Write(revision(3)));
    }

    #[test]
    fn own_write_with_lost_answer_is_found() {
        let mut contender = Contender::new("a".to_owned(), true);
        assert_eq!(contender.observe(Some((revision(3), &row("a"))), 0), Step::Own(revision(3)));
    }

    proptest! {
        /// The holder counts from the sending of its newest write, by a clock that is 1 % slow at worst; the contender
        /// by one of any offset. It never writes before the holder's time is over.
        #[test]
        fn contender_never_takes_a_lease_that_lasts(
            lease_ms in 1_u64..100_000,
            sent in 0_u64..1_000,
            delay in 0_u64..500,
            reads in proptest::collection::vec(0_u64..50_000, 1..20),
            offset in 0_u64..1_000_000,
            fast_percent in 0_u64..=1,
        ) {
            let row = LockRow { owner: "b".to_owned(), holder: String::new(), lease_ms };
            let mut contender = Contender::new("a".to_owned(), true);
            let mut now = sent + delay;
            for gap in reads {
                // The contender's clock is fast by up to 1 %.
                let clock = offset + now + now * fast_percent / 100;
                if let Step::Write(_) = contender.observe(Some((revision(9), &row)), clock) {
                    prop_assert!(now >= sent + lease_ms, "taken at {now}, and the lease lasts until {}", sent + lease_ms);
                }
                now += gap;
            }
        }
    }
}
