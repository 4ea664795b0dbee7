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
use std::sync::{Mutex, PoisonError};

/// One line of the log. Times are of [`boot_clock_ns`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// A process begins.
    Started {
        /// Of the instance.
        name: String,
        /// Of the process.
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
    /// [`Grant::check`] passed for these partitions, for each at some moment between the two.
    Used {
        /// A moment before.
        before_ns: u64,
        /// A moment after.
        after_ns: u64,
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

/// The log of one instance, and the newest grant of each partition it was ever given.
#[derive(Debug)]
pub struct OwnerLog {
    file: Option<File>,
    grants: Mutex<BTreeMap<PartitionId, Grant>>,
}

impl OwnerLog {
    /// Appends to a file; without one nothing is noted.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: Option<&Path>, name: &str) -> std::io::Result<Self> {
        let file = path.map(|path| File::options().create(true).append(true).open(path)).transpose()?;
        let log = Self { file, grants: Mutex::default() };
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

    /// [`OwnerLog::sample`] asks for this grant from now on, until there is a newer one of its partition: also when it should not
    /// be worth anything any more.
    pub fn acquired(&self, grant: Grant) {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner).insert(grant.partition(), grant);
    }

    /// [`Grant::check`], noted if it passes.
    ///
    /// # Errors
    /// As there.
    pub fn check(&self, grant: &Grant) -> Result<(), Lost> {
        let before_ns = boot_clock_ns();
        let checked = grant.check();
        let after_ns = boot_clock_ns();
        let epoch = checked?.get();
        self.write(&Line::Used { before_ns, after_ns, owned: vec![(grant.partition().index, epoch)] });
        Ok(())
    }

    /// Asks of all partitions at once whether they are owned, and notes it.
    pub fn sample(&self) {
        let grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        let before_ns = boot_clock_ns();
        let owns = |grant: &Grant| grant.check().ok().map(|epoch| (grant.partition().index, epoch.get()));
        let owned: Vec<(u32, u64)> = grants.values().filter_map(owns).collect();
        let after_ns = boot_clock_ns();
        drop(grants);
        if !owned.is_empty() {
            self.write(&Line::Used { before_ns, after_ns, owned });
        }
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
        let used = Line::Used { before_ns: 1, after_ns: 2, owned: vec![(3, 4)] };
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
