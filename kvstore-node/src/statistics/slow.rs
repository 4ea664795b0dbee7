//! Log of slow operations: one line for each, with its stages, and a bound on the lines.

use crate::service::timed_request::{Stages, TimedRequest};
use crate::tables::Tables;
use archon_host::WaitsFor;
use archon_types::ErrorKind;
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Most lines per second: the cause of one slow operation slows others down as well.
const LINES_MAX: u32 = 10;
const WINDOW: Duration = Duration::from_secs(1);

/// Reporter of slow operations.
#[derive(Debug)]
pub(crate) struct SlowOperations {
    /// Threshold; none disables the report.
    above: Option<Duration>,
    limit: Mutex<LineLimit>,
}

/// An operation that has been answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FinishedRequest {
    /// The operation.
    pub(crate) asked: TimedRequest,
    /// Its error, if it failed.
    pub(crate) error: Option<ErrorKind>,
}

impl SlowOperations {
    /// Sets the threshold to `above`; zero disables the report.
    pub(crate) fn new(above: Duration) -> Self {
        Self { above: Some(above).filter(|above| !above.is_zero()), limit: Mutex::default() }
    }

    /// Returns whether an operation of this duration is reported.
    pub(crate) fn is_slow(&self, took: Duration) -> bool {
        self.above.is_some_and(|above| took > above)
    }

    /// Reports an operation, unless too many were reported just now. `passed_on`: another node gave the answer.
    pub(crate) fn tell(
        &self,
        tables: &Tables,
        answered: FinishedRequest,
        passed_on: bool,
        at: Instant,
        stages: Stages,
    ) {
        let Some(left_out) = self.limit.lock().note(at) else { return };
        let FinishedRequest { asked, error } = answered;
        let rest = millis(stages.rest);
        let (writes, waited) = (!asked.op.is_read(), stages.waited);
        let logs = writes && !passed_on && stages.logged.is_some();
        let waited_for = asked.waited_for().map(word).collect::<Vec<_>>().join(",");
        tracing::warn!(
            target: "slow_operation",
            op = asked.op.as_str(),
            partition = tables.partition_name(asked.partition),
            took_ms = millis(at.saturating_duration_since(asked.at)),
            queued_ms = millis(stages.queued),
            waited_ms = (!waited.is_zero()).then(|| millis(waited)),
            waited_for = (!waited_for.is_empty()).then_some(waited_for),
            logged_ms = stages.logged.map(millis),
            replicated_ms = logs.then_some(rest),
            committed_ms = (writes && !passed_on && !logs).then_some(rest),
            read_ms = (!writes && !passed_on).then_some(rest),
            passed_on_ms = passed_on.then_some(rest),
            error = error.map(ErrorKind::as_str),
            left_out = (left_out > 0).then_some(left_out),
            "slow operation"
        );
    }
}

const fn word(waited_for: WaitsFor) -> &'static str {
    match waited_for {
        WaitsFor::Leadership => "leadership",
        WaitsFor::Reshaping => "reshaping",
        WaitsFor::Clients => "clients",
        WaitsFor::Room => "room",
        WaitsFor::Confirmation => "confirmation",
        WaitsFor::Commit => "commit",
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Lines written within the second, and the number left out.
#[derive(Default, Debug)]
struct LineLimit {
    began: Option<Instant>,
    told: u32,
    left_out: u64,
}

impl LineLimit {
    /// Counts one more at `now`. Returns the number left out before it, if it may be written.
    fn note(&mut self, now: Instant) -> Option<u64> {
        if self.began.is_none_or(|began| now.saturating_duration_since(began) >= WINDOW) {
            (self.began, self.told) = (Some(now), 0);
        }
        if self.told >= LINES_MAX {
            self.left_out += 1;
            return None;
        }
        self.told += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_operation_lines_are_limited_to_ten_per_second() {
        let (began, mut limit) = (Instant::now(), LineLimit::default());
        let told = (0..500).filter(|number| limit.note(began + Duration::from_millis(*number)).is_some()).count();
        assert_eq!(told, 10);
        assert_eq!(limit.note(began + WINDOW), Some(490));
        assert_eq!(limit.note(began + WINDOW), Some(0), "told once");
    }

    #[test]
    fn zero_threshold_disables_slow_operation_lines() {
        assert!(!SlowOperations::new(Duration::ZERO).is_slow(Duration::from_secs(60)));
        let slow = SlowOperations::new(Duration::from_millis(100));
        assert!(!slow.is_slow(Duration::from_millis(100)) && slow.is_slow(Duration::from_millis(101)));
    }
}
