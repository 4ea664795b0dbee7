//! Waiting for a condition; tests contain no bare sleeps.

use archon_load::Wait;
use std::fmt::Display;
use std::thread;
use std::time::Duration;

/// Polls `condition` until it returns a value, and returns it with the time taken.
///
/// # Panics
/// After `limit`, with `what` was awaited and the last state that `condition` described.
pub fn wait_for<T, E: Display>(
    what: &str,
    limit: Duration,
    mut condition: impl FnMut() -> Result<T, E>,
) -> (T, Duration) {
    let wait = Wait::begin(what, limit);
    loop {
        match condition() {
            Ok(value) => return (value, wait.elapsed()),
            Err(state) => wait.go_on(state).unwrap_or_else(|late| panic!("{late}")),
        }
        thread::sleep(Wait::EVERY);
    }
}

/// Returns `Ok` if `holds`, else the description made by `describe`.
///
/// # Errors
/// The description, when the condition does not hold.
pub fn check(holds: bool, describe: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(describe()) }
}
