//! Child processes of tests: logging and orderly stops, beyond starting, signalling and killing.

use archon_local_cluster::Process;
use archon_testkit::wait_for;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

/// Starts `program` with `arguments`; its output is appended to `NAME.log` in `directory`.
///
/// # Panics
/// If it cannot be started.
pub fn spawn(program: &Path, name: &str, arguments: &[String], directory: &Path) -> Process {
    let mut command = vec![program.as_os_str().to_owned()];
    command.extend(arguments.iter().map(Into::into));
    let started = Process::start(name, &command, &environment(), directory);
    started.unwrap_or_else(|error| panic!("{}: {error}", program.display()))
}

/// Returns the log settings of a process under test.
pub(crate) fn environment() -> Vec<(&'static str, String)> {
    std::env::var("ARCHON_TEST_LOG").into_iter().map(|filter| ("ARCHON_LOG", filter)).collect()
}

/// The end of a process, and waiting for it.
pub trait ProcessExt {
    /// Returns true if the process has not ended; an unreaped zombie has.
    fn runs(&self) -> bool;

    /// Sends SIGTERM, then waits for a clean exit.
    ///
    /// # Panics
    /// If it takes longer than `limit`.
    fn terminate(self, limit: Duration) -> ExitStatus;

    /// Waits for the process to exit by itself.
    ///
    /// # Panics
    /// If it takes longer than `limit`.
    fn wait_exit(&mut self, limit: Duration) -> ExitStatus;
}

impl ProcessExt for Process {
    fn runs(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
    }

    fn terminate(mut self, limit: Duration) -> ExitStatus {
        self.ask_to_end();
        self.wait_exit(limit)
    }

    fn wait_exit(&mut self, limit: Duration) -> ExitStatus {
        let what = format!("{} to exit", self.name());
        wait_for(&what, limit, || self.exited().ok_or("still running")).0
    }
}
