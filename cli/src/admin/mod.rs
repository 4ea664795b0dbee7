//! Commands that read or change a cluster, one file per noun.

pub(crate) mod access;
pub(crate) mod alter;
pub(crate) mod check;
pub(crate) mod config;
mod each;
pub(crate) mod events;
pub(crate) mod limits;
pub(crate) mod node;
pub(crate) mod orders;
pub(crate) mod partition;
mod phrases;
pub(crate) mod quorum;
mod reasons;
pub(crate) mod rebalance;
pub(crate) mod status;
pub(crate) mod table;
pub(crate) mod top;
mod wait;
mod watch;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the time since a Unix time; `None` if that is unknown (zero).
pub(crate) fn since(at_ms: u64) -> Option<Duration> {
    if at_ms == 0 {
        return None;
    }
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    Some(Duration::from_millis(now_ms.saturating_sub(at_ms)))
}

/// Returns the time until a Unix time; zero if it has passed.
fn until(at_ms: u64) -> Duration {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    Duration::from_millis(at_ms.saturating_sub(now_ms))
}

/// Formats the time since a Unix time for people: `12s ago`, `3m ago`. Empty if that is unknown (zero).
fn ago_text(at_ms: u64) -> String {
    since(at_ms).map_or_else(String::new, |time| format!("{} ago", short_time(time)))
}

/// Formats a duration in one unit: `850ms`, `12s`, `3m`, `5h`, `2d`.
pub(crate) fn short_time(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 => format!("{}ms", time.as_millis()),
        1..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Formats a list for one line of text; `-` if it is empty.
fn list_text<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    if items.is_empty() { "-".to_owned() } else { items.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        let found: Vec<String> = [0, 999, 1_000, 61_000, 7_200_000, 172_800_000]
            .into_iter()
            .map(|ms| short_time(Duration::from_millis(ms)))
            .collect();
        assert_eq!(found, ["0ms", "999ms", "1s", "1m", "2h", "2d"]);
        assert_eq!(ago_text(0), "");
    }
}
