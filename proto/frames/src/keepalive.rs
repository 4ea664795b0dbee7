//! Keepalives: signs of life on a stream.

use crate::{FrameError, FrameReader, FrameWriter};
use std::time::Duration;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// Says that one is there, and notices that a peer no longer is. Both sides of a stream do.
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
    /// How often whoever has nothing else to say says so.
    pub const EVERY: Duration = Duration::from_millis(750);
    /// How long a peer may be silent. Shorter than the deadline of an ordinary call, so that the call has time to go
    /// elsewhere.
    pub const TIMEOUT: Duration = Self::EVERY.saturating_mul(Self::SILENT_MAX);

    const SILENT_MAX: u32 = 4;

    /// Waits until it is time to [`mark`](Self::mark). Dropping the future loses nothing.
    pub async fn tick(&mut self) {
        self.every.tick().await;
    }

    /// Queues a keepalive if nothing was said since the last time.
    ///
    /// # Errors
    /// [`FrameError::Silent`] if the peer was silent for too long.
    pub fn mark(&mut self, reader: &mut FrameReader, writer: &mut FrameWriter) -> Result<(), FrameError> {
        self.listen(reader)?;
        self.speak(writer);
        Ok(())
    }

    /// As [`mark`](Self::mark), of what is heard alone.
    ///
    /// # Errors
    /// [`FrameError::Silent`] if the peer was silent for too long.
    pub fn listen(&mut self, reader: &mut FrameReader) -> Result<(), FrameError> {
        self.silent = if reader.take_heard() { 0 } else { self.silent + 1 };
        if self.silent >= Self::SILENT_MAX { Err(FrameError::Silent(Self::TIMEOUT)) } else { Ok(()) }
    }

    /// As [`mark`](Self::mark), of what is said alone.
    pub fn speak(&mut self, writer: &mut FrameWriter) {
        // What waits to leave says it as well.
        if !writer.take_said() && writer.is_empty() {
            writer.alive();
        }
    }
}
