//! What an instance notes of its ownership: when partitions came and went, and at which moments it found that it owned which.
//!
//! All instances of a machine note the time of one clock, which goes on while the machine sleeps. So what they note can be
//! laid side by side.

use archon_client::{Grant, Lost, PartitionId};
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
        /// The instance's name.
        name: String,
        /// The process's id.
        pid: u32,
        /// When.
        at_ns: u64,
    },
    /// A partition is ready for requests.
    Acquired {
        /// Which.
        partition: u32,
        /// In which epoch.
        epoch: u64,
        /// When.
        at_ns: u64,
    },
    /// A partition was given up in order.
    Released {
        /// Which.
        partition: u32,
        /// In which epoch.
        epoch: u64,
        /// Why.
        why: String,
        /// When.
        at_ns: u64,
    },
    /// A partition was lost.
    Lost {
        /// Which.
        partition: u32,
        /// In which epoch.
        epoch: u64,
        /// When the instance was told; it had lost it by then.
        at_ns: u64,
    },
    /// [`Grant::check`] passed for each of these partitions, once or more often.
    Used {
        /// The end of the first of these checks: the partitions were owned at some moment up to this one.
        first_ns: u64,
        /// The beginning of the last one: the partitions were owned at some moment from this one on.
        last_ns: u64,
        /// Partition and epoch.
        owned: Vec<(u32, u64)>,
    },
}

/// Nanoseconds since the machine started, its sleep included: the clock on which leases count.
pub fn boot_clock_ns() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    part(time.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(time.tv_nsec))
}

/// How often [`OwnerLog::watch`] asks what is owned.
const ASK_EVERY: Duration = Duration::from_millis(2);
/// How often what stays the same is noted: a process that is killed loses that much.
const NOTE_EVERY_NS: u64 = 20_000_000;

/// The log of one instance.
#[derive(Debug)]
pub struct OwnerLog {
    file: Option<File>,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// The newest grant of each partition, with the time of the last line of its own.
    grants: BTreeMap<PartitionId, (Grant, u64)>,
    /// What was owned when all were asked last, which began to be so with the first time and was so until the second.
    owned: Vec<(u32, u64)>,
    first_ns: u64,
    last_ns: u64,
    /// When that was noted last.
    noted_ns: u64,
}

impl OwnerLog {
    /// Appends to a file; without one nothing is noted.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: Option<&Path>, name: &str) -> std::io::Result<Self> {
        let file = path.map(|path| File::options().create(true).append(true).open(path)).transpose()?;
        let log = Self { file, seen: Mutex::default() };
        log.write(&Line::Started { name: name.to_owned(), pid: std::process::id(), at_ns: boot_clock_ns() });
        Ok(log)
    }

    /// Appends a line, at once and as a whole, so that a process that is killed loses none.
    pub fn write(&self, line: &Line) {
        let Some(mut file) = self.file.as_ref() else { return };
        let Ok(mut text) = serde_json::to_vec(line) else { return };
        text.push(b'\n');
        if let Err(error) = file.write_all(&text) {
            eprintln!("the log of owners has a gap: {error}");
        }
    }

    /// This grant is asked from now on, until there is a newer one of its partition: also when it should not be worth anything any
    /// more.
    pub fn acquired(&self, grant: Grant) {
        self.seen().grants.insert(grant.partition(), (grant, 0));
    }

    /// [`Grant::check`], noted if it passes, though not for each of many requests.
    ///
    /// # Errors
    /// As there.
    pub fn check(&self, grant: &Grant) -> Result<(), Lost> {
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

    /// Asks again and again of all partitions whether they are owned, and notes it, until the log is dropped. A thread of its own
    /// does that: what a busy service comes to late is what is of interest.
    ///
    /// # Errors
    /// When there is no thread to be had.
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

    fn note(&self, seen: &mut Seen) {
        seen.noted_ns = boot_clock_ns();
        if !seen.owned.is_empty() {
            let Seen { first_ns, last_ns, .. } = *seen;
            self.write(&Line::Used { first_ns, last_ns, owned: seen.owned.clone() });
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads what an instance noted. A last line that was being written when the process ended is left out.
///
/// # Errors
/// When the file cannot be read, or another line is none of ours.
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
    fn what_was_noted_is_read_and_a_line_without_end_left_out() {
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
    fn the_boot_clock_does_not_go_back() {
        let first = boot_clock_ns();
        assert!(first > 0 && boot_clock_ns() >= first);
    }
}
