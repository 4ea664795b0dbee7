//! Waiting for something that goes on in the cluster whether anybody watches or not: a drain, a rebalance.

use crate::exit::{Exit, Failure};
use std::time::{Duration, Instant};

/// How often it is looked at.
const POLL: Duration = Duration::from_millis(200);

/// What is waited for, and how its progress is shown.
pub(crate) trait Watched {
    /// The outcome.
    type Outcome;

    /// Looks, and shows how far it is. `None`: it goes on.
    ///
    /// # Errors
    /// Whatever ends the waiting. Trouble with the quorum does not.
    async fn look(&mut self) -> Result<Option<Self::Outcome>, Failure>;

    /// Says something beside the progress.
    fn say(&self, text: &str);

    /// Takes the progress off the terminal.
    fn finish(&self);
}

/// How waiting ended.
pub(crate) enum Waited<T> {
    /// It is over.
    Over(T),
    /// The reader pressed Ctrl-C: it goes on unwatched.
    Detached,
    /// The limit passed: it goes on.
    TimedOut,
}

/// Waits until it is over, for as long as the reader wants to and `limit` allows.
///
/// # Errors
/// As [`Watched::look`].
pub(crate) async fn wait<W: Watched>(watched: &mut W, limit: Option<Duration>) -> Result<Waited<W::Outcome>, Failure> {
    let waited = look_until_over(watched, limit).await;
    watched.finish();
    waited
}

async fn look_until_over<W: Watched>(watched: &mut W, limit: Option<Duration>) -> Result<Waited<W::Outcome>, Failure> {
    let started = Instant::now();
    let mut trouble = false;
    let mut ticks = tokio::time::interval(POLL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    loop {
        tokio::select! {
            _ = &mut interrupted => return Ok(Waited::Detached),
            _ = ticks.tick() => {}
        }
        match watched.look().await {
            Ok(Some(outcome)) => return Ok(Waited::Over(outcome)),
            Ok(None) => trouble = false,
            // The quorum may be electing: what is waited for goes on, so the watching does too.
            Err(failure) if matches!(failure.exit, Exit::Unreachable | Exit::TimedOut) => {
                // Once per spell of trouble: a wait may be long, and each time-out would say the same.
                if !std::mem::replace(&mut trouble, true) {
                    watched.say(&format!("still waiting: {}", failure.message));
                }
            }
            Err(failure) => return Err(failure),
        }
        if limit.is_some_and(|limit| started.elapsed() >= limit) {
            return Ok(Waited::TimedOut);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// What each look gives, in turn.
    struct Script {
        looks: Vec<Result<Option<u32>, Failure>>,
        said: RefCell<Vec<String>>,
    }

    impl Watched for Script {
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
    async fn a_spell_of_trouble_is_said_once_and_ends_nothing() {
        let away = || Err(Failure::new(Exit::Unreachable, "nobody"));
        let mut script = script(vec![Ok(None), away(), away(), Ok(None), away(), Ok(Some(7))]);
        assert!(matches!(wait(&mut script, None).await, Ok(Waited::Over(7))));
        assert_eq!(script.said.take(), ["still waiting: nobody", "still waiting: nobody", "finished"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_ends_it_and_so_does_the_limit() {
        let mut refused = script(vec![Ok(None), Err(Failure::new(Exit::Refused, "taken back"))]);
        assert_eq!(wait(&mut refused, None).await.err().map(|failure| failure.exit), Some(Exit::Refused));
        let mut late = script(vec![Ok(None); 3]);
        assert!(matches!(wait(&mut late, Some(Duration::ZERO)).await, Ok(Waited::TimedOut)));
        assert_eq!((late.looks.len(), late.said.take()), (2, vec!["finished".to_owned()]));
    }
}
