//! The command of a lock: a process group that ends before the lease does.

use super::signals::Signals;
use crate::args::LockArgs;
use crate::exit::Failure;
use crate::output::talk;
use archon_client::Lock;
use archon_local_cluster::{PARENT_PID, end_with_parent};
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

/// First argument of this program as the process that becomes the command.
const BECOME: &str = "__held-command";
/// Exit codes of shells for a command that cannot be run, and for one that does not exist.
const NOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Returns the command that this process is to become, if it was started by [`HeldCommand::start`].
pub(crate) fn held_command(args: &[OsString]) -> Option<&[OsString]> {
    match args {
        [_, verb, command @ ..] if verb == BECOME => Some(command),
        _ => None,
    }
}

/// Becomes the command of a lock, which the kernel kills when `archon lock` dies.
pub(crate) fn exec(command: &[OsString]) -> ExitCode {
    let [program, arguments @ ..] = command else { return ExitCode::from(NOT_RUN) };
    if let Err(error) = end_with_parent() {
        talk(&format!("error: the command cannot be set up to end with `archon lock`: {error}"));
        return ExitCode::from(NOT_RUN);
    }
    let error = std::process::Command::new(program).args(arguments).env_remove(PARENT_PID).exec();
    talk(&format!("error: the command {} does not start: {error}", program.display()));
    ExitCode::from(if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUN })
}

/// When a command is ended, as time left of the lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Schedule {
    /// SIGTERM.
    terminate: Duration,
    /// SIGKILL.
    kill: Duration,
    /// Interval of checks.
    tick: Duration,
}

impl Schedule {
    /// Returns the schedule for a lease: it is renewed after a quarter, so attempts fail for almost half of it before
    /// the command is asked to end, and the command has a fifth to do so.
    pub(super) fn of(lease: Duration) -> Self {
        let tick = (lease / 50).min(Duration::from_millis(100));
        Self { terminate: lease * 3 / 10, kill: lease / 10, tick }
    }
}

/// How a command has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CommandEnd {
    /// By itself or by a forwarded signal, with this exit code.
    Exited(u8),
    /// It was ended before the lease.
    LeaseEnds,
}

/// A running command.
pub(super) struct HeldCommand {
    child: Child,
    group: Option<Pid>,
}

impl HeldCommand {
    /// Starts the command in a process group of its own. Called on the main thread: the kernel kills the command when
    /// the thread that started it ends.
    ///
    /// # Errors
    /// The system has no place for a process.
    pub(super) fn start(args: &LockArgs, lock: &Lock) -> Result<Self, Failure> {
        let remaining_ms = lock.remaining().as_millis();
        // The running program, also after its file was replaced.
        let mut command = Command::new("/proc/self/exe");
        command
            .arg(BECOME)
            .args(&args.command)
            .env(PARENT_PID, std::process::id().to_string())
            .env("ARCHON_LOCK_NAME", OsStr::new(&args.name))
            .env("ARCHON_LOCK_TABLE", &args.table)
            .env("ARCHON_LOCK_EPOCH", lock.token().get().to_string())
            .env("ARCHON_LOCK_REMAINING_MS", remaining_ms.to_string())
            .process_group(0)
            .kill_on_drop(true);
        // A process group in the background is stopped when it reads the terminal, and would hold the lock for ever.
        if std::io::stdin().is_terminal() {
            command.stdin(Stdio::null());
        }
        let child = command.spawn().map_err(|error| Failure::failed(format!("starting the command: {error}")))?;
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        Ok(Self { child, group })
    }

    /// Waits for the end of the command. Ends it before the lease ends, and with it all processes of its group.
    pub(super) async fn run(&mut self, lock: &Lock, signals: &mut Signals, schedule: Schedule) -> CommandEnd {
        let mut kill_at: Option<Instant> = None;
        let status = loop {
            let left = lock.remaining();
            if left <= schedule.kill || kill_at.is_some_and(|at| at <= Instant::now()) {
                kill_at = Some(Instant::now());
                self.signal(Signal::KILL);
                break self.child.wait().await;
            }
            if left <= schedule.terminate && kill_at.is_none() {
                // Nothing is printed here: an unread pipe would delay SIGKILL.
                self.signal(Signal::TERM);
                self.signal(Signal::CONT);
                // A renewal that succeeds now does not prolong the end.
                kill_at = Some(Instant::now() + (schedule.terminate - schedule.kill));
            }
            tokio::select! {
                status = self.child.wait() => break status,
                signal = signals.next() => {
                    self.signal(signal);
                    // A stopped command would not receive it.
                    self.signal(Signal::CONT);
                }
                () = sleep(schedule.tick) => {}
            }
        };
        // Nothing of the group acts after the lock.
        self.signal(Signal::KILL);
        match status {
            // A pause of this process may have outlasted the lease: then the command acted without the lock.
            Ok(status) if kill_at.is_none() && !lock.remaining().is_zero() => CommandEnd::Exited(code_of(status)),
            _ => CommandEnd::LeaseEnds,
        }
    }

    /// Sends a signal to the group. An error means that nothing of the group is left, or that all of it runs as another
    /// user (`sudo`), which the system protects from this process.
    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, signal);
        }
    }
}

/// Returns the exit code, as shells do for a command that a signal ended.
fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_is_ended_within_the_lease() {
        for lease in [1, 10, 3_600].map(Duration::from_secs) {
            let Schedule { terminate, kill, tick } = Schedule::of(lease);
            // Renewals begin at three quarters of the lease.
            assert!(terminate < lease * 3 / 4 && kill < terminate);
            assert!(tick < kill / 2, "a late check kills before the end as well");
        }
    }

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        assert_eq!(code_of(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(code_of(ExitStatus::from_raw(15)), 143);
    }
}
