//! Waits for conditions; tests contain no bare sleeps.

use crate::processors::ProcessorTime;
use std::fmt::{Debug, Display};
use std::thread;
use std::time::{Duration, Instant};

/// Shortest pause between two polls.
const INTERVAL: Duration = Duration::from_millis(10);
/// Longest pause between two polls.
const INTERVAL_MAX: Duration = Duration::from_millis(500);
/// Length of a pause as a multiple of the poll before it. A command line that polls uses a processor; so it leaves most of the machine to
/// the processes under test, also on a busy machine, where each poll takes long.
const PAUSE_FACTOR: u32 = 3;
/// Limit of waits for the state of one process: the machine may be busy with other tests.
const STATE_LIMIT: Duration = Duration::from_secs(60);

/// Factor by which a limit is exceeded on a machine that is busy all the time: there, the processes under test wait for their
/// turns.
const BUSY_FACTOR: u32 = 3;
/// Percentage of processor time from which on the machine is not busy all the time.
const IDLE_PERCENT_MIN: u8 = 3;

/// The time of one wait.
struct Wait {
    began: Instant,
    processors: Option<ProcessorTime>,
}

impl Wait {
    fn begin() -> Self {
        Self { began: Instant::now(), processors: ProcessorTime::now() }
    }

    /// Returns true after `limit`; on a busy machine after three times as long.
    fn is_over(&self, limit: Duration) -> bool {
        is_over(self.began.elapsed(), limit, || {
            let (begin, now) = (self.processors, ProcessorTime::now());
            begin.zip(now).is_none_or(|(begin, now)| now.idled_since(begin, IDLE_PERCENT_MIN))
        })
    }
}

fn is_over(elapsed: Duration, limit: Duration, machine_idled: impl FnOnce() -> bool) -> bool {
    elapsed >= limit && (elapsed >= limit * BUSY_FACTOR || machine_idled())
}

/// Returns the pause after a poll that took this long.
fn pause_after(poll: Duration, interval: Duration) -> Duration {
    poll.saturating_mul(PAUSE_FACTOR).clamp(interval, interval.max(INTERVAL_MAX))
}

/// Polls `condition` until it returns a value, and returns it with the time taken. Blocks the thread.
///
/// # Panics
/// After `limit`, with the awaited condition (`what`) and the last state that `condition` described; on a machine that was
/// busy all the time, after three times as long.
#[track_caller]
pub fn wait_for<T, E: Display>(what: &str, limit: Duration, condition: impl FnMut() -> Result<T, E>) -> (T, Duration) {
    wait_for_every(INTERVAL, what, limit, condition)
}

/// As [`wait_for`], with a pause of at least `interval`: for polls that load the processes under test.
///
/// # Panics
/// As [`wait_for`].
#[track_caller]
pub fn wait_for_every<T, E: Display>(
    interval: Duration,
    what: &str,
    limit: Duration,
    mut condition: impl FnMut() -> Result<T, E>,
) -> (T, Duration) {
    let wait = Wait::begin();
    loop {
        let polled = Instant::now();
        match condition() {
            Ok(value) => return (value, wait.began.elapsed()),
            Err(state) => assert!(!wait.is_over(limit), "{}", late(what, wait.began.elapsed(), &state)),
        }
        thread::sleep(pause_after(polled.elapsed(), interval));
    }
}

/// Polls `condition` until it returns a value, and returns it; for async runtimes.
///
/// # Panics
/// As [`wait_for`].
pub async fn wait_for_async<T, E: Display>(
    what: &str,
    limit: Duration,
    mut condition: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    let wait = Wait::begin();
    loop {
        let polled = Instant::now();
        match condition().await {
            Ok(value) => return value,
            Err(state) => assert!(!wait.is_over(limit), "{}", late(what, wait.began.elapsed(), &state)),
        }
        tokio::time::sleep(pause_after(polled.elapsed(), INTERVAL)).await;
    }
}

/// Waits until the state that `read` returns satisfies `condition`, and returns that state.
///
/// # Panics
/// After a minute, with the awaited condition and the last state.
pub async fn wait_for_state<T: Debug>(what: &str, read: impl Fn() -> T, condition: impl Fn(&T) -> bool) -> T {
    let poll = async || {
        let state = read();
        if condition(&state) { Ok(state) } else { Err(format!("{state:?}")) }
    };
    wait_for_async(what, STATE_LIMIT, poll).await
}

/// Returns `Ok` if `holds`, else the description made by `describe`.
///
/// # Errors
/// The description, when the condition does not hold.
pub fn check(holds: bool, describe: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(describe()) }
}

fn late(what: &str, waited: Duration, state: &impl Display) -> String {
    format!("expected {what} within {} s, but after that: {state}", waited.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    fn message_of(wait: impl FnOnce() + std::panic::UnwindSafe) -> String {
        *catch_unwind(wait).unwrap_err().downcast::<String>().unwrap()
    }

    #[test]
    fn wait_over_its_limit_reports_the_last_state() {
        let never = || wait_for::<(), _>("a leader", Duration::ZERO, || Err("none")).0;
        assert_eq!(message_of(never), "expected a leader within 0 s, but after that: none");
    }

    #[test]
    fn limit_is_longer_on_a_machine_without_idle_time() {
        let limit = Duration::from_secs(60);
        for (seconds, idled, over) in [(59, true, false), (60, true, true), (60, false, false), (180, false, true)] {
            assert_eq!(is_over(Duration::from_secs(seconds), limit, || idled), over, "{seconds} s, idle: {idled}");
        }
    }

    #[test]
    fn pause_is_three_times_as_long_as_the_poll_within_limits() {
        let pause =
            |poll, interval| pause_after(Duration::from_millis(poll), Duration::from_millis(interval)).as_millis();
        assert_eq!([0, 20, 150, 10_000].map(|poll| pause(poll, 10)), [10, 60, 450, 500]);
        assert_eq!([5, 10_000].map(|poll| pause(poll, 2_000)), [2_000, 2_000]);
    }

    #[test]
    fn condition_that_comes_true_returns_its_value() {
        let mut polls = 0;
        let poll = || {
            polls += 1;
            check(polls == 3, || format!("{polls} polls"))
        };
        assert!(wait_for("three polls", STATE_LIMIT, poll).1 > INTERVAL);
    }

    #[tokio::test(start_paused = true)]
    async fn state_that_comes_true_is_returned() {
        let began = tokio::time::Instant::now();
        let state = wait_for_state("a second", || began.elapsed().as_millis(), |millis| *millis >= 1_000).await;
        assert_eq!(state, 1_000);
    }
}
