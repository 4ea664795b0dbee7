//! Measurement of the idle time of the machine, for the decision to start another cluster.

use archon_testkit::ProcessorTime;
use std::time::{Duration, Instant};

/// Time over which idle time is measured: shorter ones would take the pauses of a few clusters for an idle machine.
const OVER: Duration = Duration::from_millis(500);
/// Percentage of processor time that must be idle for another cluster to start.
const IDLE_PERCENT_MIN: u8 = 15;

/// Measurements of idle time, one after the other.
#[derive(Debug, Default)]
pub(super) struct IdleTime {
    /// Begin of the current measurement.
    from: Option<(Instant, ProcessorTime)>,
    /// Result of the last one.
    is_enough: bool,
}

impl IdleTime {
    /// Begins a measurement, or ends one that has lasted long enough.
    pub(super) fn look(&mut self) {
        let Some(now) = ProcessorTime::now() else { return };
        match self.from {
            Some((at, _)) if at.elapsed() < OVER => {}
            earlier => {
                self.is_enough = earlier.is_some_and(|(_, earlier)| now.idled_since(earlier, IDLE_PERCENT_MIN));
                self.from = Some((Instant::now(), now));
            }
        }
    }

    /// Drops the result and measures from now on.
    pub(super) fn restart(&mut self) {
        *self = Self { from: ProcessorTime::now().map(|now| (Instant::now(), now)), is_enough: false };
    }

    /// Returns one with this result.
    #[cfg(test)]
    pub(super) const fn known(is_enough: bool) -> Self {
        Self { from: None, is_enough }
    }

    /// Returns true if the machine idled during the last measurement.
    pub(super) const fn is_enough(&self) -> bool {
        self.is_enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarted_measurement_has_no_result_yet() {
        let mut idle = IdleTime::known(true);
        idle.restart();
        idle.look();
        assert!(!idle.is_enough() && idle.from.is_some());
    }
}
