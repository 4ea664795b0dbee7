//! Keepalives of streams.

use crate::{FrameError, FrameReader, FrameWriter};
use std::time::Duration;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// Sends keepalives and detects a dead peer. Both sides of a stream use it.
#[derive(Debug)]
pub struct Keepalive {
    every: Interval,
    silent: u32,
}

impl Default for Keepalive {
    fn default() -> Self {
        let mut every = interval_at(Instant::now() + Self::EVERY, Self::EVERY);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { every, silent: 0 }
    }
}

impl Keepalive {
    /// Interval of keepalives on an idle stream.
    pub const EVERY: Duration = Duration::from_millis(750);
    /// Longest silence of a peer. Shorter than the deadline of an ordinary call, so that the call can still go
    /// elsewhere.
    pub const TIMEOUT: Duration = Self::EVERY.saturating_mul(Self::SILENT_MAX);

    const SILENT_MAX: u32 = 4;

    /// Waits until it is time to [`mark`](Self::mark). Cancel safe.
    pub async fn tick(&mut self) {
        self.every.tick().await;
    }

    /// Queues a keepalive if nothing was sent since the last call.
    ///
    /// # Errors
    /// [`FrameError::Silent`] if the peer was silent for too long.
    pub fn mark(&mut self, reader: &mut FrameReader, writer: &mut FrameWriter) -> Result<(), FrameError> {
        self.listen(reader)?;
        self.speak(writer);
        Ok(())
    }

    /// Like [`mark`](Self::mark), for the receiving direction only.
    ///
    /// # Errors
    /// [`FrameError::Silent`] if the peer was silent for too long.
    pub fn listen(&mut self, reader: &mut FrameReader) -> Result<(), FrameError> {
        self.silent = if reader.take_heard() { 0 } else { self.silent + 1 };
        if self.silent >= Self::SILENT_MAX { Err(FrameError::Silent(Self::TIMEOUT)) } else { Ok(()) }
    }

    /// Like [`mark`](Self::mark), for the sending direction only.
    pub fn speak(&mut self, writer: &mut FrameWriter) {
        // Pending data is a sign of life as well.
        if !writer.take_said() && writer.is_empty() {
            writer.alive();
        }
    }
}
