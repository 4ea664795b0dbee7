//! Waiting for a condition, with a limit, and a word about the last state if it does not come true.

use std::fmt::Display;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// What was waited for did not come about in time.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected {what} within {} s, but after that: {state}", .limit.as_secs())]
pub struct Late {
    /// What was waited for.
    pub what: String,
    /// How long.
    pub limit: Duration,
    /// How things stood at last.
    pub state: String,
}

/// What a look at a condition found.
#[derive(Debug)]
pub enum Look<T> {
    /// It holds.
    Yes(T),
    /// It does not hold yet; the text says how things stand.
    NotYet(String),
}

/// A wait under way. Who waits sleeps between two looks as suits it.
#[derive(Debug)]
pub struct Wait<'a> {
    what: &'a str,
    limit: Duration,
    began: Instant,
}

impl<'a> Wait<'a> {
    /// How often a condition is looked at, unless that would load what is measured.
    pub const EVERY: Duration = Duration::from_millis(20);

    /// Begins to wait for `what`.
    pub fn begin(what: &'a str, limit: Duration) -> Self {
        Self { what, limit, began: Instant::now() }
    }

    /// How long it has taken so far.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Notes what a look found that did not find the condition to hold.
    ///
    /// # Errors
    /// When the limit is over.
    pub fn go_on(&self, state: impl Display) -> Result<(), Late> {
        if self.elapsed() < self.limit {
            return Ok(());
        }
        Err(Late { what: self.what.to_owned(), limit: self.limit, state: state.to_string() })
    }
}

/// Looks until the condition holds, and says how long that took.
///
/// # Errors
/// [`Late`] after `limit`. An error of the look itself ends the waiting at once.
pub async fn wait_for<T, E: From<Late>>(
    what: &str,
    limit: Duration,
    every: Duration,
    mut look: impl AsyncFnMut() -> Result<Look<T>, E>,
) -> Result<(T, Duration), E> {
    let wait = Wait::begin(what, limit);
    loop {
        match look().await? {
            Look::Yes(value) => return Ok((value, wait.elapsed())),
            Look::NotYet(state) => wait.go_on(state)?,
        }
        sleep(every).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_with_the_last_state() {
        let mut looks = 0;
        let late = wait_for::<(), Late>("a leader", Duration::from_secs(1), Wait::EVERY, async || {
            looks += 1;
            Ok(Look::NotYet(format!("look {looks}: none")))
        });
        let message = late.await.unwrap_err().to_string();
        assert_eq!(message, "expected a leader within 1 s, but after that: look 51: none");
    }

    #[tokio::test]
    async fn a_condition_that_holds_is_returned_with_its_time() {
        let mut looks = 0;
        let found = wait_for::<_, Late>("three looks", Duration::from_secs(60), Wait::EVERY, async || {
            looks += 1;
            Ok(if looks == 3 { Look::Yes(looks) } else { Look::NotYet(String::new()) })
        });
        assert_eq!(found.await.unwrap().0, 3);
    }
}
