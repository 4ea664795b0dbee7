//! Ties a child process to its parent: the processes of a cluster on this machine live only as long as the parent.

use crate::error::Error;
use crate::process::PARENT_PID;

/// Asks the kernel to end this process when its parent ends, if the environment names a parent, as for processes
/// started as [`crate::Process`]. Even a parent killed with SIGKILL then leaves no process behind.
///
/// # Errors
/// A malformed variable, or a parent that has ended already.
pub fn end_with_parent() -> Result<(), Error> {
    let Some(text) = std::env::var_os(PARENT_PID) else { return Ok(()) };
    let text = text.to_string_lossy();
    let parent: i32 = text.parse().map_err(|_| Error::ParentId(text.into_owned()))?;
    hold_on(parent)
}

#[cfg(target_os = "linux")]
fn hold_on(parent: i32) -> Result<(), Error> {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|cause| Error::ParentTie(cause.into()))?;
    // The parent may have ended before the line above: then the signal would never be sent.
    if getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(parent) {
        return Err(Error::ParentEnded(parent));
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn hold_on(_parent: i32) -> Result<(), Error> {
    Ok(())
}
