//! Everything a node counts, from wherever it is counted.

use crate::flusher::FlusherHandle;
use crate::metrics::{MetricKind, Sample};
use crate::shared::Shared;
use archon_kv::MemtableBudget;
use archon_wal::Wal;
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;

/// Reads the counters of all parts.
#[derive(Clone)]
pub(crate) struct Stats {
    pub(crate) shared: Arc<Shared>,
    pub(crate) wal: Wal,
    pub(crate) flusher: FlusherHandle,
    /// What all memtables of the node hold.
    pub(crate) memtables: MemtableBudget,
}

impl Stats {
    /// Every metric with its value, in a fixed order.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        let log = self.wal.progress();
        let switches = Switches::of_this_process();
        let counter = |name, help, value| Sample { name, kind: MetricKind::Counter, help, value };
        let gauge = |name, help, value| Sample { name, kind: MetricKind::Gauge, help, value };
        let mut samples = self.shared.metrics.samples();
        samples.extend([
            counter("archon_wal_fsyncs_total", "durable writes of the write-ahead log", log.fsyncs),
            counter("archon_wal_batches_total", "batches that the write-ahead log made durable", log.batches),
            counter("archon_wal_written_bytes_total", "bytes written to the write-ahead log", log.bytes),
            counter("archon_engine_syncs_total", "syncs of the storage engine", self.flusher.syncs()),
            counter(
                "archon_node_formed_bytes_total",
                "bytes of keys and values written to form copies of partitions that were split off",
                self.flusher.formed_bytes(),
            ),
            gauge(
                "archon_engine_queue_bytes",
                "bytes that wait for the storage engine",
                self.flusher.bytes_waiting() as u64,
            ),
            gauge(
                "archon_node_memtable_bytes",
                "bytes of rows that the storage engine is not known to have",
                self.memtables.bytes_used() as u64,
            ),
            gauge(
                "archon_node_connections",
                "connections that clients, peers and coordinators have made",
                self.shared.doors.count() as u64,
            ),
            counter(
                "archon_node_connections_refused_total",
                "connections turned away because there were too many",
                self.shared.doors.refused(),
            ),
            gauge(
                "archon_node_admitted_bytes",
                "bytes of operations and answers under way",
                self.shared.admission.bytes_used() as u64,
            ),
            counter("archon_process_cpu_microseconds_total", "CPU time of this process", cpu_micros()),
            counter(
                "archon_process_switches_voluntary_total",
                "times that a running thread of this process waited for something",
                switches.voluntary,
            ),
            counter(
                "archon_process_switches_involuntary_total",
                "times that a running thread of this process had to make room",
                switches.involuntary,
            ),
            gauge("archon_process_resident_bytes", "memory of this process that is in RAM", resident_bytes()),
        ]);
        samples
    }
}

fn cpu_micros() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec.unsigned_abs().saturating_mul(1_000_000) + time.tv_nsec.unsigned_abs() / 1_000
}

/// Context switches of the threads that there are now; those of ended threads are gone.
#[derive(Clone, Copy, Default)]
struct Switches {
    voluntary: u64,
    involuntary: u64,
}

impl Switches {
    /// From `/proc/self/task/*/status`; zero where there is none.
    fn of_this_process() -> Self {
        let mut sum = Self::default();
        for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
            let number = |key: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
                line.trim().parse().unwrap_or(0)
            };
            sum.voluntary += number("voluntary_ctxt_switches:");
            sum.involuntary += number("nonvoluntary_ctxt_switches:");
        }
        sum
    }
}

/// From `/proc/self/statm`, whose second field counts pages; zero where there is none.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages.saturating_mul(rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_switches() {
        let before = Switches::of_this_process();
        for _ in 0..20 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(Switches::of_this_process().voluntary >= before.voluntary + 20);
    }

    #[test]
    fn this_process_uses_time_and_memory() {
        assert!(resident_bytes() > 100_000, "{}", resident_bytes());
        let before = cpu_micros();
        let mut sum = 0u64;
        while cpu_micros() == before {
            sum = sum.wrapping_add(1);
        }
        assert!(cpu_micros() > before, "{sum}");
    }
}
