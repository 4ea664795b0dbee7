//! Measuring tools. They print figures and judge nothing: machines differ, so compare ratios within one run.
//!
//! Each tool starts its own cluster of real processes. The processes are the tool itself in another role: given a verb
//! of the command line as its first argument, it becomes `archon`.

mod probers;
pub mod traffic;
pub mod watch;

pub use probers::{Probers, Window};
pub use traffic::{Keys, Traffic};

use anyhow::Context;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Becomes `archon` if the first argument is one of its verbs; call this first in `main`.
pub fn become_archon() -> Option<ExitCode> {
    let verbs = ["coordinator", "node", "status", "table", "partition", "rebalance", "kv"];
    let first = std::env::args().nth(1)?;
    verbs.contains(&first.as_str()).then(|| archon_cli::main_with(std::env::args_os()))
}

/// The path of this program, for starting it in another role.
///
/// # Errors
/// If the system does not tell.
pub fn own_path() -> anyhow::Result<String> {
    Ok(std::env::current_exe()?.display().to_string())
}

/// Copies the logs of a cluster's processes out of its directory, which goes away with it.
///
/// # Errors
/// If one cannot be copied.
pub fn keep_logs(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to).with_context(|| format!("making {}", to.display()))?;
    for entry in std::fs::read_dir(from)?.flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "log") {
            std::fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// Minimum, median and maximum as one line of milliseconds.
pub fn spread(mut samples: Vec<Duration>) -> String {
    samples.sort_unstable();
    let (Some(min), Some(max)) = (samples.first(), samples.last()) else { return "no samples".into() };
    let median = samples[samples.len() / 2];
    format!("min {} ms, median {} ms, max {} ms", min.as_millis(), median.as_millis(), max.as_millis())
}

/// CPU time a process has used so far, from `/proc/PID/stat`; zero if it is gone.
pub fn cpu_time(pid: u32) -> Duration {
    const TICKS_PER_SECOND: u64 = 100; // USER_HZ, fixed on Linux
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The command may hold spaces; what follows its closing parenthesis does not.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    Duration::from_millis((ticks(11) + ticks(12)) * 1_000 / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_of_three() {
        let samples = [30, 10, 20].map(Duration::from_millis).to_vec();
        assert_eq!(spread(samples), "min 10 ms, median 20 ms, max 30 ms");
    }

    #[test]
    fn cpu_time_of_this_process_is_read() {
        let mut sum = 0u64;
        while cpu_time(std::process::id()).is_zero() {
            sum = sum.wrapping_add(1);
        }
        assert!(sum < u64::MAX);
    }
}
