//! Errors of clusters on this machine.

use std::process::ExitStatus;

/// Error of a cluster on this machine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The data directory cannot be created.
    #[error("making a temporary directory: {0}; point TMPDIR to a directory with some free space")]
    Directory(#[source] std::io::Error),
    /// The certificates cannot be issued.
    #[error("making certificates: {0}")]
    Certificates(String),
    /// Loopback has no free port.
    #[error("looking for a free port on 127.0.0.1: {0}")]
    Port(#[source] std::io::Error),
    /// A process could not be started.
    #[error("starting {name}: {cause}")]
    Start {
        /// Name of the process.
        name: String,
        /// Cause.
        #[source]
        cause: std::io::Error,
    },
    /// The environment variable that names the parent contains no process id.
    #[error("{name}={0:?} is no process id; unset {name}", name = crate::process::PARENT_PID)]
    ParentId(String),
    /// The kernel does not tie this process to its parent.
    #[error("tying this process to its parent: {0}")]
    ParentTie(#[source] std::io::Error),
    /// This process should end with its parent, which has ended already.
    #[error("the parent process {0} has ended")]
    ParentEnded(i32),
    /// There is no such running process.
    #[error("expected {0} to run, but it does not")]
    NotRunning(String),
    /// A process has exited that was not stopped.
    #[error("{name} ended by itself: {status}\n  {}", .log.replace('\n', "\n  "))]
    Ended {
        /// Name of the process.
        name: String,
        /// Its exit status.
        status: ExitStatus,
        /// The last lines of its log.
        log: String,
    },
    /// A process was stopped cleanly and failed.
    #[error("expected {name} to stop with status 0, but: {status}")]
    Stop {
        /// Name of the process.
        name: String,
        /// Its exit status.
        status: ExitStatus,
    },
    /// A condition did not become true in time.
    #[error(transparent)]
    Late(#[from] archon_load::TimeoutError),
    /// Not every partition got its copies in time.
    #[error("{0}")]
    NotWhole(#[from] archon_load::Failure),
    /// The cluster answered with an error.
    #[error(transparent)]
    Client(#[from] archon_client::Error),
}

impl From<archon_certificates::CertificatesError> for Error {
    fn from(error: archon_certificates::CertificatesError) -> Self {
        Self::Certificates(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_an_exited_process_shows_its_log() {
        let log = "one\naddress in use".to_owned();
        let ended = Error::Ended { name: "athens".into(), status: ExitStatus::default(), log };
        assert_eq!(ended.to_string(), "athens ended by itself: exit status: 0\n  one\n  address in use");
    }
}
