//! A process of the demonstration: it cannot outlive the demonstration.

use crate::exit::Failure;
use crate::lifeline::PARENT_PID;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// How much of the end of a log is read for a tail, in bytes.
const TAIL_BYTES: u64 = 16 * 1024;
/// How many lines a tail has.
const TAIL_LINES: usize = 12;

/// A running child. Dropping it kills and awaits it.
#[derive(Debug)]
pub(super) struct Child {
    name: String,
    process: std::process::Child,
    log: PathBuf,
    status: Option<ExitStatus>,
}

impl Child {
    /// Starts this very program again with other arguments, its log going to `log` (appended).
    ///
    /// # Errors
    /// When the program or the log file cannot be opened.
    pub(super) fn start(name: &str, args: Vec<OsString>, log: &Path) -> Result<Self, Failure> {
        let wrong = |error: std::io::Error| Failure::failed(format!("starting {name}: {error}"));
        let program = std::env::current_exe().map_err(wrong)?;
        let file = File::options().create(true).append(true).open(log).map_err(wrong)?;
        let mut command = Command::new(program);
        command
            .args(args)
            .stdin(Stdio::null())
            .stdout(file.try_clone().map_err(wrong)?)
            .stderr(file)
            // Ctrl-C in the terminal is for the demonstration, which then stops its children in order.
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

    /// What it is called in the story.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.process.try_wait().ok().flatten();
        }
        self.status
    }

    /// Asks it to stop in order (SIGTERM).
    pub(super) fn ask_to_stop(&mut self) {
        // Once awaited, the number may belong to another process.
        if self.ended().is_none() {
            let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        }
    }

    /// Ends it without warning (SIGKILL) and awaits it.
    pub(super) fn kill(&mut self) {
        if self.ended().is_none() {
            let _ = self.process.kill();
            self.status = self.process.wait().ok();
        }
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The end of its log, and where the whole is.
    pub(super) fn tail(&self) -> (PathBuf, Vec<String>) {
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
