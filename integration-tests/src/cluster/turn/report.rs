//! Durations of turns, for those who look for slow tests: `--report-time` of a test program counts the wait for a turn as well.

use super::Room;
use std::fs::File;
use std::io::Write as _;
use std::time::Duration;

/// Environment variable with the file to which each turn adds a line.
const FILE: &str = "ARCHON_TEST_TURNS";

/// Adds a line about the turn of the test on this thread, if [`FILE`] is set. Errors are ignored: no test depends on it.
pub(super) fn write(room: Room, waited: Duration, ran: Duration) {
    let Some(file) = std::env::var_os(FILE) else { return };
    let thread = std::thread::current();
    let line = line(thread.name().unwrap_or("unnamed"), room, waited, ran);
    // One write, since other tests add lines too.
    let _ = File::options().create(true).append(true).open(file).and_then(|mut file| file.write_all(line.as_bytes()));
}

fn line(test: &str, room: Room, waited: Duration, ran: Duration) -> String {
    format!("{:7.1} s {room:?} {test}, after {:.1} s of waiting\n", ran.as_secs_f64(), waited.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_begins_with_the_duration() {
        let seconds = Duration::from_secs_f64;
        let found = line("splits::kill", Room::Calm, seconds(2.0), seconds(13.25));
        assert_eq!(found, "   13.2 s Calm splits::kill, after 2.0 s of waiting\n");
    }
}
