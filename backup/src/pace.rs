//! Rate limit of bytes.

use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// A rate limit shared by several tasks.
#[derive(Debug)]
pub(crate) struct Pace {
    bytes_per_second: Option<u64>,
    /// Time when the next bytes may pass.
    next: Mutex<Instant>,
}

impl Pace {
    /// Creates a limit in bytes per second, or none.
    pub(crate) fn new(bytes_per_second: Option<u64>) -> Self {
        Self { bytes_per_second, next: Mutex::new(Instant::now()) }
    }

    /// Waits for the preceding bytes and the rate limit.
    pub(crate) async fn pass(&self, bytes: usize) {
        let Some(rate) = self.bytes_per_second else { return };
        let takes = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        let at = {
            let mut next = self.next.lock();
            // Unused capacity does not accumulate.
            let at = (*next).max(Instant::now());
            *next = at + takes;
            at
        };
        sleep_until(at).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn idle_time_does_not_accumulate_capacity() {
        let pace = Pace::new(Some(1_000));
        tokio::time::sleep(Duration::from_secs(100)).await;
        let began = Instant::now();
        for _ in 0..11 {
            pace.pass(500).await;
        }
        assert_eq!(began.elapsed().as_millis() / 10, 500);
        let began = Instant::now();
        Pace::new(None).pass(usize::MAX).await;
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
