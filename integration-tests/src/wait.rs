//! Waiting for a condition; there are no bare sleeps in tests.

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(20);

/// Polls `condition` until it gives a value, and returns it with the time it took.
///
/// # Panics
/// After `limit`, with `what` was awaited and the last state that `condition` described.
pub fn wait_for<T, E: Display>(
    what: &str,
    limit: Duration,
    mut condition: impl FnMut() -> Result<T, E>,
) -> (T, Duration) {
    let began = Instant::now();
    loop {
        let state = match condition() {
            Ok(value) => return (value, began.elapsed()),
            Err(state) => state,
        };
        assert!(began.elapsed() < limit, "waited {limit:?} for {what}; last state: {state}");
        thread::sleep(POLL);
    }
}

/// `Ok` if `holds`, else a description of the state made by `describe`.
///
/// # Errors
/// The description, when the condition does not hold.
pub fn check(holds: bool, describe: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(describe()) }
}
