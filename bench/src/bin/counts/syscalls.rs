//! System calls of running processes, counted by `perf stat` in the kernel, which costs them little.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Every call, whichever.
const ALL: &str = "raw_syscalls:sys_enter";
/// Those worth telling apart.
const NAMED: [&str; 13] = [
    "futex",
    "epoll_wait",
    "recvfrom",
    "sendto",
    "readv",
    "writev",
    "read",
    "write",
    "sendmsg",
    "recvmsg",
    "pwrite64",
    "pwritev2",
    "fdatasync",
];

/// A count under way.
pub(crate) struct Counting(Child);

impl Counting {
    /// Counts the calls of all threads of `pids` for `length` from now on.
    ///
    /// # Errors
    /// In words, if `perf` is not installed.
    pub(crate) fn start(pids: &[u32], length: Duration) -> Result<Self, String> {
        let events: Vec<String> =
            [ALL.to_owned()].into_iter().chain(NAMED.map(|name| format!("syscalls:sys_enter_{name}"))).collect();
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        let mut perf = Command::new("perf");
        perf.args(["stat", "--field-separator", ",", "--event", &events.join(","), "--pid", &pids.join(","), "--"]);
        perf.args(["sleep", &length.as_secs_f64().to_string()]);
        perf.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        perf.spawn().map(Self).map_err(|error| format!("perf: {error}"))
    }

    /// Waits for the end: calls by name, all of them under `all`.
    ///
    /// # Errors
    /// What `perf` said if it may not count, or the kernel has no such events.
    pub(crate) fn end(self) -> Result<BTreeMap<String, u64>, String> {
        let output = self.0.wait_with_output().map_err(|error| format!("perf: {error}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        let counted = counts(&said);
        if output.status.success() && counted.contains_key("all") { Ok(counted) } else { Err(format!("perf: {said}")) }
    }
}

/// From lines of `count,unit,event,…`. What was not counted has no number there.
fn counts(said: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for line in said.lines() {
        let fields: Vec<&str> = line.split(',').collect();
        let [count, _unit, event, ..] = &fields[..] else { continue };
        let Ok(count) = count.parse::<u64>() else { continue };
        let name = if *event == ALL { "all" } else { event.trim_start_matches("syscalls:sys_enter_") };
        counts.insert(name.to_owned(), count);
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_by_name() {
        let said = "1234,,raw_syscalls:sys_enter,1002003,100.00,,\n17,,syscalls:sys_enter_futex,1002003,100.00,,\n\
                    <not counted>,,syscalls:sys_enter_readv,0,100.00,,\n\n";
        let found = counts(said);
        assert_eq!(found, BTreeMap::from([("all".to_owned(), 1_234), ("futex".to_owned(), 17)]));
    }
}
