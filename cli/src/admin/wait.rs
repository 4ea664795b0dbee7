//! Waiting for a process in the cluster that continues unwatched: a drain, a rebalance.

use crate::exit::{Exit, Failure};
use std::time::{Duration, Instant};

/// Polling interval.
const POLL: Duration = Duration::from_millis(200);

/// The process, and the display of its progress.
pub(crate) trait WatchedProcess {
    /// The outcome.
    type Outcome;

    /// Polls, and shows the progress. `None`: it is still running.
    ///
    /// # Errors
    /// Any failure that ends the wait. Trouble with the quorum does not.
    async fn look(&mut self) -> Result<Option<Self::Outcome>, Failure>;

    /// Prints a message beside the progress.
    fn say(&self, text: &str);

    /// Removes the progress from the terminal.
    fn finish(&self);
}

/// End of a wait.
pub(crate) enum WaitEnd<T> {
    /// The process has ended.
    Over(T),
    /// The reader pressed Ctrl-C: it continues unwatched.
    Detached,
    /// The limit passed: it continues.
    TimedOut,
}

/// Waits until the process ends, the reader stops, or `limit` passes.
///
/// # Errors
/// As [`WatchedProcess::look`].
pub(crate) async fn wait<W: WatchedProcess>(
    watched: &mut W,
    limit: Option<Duration>,
) -> Result<WaitEnd<W::Outcome>, Failure> {
    let waited = look_until_over(watched, limit).await;
    watched.finish();
    waited
}

async fn look_until_over<W: WatchedProcess>(
    watched: &mut W,
    limit: Option<Duration>,
) -> Result<WaitEnd<W::Outcome>, Failure> {
    let started = Instant::now();
    let mut trouble = false;
    let mut ticks = tokio::time::interval(POLL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    loop {
        tokio::select! {
            _ = &mut interrupted => return Ok(WaitEnd::Detached),
            _ = ticks.tick() => {}
        }
        match watched.look().await {
            Ok(Some(outcome)) => return Ok(WaitEnd::Over(outcome)),
            Ok(None) => trouble = false,
            // The quorum may be electing: the process continues, and so does the wait.
            Err(failure) if matches!(failure.exit, Exit::Unreachable | Exit::TimedOut) => {
                // Once per spell of trouble: a wait may be long, and each time-out would print the same.
                if !std::mem::replace(&mut trouble, true) {
                    watched.say(&format!("still waiting: {}", failure.message));
                }
            }
            Err(failure) => return Err(failure),
        }
        if limit.is_some_and(|limit| started.elapsed() >= limit) {
            return Ok(WaitEnd::TimedOut);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Results of successive polls.
    struct Script {
        looks: Vec<Result<Option<u32>, Failure>>,
        said: RefCell<Vec<String>>,
    }

    impl WatchedProcess for Script {
        type Outcome = u32;

        async fn look(&mut self) -> Result<Option<u32>, Failure> {
            self.looks.remove(0)
        }

        fn say(&self, text: &str) {
            self.said.borrow_mut().push(text.to_owned());
        }

        fn finish(&self) {
            self.say("finished");
        }
    }

    fn script(looks: Vec<Result<Option<u32>, Failure>>) -> Script {
        Script { looks, said: RefCell::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn trouble_is_reported_once_and_ends_nothing() {
        let away = || Err(Failure::new(Exit::Unreachable, "nobody"));
        let mut script = script(vec![Ok(None), away(), away(), Ok(None), away(), Ok(Some(7))]);
        assert!(matches!(wait(&mut script, None).await, Ok(WaitEnd::Over(7))));
        assert_eq!(script.said.take(), ["still waiting: nobody", "still waiting: nobody", "finished"]);
    }

    #[tokio::test(start_paused = true)]
    async fn refusal_or_limit_ends_the_wait() {
        let mut refused = script(vec![Ok(None), Err(Failure::new(Exit::Refused, "taken back"))]);
        assert_eq!(wait(&mut refused, None).await.err().map(|failure| failure.exit), Some(Exit::Refused));
        let mut late = script(vec![Ok(None); 3]);
        assert!(matches!(wait(&mut late, Some(Duration::ZERO)).await, Ok(WaitEnd::TimedOut)));
        assert_eq!((late.looks.len(), late.said.take()), (2, vec!["finished".to_owned()]));
    }
}
