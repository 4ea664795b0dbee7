//! Readings of this process and its build.

use crate::family::LabelledValues;
use crate::metrics;
use archon_types::{Definition, Label};
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::time::{Duration, SystemTime};

/// Labels of the build.
const BUILD: &[Label] = &[Label { name: "version", values: &[env!("CARGO_PKG_VERSION")] }];

metrics! {
    /// This process.
    #[derive(Clone, Debug)]
    pub struct ProcessReadings {
        build: LabelledValues<u64> = Definition::gauge(
            "archon_build_info",
            "always 1; the labels name the version"
        ).by(BUILD);
        ready: bool = Definition::gauge(
            "archon_ready",
            "1 while the member takes part in its cluster; /readyz has the reason otherwise"
        );
        clock: Duration = Definition::gauge(
            "archon_process_clock_seconds",
            "wall clock of the machine, in seconds of Unix time"
        );
        cpu: Duration = Definition::counter("archon_process_cpu_seconds_total", "CPU time of this process");
        switches_voluntary: u64 = Definition::counter(
            "archon_process_switches_voluntary_total",
            "times that a running thread of this process waited for something"
        );
        switches_involuntary: u64 = Definition::counter(
            "archon_process_switches_involuntary_total",
            "times that a running thread of this process was preempted"
        );
        resident_bytes: u64 = Definition::gauge("archon_process_resident_bytes", "resident memory of this process");
        open_files: u64 = Definition::gauge("archon_process_open_files", "open file descriptors of this process");
        open_files_max: Option<u64> = Definition::gauge(
            "archon_process_open_files_max",
            "limit of open file descriptors of this process"
        );
    }
}

impl ProcessReadings {
    /// Reads the current values.
    pub fn now(ready: bool) -> Self {
        let switches = Switches::of_this_process();
        Self {
            build: LabelledValues::one(BUILD.iter().flat_map(|label| label.values).copied().collect::<Vec<_>>(), 1),
            ready,
            clock: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default(),
            cpu: cpu(),
            switches_voluntary: switches.voluntary,
            switches_involuntary: switches.involuntary,
            resident_bytes: resident_bytes(),
            open_files: fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64),
            open_files_max: getrlimit(Resource::Nofile).current,
        }
    }
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Context switches of the current threads; those of ended threads are not included.
#[derive(Clone, Copy, Default)]
struct Switches {
    voluntary: u64,
    involuntary: u64,
}

impl Switches {
    /// Reads `/proc/self/task/*/status`; zero where there is none.
    fn of_this_process() -> Self {
        let mut sum = Self::default();
        for task in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
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

/// Reads `/proc/self/statm`, whose second field counts pages; returns zero where there is none.
fn resident_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages.saturating_mul(rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread of another test may end meanwhile, and its count goes with it.
    #[test]
    fn waiting_thread_counts_context_switches() {
        let counts_waits = || {
            let before = Switches::of_this_process();
            for _ in 0..20 {
                std::thread::sleep(Duration::from_millis(1));
            }
            Switches::of_this_process().voluntary >= before.voluntary + 20
        };
        assert!((0..20).any(|_| counts_waits()));
    }

    #[test]
    fn process_readings_are_plausible() {
        assert!(resident_bytes() > 100_000, "{}", resident_bytes());
        let before = cpu();
        let mut sum = 0u64;
        while cpu() == before {
            sum = sum.wrapping_add(1);
        }
        assert!(cpu() > before, "{sum}");
        let held = fs::File::open("/proc/self/statm").unwrap();
        let found = ProcessReadings::now(true);
        assert!(found.clock.as_secs() > 1_700_000_000, "{found:?}");
        assert!((4..1_000).contains(&found.open_files), "standard streams and {held:?}: {found:?}");
    }
}
