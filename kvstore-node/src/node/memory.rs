//! Division of a node's memory.
//!
//! One total is chosen, and every structure that may grow with data or load gets a part of it. The rest is for what is
//! not counted: the process itself, connections, the engine's file metadata, and memory that the allocator has not
//! returned.

use crate::server::admit::NODE_BYTES_MAX;
use archon_frames::PARTIAL_BYTES_MAX;
use std::path::Path;

const MIB: u64 = 1024 * 1024;

/// Least memory of a node, in bytes.
pub const MEMORY_BYTES_MIN: u64 = 256 * MIB;
/// Memory of a node on a machine of unknown size, in bytes.
const MEMORY_BYTES_UNKNOWN: u64 = 1024 * MIB;
/// Memory of an empty node, in bytes.
const EMPTY_BYTES: u64 = 96 * MIB;
/// Inverse of the default share of the machine: other processes run there too, and the system's own cache is worth as
/// much to an engine as ours.
const PART_OF_THE_MACHINE: u64 = 4;
/// Upper bound for memtables: rows go to the engine within seconds, and more would only lengthen the replay after a
/// crash.
const MEMTABLES_BYTES_MAX: u64 = 1024 * MIB;
/// Upper bound for requests: beyond, memory is not the bottleneck; the inboxes of shards are sized for twice as much.
const REQUESTS_BYTES_MAX: u64 = NODE_BYTES_MAX as u64;

/// The parts of a node's memory, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MemoryParts {
    /// The total.
    pub(crate) total_bytes: u64,
    /// Rows of all partitions that the engine is not known to have.
    pub(crate) memtables_bytes: u64,
    /// Cached rows of the engine: rows read before, and rows written while there was room.
    pub(crate) row_cache_bytes: u64,
    /// Blocks or pages cached by the engine.
    pub(crate) engine_cache_bytes: u64,
    /// Operations and answers in progress.
    pub(crate) requests_bytes: u64,
    /// Incomplete messages: this much for clients, and as much for members.
    pub(crate) partial_bytes: usize,
}

impl MemoryParts {
    /// Divides this many bytes; at least [`MEMORY_BYTES_MIN`].
    pub(crate) fn of(total_bytes: u64) -> Self {
        let total_bytes = total_bytes.max(MEMORY_BYTES_MIN);
        let divided = total_bytes - EMPTY_BYTES;
        let memtables_bytes = (divided / 4).min(MEMTABLES_BYTES_MAX);
        let requests_bytes = (divided / 16).min(REQUESTS_BYTES_MAX);
        let engine_cache_bytes = divided / 8;
        let partial_bytes = usize::try_from(divided / 16).unwrap_or(usize::MAX).min(PARTIAL_BYTES_MAX);
        // The share that the other two cannot use serves reads.
        let row_cache_bytes = divided / 2 - memtables_bytes - requests_bytes;
        Self { total_bytes, memtables_bytes, row_cache_bytes, engine_cache_bytes, requests_bytes, partial_bytes }
    }

    /// Returns the chosen amount, or a quarter of the memory of this machine or of the process's control group. Warns
    /// above that limit.
    pub(crate) fn chosen(memory_bytes: Option<u64>) -> Self {
        let usable = usable_bytes(Path::new("/"));
        let part = usable.map_or(MEMORY_BYTES_UNKNOWN, |bytes| bytes / PART_OF_THE_MACHINE);
        if let (Some(chosen), Some(usable)) = (memory_bytes, usable.filter(|usable| memory_bytes > Some(*usable))) {
            let why = "--memory is more than this process may use; choose less, or the system ends it";
            tracing::warn!(chosen, usable, "{why}");
        }
        Self::of(memory_bytes.unwrap_or(part))
    }
}

/// Returns the bytes of memory that this process may use, according to the system below `root`: the machine's, or those
/// of the tightest control group above the process.
fn usable_bytes(root: &Path) -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).ok();
    let machine = read("proc/meminfo").and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    });
    let groups = read("proc/self/cgroup").unwrap_or_default();
    let limits = groups.lines().filter_map(|line| {
        let (_, group) = line.split_once(':')?;
        // Version 2 has one tree of groups, version 1 one for memory.
        let (tree, path, file) = match group.split_once(":/")? {
            ("", path) => ("sys/fs/cgroup", path, "memory.max"),
            ("memory", path) => ("sys/fs/cgroup/memory", path, "memory.limit_in_bytes"),
            _ => return None,
        };
        let group = root.join(tree).join(path);
        let limit = |group: &Path| std::fs::read_to_string(group.join(file)).ok()?.trim().parse().ok();
        group.ancestors().filter_map(limit).min()
    });
    machine.into_iter().chain(limits).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_leave_room_for_uncounted_memory() {
        for total in [0, MEMORY_BYTES_MIN, 512 * MIB, 1024 * MIB, 6 * 1024 * MIB, 256 * 1024 * MIB, u64::MAX / 16] {
            let parts = MemoryParts::of(total);
            let counted =
                parts.memtables_bytes + parts.row_cache_bytes + parts.engine_cache_bytes + parts.requests_bytes;
            assert!(counted <= parts.total_bytes / 8 * 5 + 8, "{parts:?}");
            assert!(parts.memtables_bytes >= 40 * MIB && parts.requests_bytes >= 10 * MIB, "{parts:?}");
            assert!(parts.row_cache_bytes >= 30 * MIB && parts.engine_cache_bytes >= 20 * MIB, "{parts:?}");
        }
        let large = MemoryParts::of(64 * 1024 * MIB);
        assert_eq!((large.memtables_bytes, large.requests_bytes), (MEMTABLES_BYTES_MAX, REQUESTS_BYTES_MAX));
    }

    #[test]
    fn container_limit_overrides_machine_memory() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(usable_bytes(root.path()), None);
        put("proc/meminfo", "MemTotal:       24689512 kB\nMemFree:        1 kB\n");
        assert_eq!(usable_bytes(root.path()), Some(24_689_512 * 1024));
        put("proc/self/cgroup", "0::/pods/athens\n");
        put("sys/fs/cgroup/pods/athens/memory.max", "max\n");
        assert_eq!(usable_bytes(root.path()), Some(24_689_512 * 1024));
        put("sys/fs/cgroup/pods/memory.max", "2147483648\n");
        assert_eq!(usable_bytes(root.path()), Some(2_147_483_648));
        put("proc/self/cgroup", "4:memory:/box\n2:cpu:/\n0::/pods/athens\n");
        put("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "1073741824\n");
        assert_eq!(usable_bytes(root.path()), Some(1_073_741_824));
        put("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "9223372036854771712\n");
        put("proc/meminfo", "nonsense\n");
        assert_eq!(usable_bytes(root.path()), Some(2_147_483_648));
    }

    #[test]
    fn memory_of_this_machine_is_known() {
        let bytes = usable_bytes(Path::new("/")).expect("/proc/meminfo");
        assert!(bytes > 64 * MIB, "{bytes}");
    }
}
