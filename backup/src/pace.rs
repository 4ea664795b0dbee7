//! How fast bytes may pass.

use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// A limit that several tasks share.
#[derive(Debug)]
pub(crate) struct Pace {
    bytes_per_second: Option<u64>,
    /// When the next bytes may pass.
    next: Mutex<Instant>,
}

impl Pace {
    /// So many bytes per second, or as many as come.
    pub(crate) fn new(bytes_per_second: Option<u64>) -> Self {
        Self { bytes_per_second, next: Mutex::new(Instant::now()) }
    }

    /// Waits until those have passed that came before, then lets these pass.
    pub(crate) async fn pass(&self, bytes: usize) {
        let Some(rate) = self.bytes_per_second else { return };
        let takes = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        let at = {
            let mut next = self.next.lock();
            // What was not used is not saved up.
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
    async fn bytes_pass_at_the_pace_and_an_idle_time_saves_nothing_up() {
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
