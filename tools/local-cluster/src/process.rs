//! One process of a cluster: it cannot outlive the thread that started it.

use crate::error::Error;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Environment variable with the process id of the parent that a coordinator or node must not outlive.
pub const PARENT_PID: &str = "ARCHON_PARENT_PID";

/// Time-out for a pause to take effect; afterwards the calling test reports the problem better.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// A running child with its output in a file. Dropping it kills and awaits it.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    /// Exit status, once awaited.
    status: Option<ExitStatus>,
}

impl Process {
    /// Starts a command, its program first; its output is appended to `NAME.log` in `directory`. Of the variables that
    /// begin with `ARCHON_` it inherits only those of `environment`.
    ///
    /// # Errors
    /// If the program cannot be started or its log file not be opened.
    pub fn start(
        name: &str,
        command: &[impl AsRef<OsStr>],
        environment: &[(&str, String)],
        directory: &Path,
    ) -> Result<Self, Error> {
        let wrong = |cause: std::io::Error| Error::Start { name: name.to_owned(), cause };
        let log = directory.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log).map_err(wrong)?;
        let Some((program, arguments)) = command.split_first() else {
            return Err(wrong(std::io::ErrorKind::InvalidInput.into()));
        };
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(file.try_clone().map_err(wrong)?)
            .stderr(file)
            // Ctrl-C in the terminal goes to the parent only, which then stops the children cleanly.
            .process_group(0);
        // The user's own settings are for the user's own cluster.
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("ARCHON_") {
                command.env_remove(variable);
            }
        }
        command.env(PARENT_PID, std::process::id().to_string()).envs(environment.iter().cloned());
        let child = command.spawn().map_err(wrong)?;
        Ok(Self { name: name.to_owned(), child, log, status: None })
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the exit status, if it has exited.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status
    }

    /// Sends SIGTERM, without waiting.
    pub fn ask_to_end(&self) {
        self.signal(Signal::TERM);
    }

    /// Sends SIGSTOP: the process keeps its sockets and does nothing. Returns once every thread is stopped, which on a
    /// busy machine is a moment after the signal; some may still answer until then.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        let deadline = Instant::now() + STOP_LIMIT;
        while !stands_still(self.pid()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sends SIGCONT.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Sends SIGKILL, then waits for the end.
    pub fn kill(&mut self) {
        if self.exited().is_none() {
            let _ = self.child.kill();
            self.status = self.child.wait().ok();
        }
    }

    /// Returns the file with its output.
    pub fn log_file(&self) -> &Path {
        &self.log
    }

    /// Returns its output so far.
    pub fn log(&self) -> String {
        std::fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Returns the last `lines` of its log.
    pub fn log_tail(&self, lines: usize) -> String {
        tail(&self.log(), lines)
    }

    fn signal(&self, signal: Signal) {
        // After it was awaited, the number may belong to another process.
        if self.status.is_none() {
            // It may have exited by itself: then the signal has no target.
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns true if no thread of a process runs, or the process is gone.
fn stands_still(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    // A thread's state follows its name, which is in brackets and may contain any character.
    let state = |thread: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).ok()?;
        stat.rsplit_once(')')?.1.trim_start().chars().next()
    };
    threads.flatten().filter_map(state).all(|state| matches!(state, 'T' | 't' | 'Z' | 'X'))
}

fn tail(log: &str, lines: usize) -> String {
    let all: Vec<&str> = log.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_tail_returns_the_last_lines() {
        let log: String = (0..100).map(|line| format!("line {line}\n")).collect();
        assert_eq!(tail(&log, 2), "line 98\nline 99");
        assert_eq!(tail("one", 2), "one");
    }

    #[test]
    fn ended_process_gets_no_signal_and_keeps_its_log() {
        let directory = tempfile::tempdir().unwrap();
        let say = ["sh", "-c", "echo $ARCHON_LOG; sleep 60"];
        let mut process = Process::start("talker", &say, &[("ARCHON_LOG", "off".into())], directory.path()).unwrap();
        while process.log() != "off\n" {
            std::thread::yield_now();
        }
        assert!(!stands_still(process.pid()), "it sleeps, and wakes by itself");
        process.pause();
        assert!(stands_still(process.pid()));
        process.kill();
        process.resume();
        assert!(process.exited().is_some_and(|status| !status.success()));
        let nothing: [&str; 0] = [];
        assert!(Process::start("nobody", &nothing, &[], directory.path()).is_err());
    }
}
