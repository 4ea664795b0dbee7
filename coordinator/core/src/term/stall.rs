//! Whether a coordinator that leads can keep its word: while it stalls no node is failed over and no lease is sure, so it gives
//! leadership away.

use archon_types::Millis;
use std::fmt;

/// Control turns that are further apart than this, in milliseconds: what is remembered of silences is worth nothing.
const TURNS_MS: u64 = 1_000;
/// A sync of the log that takes longer than this, in milliseconds, is a stalled disk.
const SYNC_MS: u64 = 500;

/// Why a coordinator should not lead now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stall {
    /// Its disk does not answer.
    Sync,
    /// Its control loop does not turn: the process did not run, or waits for something.
    Turns,
}

impl Stall {
    /// What stalls at `now`, if anything does. `turned`: when the control loop turned last. `syncing_ms`: for how long a sync
    /// of the log has been under way, if one is.
    pub fn of(turned: Millis, syncing_ms: Option<u64>, now: Millis) -> Option<Self> {
        if syncing_ms.is_some_and(|millis| millis > SYNC_MS) {
            return Some(Self::Sync);
        }
        (now.since(turned) > TURNS_MS).then_some(Self::Turns)
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Sync => "fsync outstanding",
            Self::Turns => "control loop not turning",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_or_a_loop_that_stands_still_is_a_stall_and_a_slow_one_is_none() {
        let turned = Millis::new(10_000);
        assert_eq!(Stall::of(turned, Some(500), Millis::new(11_000)), None);
        assert_eq!(Stall::of(turned, Some(501), Millis::new(10_001)), Some(Stall::Sync));
        assert_eq!(Stall::of(turned, None, Millis::new(11_001)), Some(Stall::Turns));
    }
}
