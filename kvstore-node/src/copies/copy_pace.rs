//! Pace of copies while clients use the node.
//!
//! A copy can take all of a disk and most of a core for minutes, and no client waits for it: its data exists elsewhere
//! already. So on a node in use copies rest [`REST`] times as long as they worked, all of them together, both pulled
//! and given ones. On a faster machine, or with a cheaper engine, the work of a page is shorter, and so is its rest.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Rest of copies as a multiple of their work: the disk and the cores are for others then.
pub(crate) const REST: u32 = 3;
/// Longest rest for one piece of work: work of more than a third of it was mostly waiting.
const REST_MAX: Duration = Duration::from_secs(1);
/// Time after its last operation or entry during which a node is in use.
const IN_USE: Duration = Duration::from_secs(1);

/// Rest of the copies of a node.
#[derive(Debug, Default)]
pub(crate) struct CopyPace {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    rest_until: Option<Instant>,
    /// Operations and entries of the node at the last look.
    used: u64,
    /// Time at which there were more of them than before.
    used_at: Option<Instant>,
}

impl State {
    fn see(&mut self, used: u64, now: Instant) {
        if used != self.used {
            self.used = used;
            self.used_at = Some(now);
        }
    }

    fn is_in_use(&self, now: Instant) -> bool {
        self.used_at.is_some_and(|at| now.saturating_duration_since(at) < IN_USE)
    }
}

impl CopyPace {
    /// Records work of copies, on a node that has had `used` operations and entries so far.
    pub(crate) fn worked(&self, worked: Duration, used: u64, now: Instant) {
        let mut state = self.state.lock();
        state.see(used, now);
        if state.is_in_use(now) {
            let begin = state.rest_until.map_or(now, |until| until.max(now));
            state.rest_until = Some(begin + (worked * REST).min(REST_MAX));
        }
    }

    /// Returns how long copies have to rest from now on; none if the node is not in use.
    pub(crate) fn rest(&self, used: u64, now: Instant) -> Option<Duration> {
        let mut state = self.state.lock();
        state.see(used, now);
        let rest = state.rest_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        state.is_in_use(now).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn copies_rest_three_times_their_work_on_node_in_use() {
        let (pace, began) = (CopyPace::default(), Instant::now());
        pace.worked(10 * MS, 7, began);
        assert_eq!(pace.rest(7, began), Some(30 * MS));
        pace.worked(5 * MS, 8, began + 10 * MS);
        assert_eq!(pace.rest(8, began + 10 * MS), Some(35 * MS), "20 of the first, 15 of the second");
        assert_eq!(pace.rest(9, began + 50 * MS), Some(Duration::ZERO));
        pace.worked(MS, 9, began + 60 * MS);
        assert_eq!(pace.rest(9, began + 60 * MS), Some(3 * MS), "what is past is not made up for");
    }

    #[test]
    fn copies_do_not_rest_on_idle_node() {
        let (pace, began) = (CopyPace::default(), Instant::now());
        pace.worked(100 * MS, 0, began);
        assert_eq!(pace.rest(0, began), None, "never used");
        pace.worked(300 * MS, 5, began);
        assert_eq!(pace.rest(5, began + 100 * MS), Some(800 * MS));
        pace.worked(300 * MS, 5, began + 100 * MS);
        assert_eq!(pace.rest(5, began + IN_USE), None, "not any more");
        assert_eq!(pace.rest(6, began + IN_USE), Some(800 * MS), "again, before the rest was over");
    }

    #[test]
    fn stalled_copy_rests_one_second_at_most() {
        let (pace, began) = (CopyPace::default(), Instant::now());
        pace.worked(Duration::from_secs(20), 1, began);
        assert_eq!(pace.rest(1, began), Some(REST_MAX));
    }
}
