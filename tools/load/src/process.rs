//! CPU time of processes.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Returns the CPU time that this process has used so far.
pub fn own_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Returns the CPU time that a process has used so far, from `/proc/PID/stat`, in steps of 10 ms; zero if it is gone.
pub fn cpu_of(pid: u32) -> Duration {
    cpu_in_stat(&pid.to_string(), 11)
}

/// Returns the CPU time of the children of this process that have ended and were awaited, in the same way.
pub fn children_cpu() -> Duration {
    cpu_in_stat("self", 13)
}

/// Returns the sum of two consecutive times, counted from the field after the command.
fn cpu_in_stat(process: &str, first: usize) -> Duration {
    const TICKS_PER_SECOND: u64 = 100; // USER_HZ, fixed on Linux
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The command may contain spaces; the fields after its closing parenthesis do not.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    Duration::from_millis((ticks(first) + ticks(first + 1)) * 1_000 / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_readings_of_own_cpu_time_agree() {
        let mut sum = 0u64;
        while cpu_of(std::process::id()) < Duration::from_millis(50) {
            sum = sum.wrapping_add(1);
        }
        let (own, seen) = (own_cpu(), cpu_of(std::process::id()));
        assert!(own.abs_diff(seen) < Duration::from_millis(500), "{own:?} {seen:?} {sum}");
    }

    #[test]
    fn children_cpu_time_counts_after_their_end() {
        let before = children_cpu();
        let loops = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        assert!(std::process::Command::new("sh").args(["-c", loops]).status().unwrap().success());
        assert!(children_cpu() > before);
    }
}
