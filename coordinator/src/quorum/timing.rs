//! Heartbeat and election timing of a quorum, and the distances that it fits.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Heartbeat and election timing of a quorum. Every coordinator must have the same.
///
/// A follower is heard only if it answers a heartbeat before the next one is due, so the heartbeat interval must exceed the round trip
/// between any two coordinators. Elections follow from it: a follower without heartbeats for three to six intervals stands for election.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct QuorumTiming {
    heartbeat_ms: u64,
}

impl Default for QuorumTiming {
    /// For one data centre: a killed leader is replaced in about 0.6 s.
    fn default() -> Self {
        Self { heartbeat_ms: Self::HEARTBEAT_MS_MIN }
    }
}

impl fmt::Display for QuorumTiming {
    /// Shows the heartbeat interval in milliseconds.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.heartbeat_ms.fmt(out)
    }
}

impl QuorumTiming {
    /// Shortest heartbeat interval: a disk with slower syncs delays followers' answers.
    pub const HEARTBEAT_MS_MIN: u64 = 50;
    /// Longest heartbeat interval; it fits a round trip of 1.5 s.
    pub const HEARTBEAT_MS_MAX: u64 = 2_000;
    /// Valid heartbeat intervals, in milliseconds.
    pub const HEARTBEATS_MS: RangeInclusive<u64> = Self::HEARTBEAT_MS_MIN..=Self::HEARTBEAT_MS_MAX;

    /// The timing with heartbeats every `heartbeat_ms`, from [`HEARTBEAT_MS_MIN`](Self::HEARTBEAT_MS_MIN) to
    /// [`HEARTBEAT_MS_MAX`](Self::HEARTBEAT_MS_MAX).
    pub const fn new(heartbeat_ms: u64) -> Option<Self> {
        match heartbeat_ms {
            Self::HEARTBEAT_MS_MIN..=Self::HEARTBEAT_MS_MAX => Some(Self { heartbeat_ms }),
            _ => None,
        }
    }

    /// The timing that a round trip needs, with twice the round trip as heartbeat interval.
    pub fn fitting(round_trip: Duration) -> Self {
        let twice_ms = u64::try_from(round_trip.as_millis()).unwrap_or(u64::MAX).saturating_mul(2);
        let heartbeat_ms = twice_ms.max(1).div_ceil(50).saturating_mul(50);
        Self { heartbeat_ms: heartbeat_ms.clamp(Self::HEARTBEAT_MS_MIN, Self::HEARTBEAT_MS_MAX) }
    }

    /// Milliseconds between two heartbeats.
    pub const fn heartbeat_ms(self) -> u64 {
        self.heartbeat_ms
    }

    /// Shortest and longest election time-out, in milliseconds.
    pub const fn election_ms(self) -> (u64, u64) {
        (3 * self.heartbeat_ms, 6 * self.heartbeat_ms)
    }

    /// Longest election time-out.
    pub const fn election_max(self) -> Duration {
        Duration::from_millis(self.election_ms().1)
    }

    /// Longest round trip between two coordinators that leaves a quarter of the heartbeat interval for the answer itself.
    pub const fn round_trip_max(self) -> Duration {
        Duration::from_millis(self.heartbeat_ms * 3 / 4)
    }

    /// Silence after which a coordinator counts as away: `usual`, or four heartbeats if that is longer.
    pub(crate) fn silence(self, usual: Duration) -> Duration {
        usual.max(Duration::from_millis(4 * self.heartbeat_ms))
    }

    /// Deadline of a round in which a majority confirms something: `usual`, or two heartbeats if that is longer.
    pub(crate) fn round(self, usual: Duration) -> Duration {
        usual.max(Duration::from_millis(2 * self.heartbeat_ms))
    }
}

/// A coordinator to which the round trip is longer than the quorum's timing fits.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "coordinator {id} at {address} answers after {} ms, and --quorum-heartbeat-ms {} fits round trips of up to {} ms",
    .round_trip.as_millis(), .timing.heartbeat_ms(), .timing.round_trip_max().as_millis()
)]
pub struct TooFar {
    /// Its number.
    pub id: u64,
    /// Its address.
    pub address: String,
    /// The shortest round trip that was measured.
    pub round_trip: Duration,
    /// The timing of the coordinator that measured it.
    pub timing: QuorumTiming,
}

impl TooFar {
    /// Returns the `--quorum-heartbeat-ms` that fits this distance, in milliseconds.
    pub fn heartbeat_ms(&self) -> u64 {
        QuorumTiming::fitting(self.round_trip).heartbeat_ms()
    }

    /// The setting that fits this distance.
    pub fn remedy(&self) -> String {
        format!("start every coordinator with --quorum-heartbeat-ms {}", self.heartbeat_ms())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timing_fits_its_distance() {
        for round_trip_ms in [0, 1, 37, 40, 260, 300, 999] {
            let round_trip = Duration::from_millis(round_trip_ms);
            let fitting = QuorumTiming::fitting(round_trip);
            assert!(fitting.round_trip_max() >= round_trip, "{fitting:?}");
            assert_eq!(QuorumTiming::new(fitting.heartbeat_ms()), Some(fitting));
            let (shortest, longest) = fitting.election_ms();
            // A candidate connects by TCP and TLS, and asks: three round trips.
            assert!(u128::from(shortest) > 3 * round_trip.as_millis() && longest == 2 * shortest);
        }
        assert_eq!(QuorumTiming::fitting(Duration::from_millis(20)), QuorumTiming::default());
        assert_eq!((QuorumTiming::new(49), QuorumTiming::new(2_001)), (None, None));
    }

    #[test]
    fn refusal_names_distance_and_setting() {
        let round_trip = Duration::from_millis(260);
        let far = TooFar { id: 3, address: "10.0.0.3:7101".to_owned(), round_trip, timing: QuorumTiming::default() };
        assert_eq!(
            far.to_string(),
            "coordinator 3 at 10.0.0.3:7101 answers after 260 ms, and --quorum-heartbeat-ms 50 fits round trips of up to 37 ms"
        );
        assert_eq!(far.remedy(), "start every coordinator with --quorum-heartbeat-ms 550");
    }
}
