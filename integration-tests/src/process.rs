//! One child process, ended with its owner also on panic.

use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::wait::wait_for;

/// A running child whose output goes to a file.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `exe` with `arguments`; its standard error is appended to `NAME.log` in `directory`.
    ///
    /// # Panics
    /// If the program cannot be started.
    pub fn spawn(exe: &Path, name: &str, arguments: &[String], directory: &Path) -> Self {
        let log = directory.join(format!("{name}.log"));
        let output = File::options().create(true).append(true).open(&log).expect("a log file in the test's directory");
        let child = Command::new(exe)
            .args(arguments)
            .env("ARCHON_LOG", std::env::var("ARCHON_TEST_LOG").unwrap_or_else(|_| "info".into()))
            .env_remove("ARCHON_COORDINATORS")
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a second handle of the log file"))
            .stderr(output)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {}: {error}", exe.display()));
        Self { name: name.into(), child, log }
    }

    /// The operator-visible name the process was started under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The operating system's number for it.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, then waits for the end.
    pub fn kill(mut self) {
        self.end();
    }

    /// SIGTERM, without waiting for the end.
    pub fn ask_to_end(&self) {
        self.signal(Signal::TERM);
    }

    /// SIGTERM, then waits for an orderly end.
    ///
    /// # Panics
    /// If it takes longer than `limit`.
    pub fn terminate(mut self, limit: Duration) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait_exit(limit)
    }

    /// Waits for the process to end by itself.
    ///
    /// # Panics
    /// If it takes longer than `limit`.
    pub fn wait_exit(&mut self, limit: Duration) -> ExitStatus {
        let name = self.name.clone();
        let (status, _) = wait_for(&format!("{name} to exit"), limit, || match self.child.try_wait() {
            Ok(Some(status)) => Ok(status),
            Ok(None) => Err("still running".to_owned()),
            Err(error) => Err(error.to_string()),
        });
        status
    }

    /// Whether it has ended, and how.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// SIGSTOP: the process keeps its sockets and does nothing.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// What it wrote so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The last `lines` of its log, for messages of failing tests.
    pub fn log_tail(&self, lines: usize) -> String {
        let log = self.log();
        let all: Vec<&str> = log.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            // It may have ended by itself: then there is nobody to tell.
            let _ = kill_process(pid, signal);
        }
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}
