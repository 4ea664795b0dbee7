//! Readings of the file system that holds a member's data.

use crate::metrics;
use archon_types::Definition;
use std::path::Path;

metrics! {
    /// The file system that holds a member's data; no values if it does not answer.
    #[derive(Clone, Copy, Debug, Default)]
    pub struct DiskReadings {
        free_bytes: Option<u64> = Definition::gauge(
            "archon_disk_free_bytes",
            "free space of the file system of the data directory"
        );
        size_bytes: Option<u64> = Definition::gauge("archon_disk_size_bytes", "size of that file system");
    }
}

impl DiskReadings {
    /// Reads the file system that holds `directory`.
    pub fn of(directory: &Path) -> Self {
        let Ok(found) = rustix::fs::statvfs(directory) else { return Self::default() };
        let bytes = |blocks: u64| Some(blocks.saturating_mul(found.f_frsize));
        Self { free_bytes: bytes(found.f_bavail), size_bytes: bytes(found.f_blocks) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_space_is_within_size_and_missing_disk_has_no_values() {
        let found = DiskReadings::of(Path::new("/"));
        assert!(found.free_bytes.is_some() && found.free_bytes <= found.size_bytes, "{found:?}");
        let families = DiskReadings::of(Path::new("/nonexistent/data")).families();
        assert!(families.iter().all(|family| family.series.is_empty()), "{families:?}");
    }
}
