//! Log time of a partition: it never goes back.

#[cfg(any(test, feature = "mutants"))]
use crate::mutant::Mutant;
use archon_types::Millis;

/// A partition's log time: `max(the leader's wall clock, the last stamp)`, so that it never falls (PROTOCOL rule 24).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogTime {
    last: Millis,
    #[cfg(any(test, feature = "mutants"))]
    falls: bool,
}

impl LogTime {
    /// Continues from the last known stamp: the one stored with the partition, or of its last log entry.
    pub const fn starting_at(last: Millis) -> Self {
        Self {
            last,
            #[cfg(any(test, feature = "mutants"))]
            falls: false,
        }
    }

    /// Disables the rule that it never falls, for a test that proves its checks.
    #[cfg(any(test, feature = "mutants"))]
    pub fn set_mutant(&mut self, mutant: Option<Mutant>) {
        self.falls = mutant == Some(Mutant::LogTimeFalls);
    }

    #[cfg(any(test, feature = "mutants"))]
    const fn falls(&self) -> bool {
        self.falls
    }

    #[cfg(not(any(test, feature = "mutants")))]
    #[allow(clippy::unused_self)]
    const fn falls(&self) -> bool {
        false
    }

    /// Returns the stamp for an entry created when the leader's wall clock shows `wall`.
    pub fn stamp(&mut self, wall: Millis) -> Millis {
        self.last = if self.falls() { wall } else { self.last.max(wall) };
        self.last
    }

    /// Takes the stamp of an entry created elsewhere.
    pub fn observe(&mut self, stamp: Millis) {
        self.last = self.last.max(stamp);
    }

    /// Returns the last stamp.
    pub const fn last(&self) -> Millis {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_time_never_falls() {
        let mut time = LogTime::starting_at(Millis::new(100));
        assert_eq!(time.stamp(Millis::new(50)), Millis::new(100));
        assert_eq!(time.stamp(Millis::new(150)), Millis::new(150));
        time.observe(Millis::new(400));
        time.observe(Millis::new(1));
        assert_eq!(time.stamp(Millis::new(200)), Millis::new(400));
    }
}
