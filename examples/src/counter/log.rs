//! Ownership log of an instance: when partitions came and went, and when it checked its ownership.
//!
//! All instances of a machine use one clock, which continues while the machine sleeps. So their logs can be compared.

use archon_client::{Grant, PartitionId, PartitionLost};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// One line of the log. Times are of [`boot_clock_ns`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// A process begins.
    Started {
        /// Name of the instance.
        name: String,
        /// Process id.
        pid: u32,
        /// Time.
        at_ns: u64,
    },
    /// A partition is ready for requests.
    Acquired {
        /// The partition.
        partition: u32,
        /// The epoch.
        epoch: u64,
        /// Time.
        at_ns: u64,
    },
    /// A partition was released cleanly.
    Released {
        /// The partition.
        partition: u32,
        /// The epoch.
        epoch: u64,
        /// Reason.
        why: String,
        /// Time.
        at_ns: u64,
    },
    /// A partition was lost.
    Lost {
        /// The partition.
        partition: u32,
        /// The epoch.
        epoch: u64,
        /// Time of the notification; the loss was earlier.
        at_ns: u64,
    },
    /// [`Grant::check`] passed for each of these partitions, once or more often.
    Used {
        /// End of the first of these checks: the partitions were owned at some moment up to this one.
        first_ns: u64,
        /// Beginning of the last one: the partitions were owned at some moment from this one on.
        last_ns: u64,
        /// Partition and epoch.
        owned: Vec<(u32, u64)>,
    },
}

/// Returns the nanoseconds since the machine started, its sleep included: the clock of leases.
pub fn boot_clock_ns() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    part(time.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(time.tv_nsec))
}

/// Interval of the ownership checks of [`OwnerLog::watch`].
const ASK_EVERY: Duration = Duration::from_millis(2);
/// Interval of log lines without changes: a killed process loses that much.
const NOTE_EVERY_NS: u64 = 20_000_000;

/// The log of one instance.
#[derive(Debug)]
pub struct OwnerLog {
    file: Option<File>,
    seen: Mutex<Observations>,
}

#[derive(Debug, Default)]
struct Observations {
    /// The newest grant of each partition, with the time of the last line of its own.
    grants: BTreeMap<PartitionId, (Grant, u64)>,
    /// Owned partitions at the last check of all, with the end of the first such check and the beginning of the last
    /// one.
    owned: Vec<(u32, u64)>,
    first_ns: u64,
    last_ns: u64,
    /// Time of the last line about them.
    noted_ns: u64,
}

impl OwnerLog {
    /// Opens a log that appends to a file; without one nothing is logged.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: Option<&Path>, name: &str) -> std::io::Result<Self> {
        let file = path.map(|path| File::options().create(true).append(true).open(path)).transpose()?;
        let log = Self { file, seen: Mutex::default() };
        log.write(&Line::Started { name: name.to_owned(), pid: std::process::id(), at_ns: boot_clock_ns() });
        Ok(log)
    }

    /// Appends a line, at once and as a whole, so that a killed process loses none.
    pub fn write(&self, line: &Line) {
        let Some(mut file) = self.file.as_ref() else { return };
        let Ok(mut text) = serde_json::to_vec(line) else { return };
        text.push(b'\n');
        if let Err(error) = file.write_all(&text) {
            eprintln!("the log of owners has a gap: {error}");
        }
    }

    /// Starts checking this grant, until there is a newer one of its partition: also after it should have ended.
    pub fn acquired(&self, grant: Grant) {
        self.seen().grants.insert(grant.partition(), (grant, 0));
    }

    /// Runs [`Grant::check`], logged if it passes, though not for each of many requests.
    ///
    /// # Errors
    /// As [`Grant::check`].
    pub fn check(&self, grant: &Grant) -> Result<(), PartitionLost> {
        let last_ns = boot_clock_ns();
        let checked = grant.check();
        let first_ns = boot_clock_ns();
        let owned = vec![(grant.partition().index, checked?.get())];
        if let Some((_, noted_ns)) = self.seen().grants.get_mut(&grant.partition())
            && first_ns > *noted_ns + NOTE_EVERY_NS
        {
            *noted_ns = first_ns;
            self.write(&Line::Used { first_ns, last_ns, owned });
        }
        Ok(())
    }

    /// Repeatedly checks the ownership of all partitions, and logs it, until the log is dropped. Uses a thread of its
    /// own, since delays of a busy service are the interesting part.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn watch(self: &Arc<Self>) -> std::io::Result<()> {
        let log = Arc::downgrade(self);
        let watch = move || {
            while let Some(log) = log.upgrade() {
                log.sample();
                drop(log);
                std::thread::sleep(ASK_EVERY);
            }
        };
        std::thread::Builder::new().name("owner-log".to_owned()).spawn(watch).map(drop)
    }

    fn sample(&self) {
        let mut seen = self.seen();
        let last_ns = boot_clock_ns();
        let owns = |grant: &Grant| grant.check().ok().map(|epoch| (grant.partition().index, epoch.get()));
        let owned: Vec<(u32, u64)> = seen.grants.values().filter_map(|(grant, _)| owns(grant)).collect();
        let first_ns = boot_clock_ns();
        if owned != seen.owned {
            self.note(&mut seen);
            (seen.owned, seen.first_ns, seen.noted_ns) = (owned, first_ns, 0);
        }
        seen.last_ns = last_ns;
        if first_ns > seen.noted_ns + NOTE_EVERY_NS {
            self.note(&mut seen);
        }
    }

    fn note(&self, seen: &mut Observations) {
        seen.noted_ns = boot_clock_ns();
        if !seen.owned.is_empty() {
            let Observations { first_ns, last_ns, .. } = *seen;
            self.write(&Line::Used { first_ns, last_ns, owned: seen.owned.clone() });
        }
    }

    fn seen(&self) -> MutexGuard<'_, Observations> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the log of an instance. A partial last line, from the end of the process, is omitted.
///
/// # Errors
/// If the file cannot be read, or another line is malformed.
pub fn read_lines(path: &Path) -> std::io::Result<Vec<Line>> {
    let mut reader = BufReader::new(File::open(path)?);
    let (mut lines, mut text) = (Vec::new(), String::new());
    while reader.read_line(&mut text)? > 0 && text.ends_with('\n') {
        lines.push(serde_json::from_str(&text)?);
        text.clear();
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_are_read_without_a_partial_last_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let log = OwnerLog::open(Some(&path), "ada").unwrap();
        let used = Line::Used { first_ns: 2, last_ns: 1, owned: vec![(3, 4)] };
        log.write(&used);
        File::options().append(true).open(&path).unwrap().write_all(b"{\"used\":").unwrap();
        let lines = read_lines(&path).unwrap();
        assert!(matches!(&lines[0], Line::Started { name, .. } if name == "ada"), "{lines:?}");
        assert_eq!(lines[1..], [used]);
    }

    #[test]
    fn boot_clock_does_not_go_back() {
        let first = boot_clock_ns();
        assert!(first > 0 && boot_clock_ns() >= first);
    }
}
