//! Waiting for a condition, with a limit, and a word about the last state if it does not come true.

use crate::error::Error;
use std::time::Duration;
use tokio::time::Instant;

/// How often a condition is looked at.
const EVERY: Duration = Duration::from_millis(20);

/// What a look at a condition found.
#[derive(Debug)]
pub enum Look<T> {
    /// It holds.
    Yes(T),
    /// It does not hold yet; the text says how things stand.
    NotYet(String),
}

/// Looks until the condition holds, and says how long that took.
///
/// # Errors
/// [`Error::Late`] after `limit`: what was waited for and the last state. An error of the look itself ends the waiting
/// at once.
pub async fn wait_for<T, E: From<Error>>(
    what: &str,
    limit: Duration,
    mut look: impl AsyncFnMut() -> Result<Look<T>, E>,
) -> Result<(T, Duration), E> {
    let started = Instant::now();
    loop {
        let state = match look().await? {
            Look::Yes(value) => return Ok((value, started.elapsed())),
            Look::NotYet(state) => state,
        };
        if started.elapsed() >= limit {
            return Err(Error::Late { what: what.to_owned(), limit, state }.into());
        }
        tokio::time::sleep(EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_with_the_last_state() {
        let mut looks = 0;
        let late = wait_for::<(), Error>("a leader", Duration::from_secs(1), async || {
            looks += 1;
            Ok(Look::NotYet(format!("look {looks}: none")))
        });
        let message = late.await.unwrap_err().to_string();
        assert_eq!(message, "expected a leader within 1 s, but after that: look 51: none");
    }

    #[tokio::test]
    async fn a_condition_that_holds_is_returned_with_its_time() {
        let mut looks = 0;
        let found = wait_for::<_, Error>("three looks", Duration::from_secs(60), async || {
            looks += 1;
            Ok(if looks == 3 { Look::Yes(looks) } else { Look::NotYet(String::new()) })
        });
        assert_eq!(found.await.unwrap().0, 3);
    }
}
