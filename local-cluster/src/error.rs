//! What can go wrong with a cluster on this machine.

use std::process::ExitStatus;

/// Why a cluster is not as it was to be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no place for its data.
    #[error("making a temporary directory: {0}; point TMPDIR to a directory with some free space")]
    Directory(#[source] std::io::Error),
    /// There are no certificates.
    #[error("making certificates: {0}")]
    Certificates(String),
    /// Loopback has no free port.
    #[error("looking for a free port on 127.0.0.1: {0}")]
    Port(#[source] std::io::Error),
    /// A process could not be started.
    #[error("starting {name}: {cause}")]
    Start {
        /// Which.
        name: String,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// What names the parent of this process is no process id.
    #[error("{name}={0:?} is no process id; unset {name}", name = crate::process::PARENT_PID)]
    ParentId(String),
    /// The kernel does not end this process with its parent.
    #[error("tying this process to its parent: {0}")]
    ParentTie(#[source] std::io::Error),
    /// This process was to end with its parent, which has ended already.
    #[error("the parent process {0} has ended")]
    ParentEnded(i32),
    /// There is no such process to end.
    #[error("expected {0} to run, but it does not")]
    NotRunning(String),
    /// A process has ended that nobody stopped.
    #[error("{name} ended by itself: {status}\n  {}", .log.replace('\n', "\n  "))]
    Ended {
        /// Which.
        name: String,
        /// How.
        status: ExitStatus,
        /// The last lines of its log.
        log: String,
    },
    /// A process was stopped in order and did not end with success.
    #[error("expected {name} to stop with status 0, but: {status}")]
    Stop {
        /// Which.
        name: String,
        /// How it ended.
        status: ExitStatus,
    },
    /// What was waited for did not come about in time.
    #[error(transparent)]
    Late(#[from] archon_load::Late),
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
    fn a_process_that_ended_by_itself_says_why() {
        let log = "one\naddress in use".to_owned();
        let ended = Error::Ended { name: "athens".into(), status: ExitStatus::default(), log };
        assert_eq!(ended.to_string(), "athens ended by itself: exit status: 0\n  one\n  address in use");
    }
}
