//! A disk that is too full for writes, as a node tells it.

use serde::{Deserialize, Serialize};
use std::fmt;

const MIB: u64 = 1024 * 1024;

/// A disk has too little space left for a node to take writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DiskFull {
    /// Bytes that are free.
    pub free_bytes: u64,
    /// Bytes that must be free before writes are taken again.
    pub needed_bytes: u64,
}

impl fmt::Display for DiskFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rounded so that what is free never looks like enough.
        let (free, needed) = (self.free_bytes / MIB, self.needed_bytes.div_ceil(MIB));
        write!(f, "{free} MiB are free, {needed} MiB are needed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_free_never_looks_like_enough() {
        let lack = DiskFull { free_bytes: 64 * MIB - 1, needed_bytes: 63 * MIB + 1 };
        assert_eq!(lack.to_string(), "63 MiB are free, 64 MiB are needed");
    }
}
