//! Measuring tools. They print figures and judge nothing: machines differ, so compare ratios within one run.
//!
//! Each tool starts its own cluster of real processes. The processes are the tool itself in another role: given a verb
//! of the command line as its first argument, it becomes `archon`.

pub mod played_control;
pub mod played_node;
pub mod played_relays;
pub mod played_session;
mod tool;

pub use tool::{TableArgs, ToolArgs};

use std::path::Path;
use std::process::ExitCode;

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

/// Resident memory of a process in bytes, from `/proc/PID/status`, where it stands in KiB; zero if it is gone.
pub fn resident_bytes(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: f64 = line.and_then(|line| line.split_whitespace().next()).and_then(|kib| kib.parse().ok()).unwrap_or(0.0);
    kib * 1_024.0
}

/// Bytes that the files below a directory take on the disk, but for the reserve of an engine, which holds nothing.
///
/// # Errors
/// If a directory cannot be read.
pub fn disk_bytes(directory: &Path) -> std::io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        // A file may go while it is looked at.
        let Ok(found) = std::fs::metadata(&path) else { continue };
        let is_reserve = path.file_name().is_some_and(|name| name == "archon-reserve");
        bytes += match found.is_dir() {
            true => disk_bytes(&path)?,
            false if is_reserve => 0,
            false => found.blocks() * 512,
        };
    }
    Ok(bytes)
}
