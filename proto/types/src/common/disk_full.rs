//! Shortage of disk space, as members report it.

use serde::{Deserialize, Serialize};
use std::fmt;

const MIB: u64 = 1024 * 1024;
/// Free inodes below this number count as none, because an engine creates several files at a time.
const INODES_MIN: u64 = 64;

/// Shortage of disk space that keeps a node from accepting writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DiskFull {
    /// Free bytes.
    pub free_bytes: u64,
    /// Bytes that must be free before the node accepts writes again.
    pub needed_bytes: u64,
    /// The exhausted resource.
    #[serde(default)]
    pub limit: DiskLimit,
}

/// The exhausted resource of a full disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskLimit {
    /// Bytes of the disk.
    #[default]
    Bytes,
    /// Inodes: the number of files that the file system can hold.
    Inodes,
    /// Quota, or another limit that the system enforces but does not report.
    Quota,
}

impl DiskFull {
    /// Creates the shortage of a disk that refuses writes. `inodes_free` is known if the number of inodes is fixed.
    pub fn new(free_bytes: u64, needed_bytes: u64, inodes_free: Option<u64>) -> Self {
        let limit = match inodes_free {
            Some(free) if Self::lacks_inodes(free) => DiskLimit::Inodes,
            _ if free_bytes >= needed_bytes => DiskLimit::Quota,
            _ => DiskLimit::Bytes,
        };
        Self { free_bytes, needed_bytes, limit }
    }

    /// Returns true if so few free inodes count as none.
    pub const fn lacks_inodes(free: u64) -> bool {
        free < INODES_MIN
    }
}

impl fmt::Display for DiskFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rounded so that the free space never looks sufficient.
        let (free, needed) = (self.free_bytes / MIB, self.needed_bytes.div_ceil(MIB));
        match self.limit {
            DiskLimit::Bytes => write!(f, "{free} MiB are free, {needed} MiB are needed"),
            DiskLimit::Inodes => write!(f, "{free} MiB are free, but no inodes: remove files"),
            DiskLimit::Quota => write!(f, "{free} MiB are free, but a quota is exhausted"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_space_never_looks_sufficient() {
        let lack = DiskFull::new(64 * MIB - 1, 64 * MIB, None);
        assert_eq!(lack.to_string(), "63 MiB are free, 64 MiB are needed");
    }

    #[test]
    fn inodes_and_quotas_are_named() {
        let limit = |free, inodes| DiskFull::new(free, 64 * MIB, inodes).limit;
        assert_eq!(limit(MIB, Some(1_000)), DiskLimit::Bytes);
        assert_eq!(limit(MIB, Some(0)), DiskLimit::Inodes);
        assert_eq!(limit(100 * MIB, Some(0)), DiskLimit::Inodes);
        assert_eq!(limit(100 * MIB, Some(1_000)), DiskLimit::Quota);
        assert!(DiskFull::new(0, MIB, Some(0)).to_string().contains("inodes"));
        assert!(DiskFull::new(MIB, MIB, None).to_string().contains("quota"));
    }
}
