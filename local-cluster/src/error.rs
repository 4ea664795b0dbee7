//! What can go wrong with a cluster on this machine.

use std::process::ExitStatus;
use std::time::Duration;

/// Why a cluster is not as it was to be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no place for its data.
    #[error("making a temporary directory: {0}; point TMPDIR to a directory with some free space")]
    Directory(#[source] std::io::Error),
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
    /// There is no such process to kill.
    #[error("expected {0} to kill, but it does not run")]
    NotRunning(String),
    /// A process has ended that nobody stopped.
    #[error("{name} ended by itself: {status}{}", end_of_log(.log))]
    Ended {
        /// Which.
        name: String,
        /// How.
        status: ExitStatus,
        /// The last lines of its log.
        log: Vec<String>,
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
    #[error("expected {what} within {} s, but after that: {state}", .limit.as_secs())]
    Late {
        /// What was waited for.
        what: String,
        /// How long.
        limit: Duration,
        /// How things stood at last.
        state: String,
    },
    /// Not every partition got its copies in time.
    #[error("{0}")]
    NotWhole(#[from] archon_load::Failure),
    /// The cluster answered with an error.
    #[error(transparent)]
    Client(#[from] archon_client::Error),
}

fn end_of_log(lines: &[String]) -> String {
    lines.iter().map(|line| format!("\n  {line}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ended_by_itself_says_why() {
        let log = vec!["one".to_owned(), "address in use".to_owned()];
        let ended = Error::Ended { name: "athens".into(), status: ExitStatus::default(), log };
        assert_eq!(ended.to_string(), "athens ended by itself: exit status: 0\n  one\n  address in use");
    }
}
