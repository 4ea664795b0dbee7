//! Waits for a condition, with a limit, and reports the last state if it does not come true.

use std::fmt::Display;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Error: a condition did not become true in time.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected {what} within {} s, but after that: {state}", .limit.as_secs())]
pub struct TimeoutError {
    /// The awaited condition.
    pub what: String,
    /// The limit.
    pub limit: Duration,
    /// The last state.
    pub state: String,
}

/// Result of checking a condition.
#[derive(Debug)]
pub enum CheckOutcome<T> {
    /// It holds.
    Yes(T),
    /// It does not hold yet; the text describes the state.
    NotYet(String),
}

/// A running wait. The caller sleeps between two checks.
#[derive(Debug)]
pub struct Wait<'a> {
    what: &'a str,
    limit: Duration,
    began: Instant,
}

impl<'a> Wait<'a> {
    /// Default poll interval, unless that would load the measured system.
    pub const EVERY: Duration = Duration::from_millis(20);

    /// Starts waiting for `what`.
    pub fn begin(what: &'a str, limit: Duration) -> Self {
        Self { what, limit, began: Instant::now() }
    }

    /// Returns the time waited so far.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Records a failed check.
    ///
    /// # Errors
    /// When the limit has passed.
    pub fn go_on(&self, state: impl Display) -> Result<(), TimeoutError> {
        if self.elapsed() < self.limit {
            return Ok(());
        }
        Err(TimeoutError { what: self.what.to_owned(), limit: self.limit, state: state.to_string() })
    }
}

/// Polls until the condition holds, and returns the time taken.
///
/// # Errors
/// [`TimeoutError`] after `limit`. An error of the check itself ends the wait at once.
pub async fn wait_for<T, E: From<TimeoutError>>(
    what: &str,
    limit: Duration,
    every: Duration,
    mut look: impl AsyncFnMut() -> Result<CheckOutcome<T>, E>,
) -> Result<(T, Duration), E> {
    let wait = Wait::begin(what, limit);
    loop {
        match look().await? {
            CheckOutcome::Yes(value) => return Ok((value, wait.elapsed())),
            CheckOutcome::NotYet(state) => wait.go_on(state)?,
        }
        sleep(every).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn wait_time_out_reports_the_last_state() {
        let mut looks = 0;
        let late = wait_for::<(), TimeoutError>("a leader", Duration::from_secs(1), Wait::EVERY, async || {
            looks += 1;
            Ok(CheckOutcome::NotYet(format!("look {looks}: none")))
        });
        let message = late.await.unwrap_err().to_string();
        assert_eq!(message, "expected a leader within 1 s, but after that: look 51: none");
    }

    #[tokio::test]
    async fn true_condition_is_returned_with_its_time() {
        let mut looks = 0;
        let found = wait_for::<_, TimeoutError>("three looks", Duration::from_secs(60), Wait::EVERY, async || {
            looks += 1;
            Ok(if looks == 3 { CheckOutcome::Yes(looks) } else { CheckOutcome::NotYet(String::new()) })
        });
        assert_eq!(found.await.unwrap().0, 3);
    }
}
