//! One process of a cluster: it cannot outlive the process that started it.

use crate::error::Error;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// The environment variable that names the process without which a coordinator or a node has no reason to live.
pub const PARENT_PID: &str = "ARCHON_PARENT_PID";

/// How much of the end of a log is read for a tail, in bytes.
const TAIL_BYTES: u64 = 16 * 1024;
/// How many lines a tail has.
const TAIL_LINES: usize = 12;

/// A running child. Dropping it kills and awaits it.
#[derive(Debug)]
pub(crate) struct Child {
    name: String,
    process: std::process::Child,
    log: PathBuf,
    status: Option<ExitStatus>,
}

impl Child {
    /// Starts a program, its log going to `log` (appended).
    ///
    /// # Errors
    /// When the program or the log file cannot be opened.
    pub(crate) fn start(program: &Path, name: &str, args: Vec<OsString>, log: &Path) -> Result<Self, Error> {
        let wrong = |cause: std::io::Error| Error::Start { name: name.to_owned(), cause };
        let file = File::options().create(true).append(true).open(log).map_err(wrong)?;
        let mut command = Command::new(program);
        command
            .args(args)
            .stdin(Stdio::null())
            .stdout(file.try_clone().map_err(wrong)?)
            .stderr(file)
            // Ctrl-C in the terminal is for whoever started them, who then ends them in order.
            .process_group(0);
        // The reader's own settings are for the reader's own cluster.
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("ARCHON_") {
                command.env_remove(variable);
            }
        }
        command.env(PARENT_PID, std::process::id().to_string());
        let process = command.spawn().map_err(wrong)?;
        Ok(Self { name: name.to_owned(), process, log: log.to_owned(), status: None })
    }

    /// What it is called.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.process.try_wait().ok().flatten();
        }
        self.status
    }

    /// Asks it to stop in order (SIGTERM).
    pub(crate) fn ask_to_stop(&mut self) {
        // Once awaited, the number may belong to another process.
        if self.ended().is_none() {
            let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        }
    }

    /// Ends it without warning (SIGKILL) and awaits it.
    pub(crate) fn kill(&mut self) {
        if self.ended().is_none() {
            let _ = self.process.kill();
            self.status = self.process.wait().ok();
        }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The end of its log, and where the whole is.
    pub(crate) fn tail(&self) -> (PathBuf, Vec<String>) {
        (self.log.clone(), tail_of(&self.log).unwrap_or_default())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

fn tail_of(path: &Path) -> std::io::Result<Vec<String>> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    Ok(lines[lines.len().saturating_sub(TAIL_LINES)..].iter().map(|line| (*line).to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_short() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let text: String = (0..10_000).map(|line| format!("line {line}\n")).collect();
        std::fs::write(&log, text).unwrap();
        let tail = tail_of(&log).unwrap();
        assert_eq!(tail.len(), TAIL_LINES);
        assert_eq!(tail.last().unwrap(), "line 9999");
    }
}
