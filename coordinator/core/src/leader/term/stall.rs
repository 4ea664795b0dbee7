//! Detection of a stalled leading coordinator: while it stalls no node is failed over and no lease is reliable, so it
//! gives leadership away.

use archon_types::Millis;
use std::fmt;

/// Pause between control turns, in milliseconds, above which its memory of silences is unreliable.
const TURNS_MS: u64 = 1_000;
/// Duration of a sync of the log, in milliseconds, above which the disk is stalled.
const SYNC_MS: u64 = 500;

/// Reason why a coordinator should not lead now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stall {
    /// Its disk does not answer.
    Sync,
    /// Its control loop does not turn: the process did not run, or is blocked.
    Turns,
}

impl Stall {
    /// Returns the stall at `now`, if any. `turned`: time of the last control turn. `syncing_ms`: duration of the
    /// present sync of the log, if one is in progress.
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
    fn stalled_disk_or_loop_is_detected_slow_one_is_not() {
        let turned = Millis::new(10_000);
        assert_eq!(Stall::of(turned, Some(500), Millis::new(11_000)), None);
        assert_eq!(Stall::of(turned, Some(501), Millis::new(10_001)), Some(Stall::Sync));
        assert_eq!(Stall::of(turned, None, Millis::new(11_001)), Some(Stall::Turns));
    }
}
