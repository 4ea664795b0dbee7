//! Exit codes of commands: one per kind of ending, so that a script can distinguish "think" from "retry".

use crate::documents::{ErrorBody, ErrorDocument};
use archon_client::ErrorKind;
use archon_security::{COMPARE, is_of_certificates};
use std::fmt;
use std::process::ExitCode;

/// The exit codes of `archon`, a contract with scripts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// Done.
    Done = 0,
    /// Failed for a reason without another code.
    Failed = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// The named object does not exist.
    NotFound = 3,
    /// Refused in the present state: a stale plan, a failed check, something in progress. Think before retrying.
    Refused = 4,
    /// No member could be reached, there is no quorum, or the partition has no leader. A retry may help.
    Unreachable = 5,
    /// The time-out passed; whether a write took effect is unknown.
    TimedOut = 6,
    /// `rebalance plan --detailed-exitcode`: the plan has moves; `check`: action is needed soon; `backup create`: a
    /// table was left out.
    Found = 10,
    /// `check`: action is needed now; `doctor`: there is an error.
    Alarm = 11,
    /// `lock`: another holder has the lock.
    NotObtained = 122,
    /// `lock`: the lock was lost, and the command was ended.
    LockLost = 123,
}

impl Exit {
    /// Returns the kind of an error with this exit code that is not the cluster's.
    const fn kind(self) -> &'static str {
        match self {
            Self::Done | Self::Found | Self::Alarm => "done",
            Self::Failed | Self::LockLost => "failed",
            Self::Usage => ErrorKind::InvalidArgument.as_str(),
            Self::NotFound => ErrorKind::NotFound.as_str(),
            Self::Refused | Self::NotObtained => ErrorKind::Refused.as_str(),
            Self::Unreachable => ErrorKind::Unreachable.as_str(),
            Self::TimedOut => ErrorKind::DeadlineExceeded.as_str(),
        }
    }

    /// Returns the exit code for an error of this kind.
    pub(crate) const fn of(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::InvalidArgument => Self::Usage,
            ErrorKind::NotFound => Self::NotFound,
            ErrorKind::AlreadyExists
            | ErrorKind::NameTaken
            | ErrorKind::WrongCluster
            | ErrorKind::ProtocolMismatch
            | ErrorKind::OtherHistory
            | ErrorKind::NotEnoughNodes
            | ErrorKind::AssignmentInProgress
            | ErrorKind::StalePlan
            | ErrorKind::StaleVersion
            | ErrorKind::NothingRunning
            | ErrorKind::ConditionFailed
            | ErrorKind::WrongValueType
            | ErrorKind::ReadOnly
            | ErrorKind::Refused
            | ErrorKind::DataLoss => Self::Refused,
            ErrorKind::NotCoordinatorLeader
            | ErrorKind::NoQuorum
            | ErrorKind::NotPartitionLeader
            | ErrorKind::Unavailable
            | ErrorKind::NoLease
            | ErrorKind::NotEnoughReplicas
            | ErrorKind::Moved
            | ErrorKind::Overloaded
            | ErrorKind::ShuttingDown
            | ErrorKind::Unreachable => Self::Unreachable,
            ErrorKind::DeadlineExceeded => Self::TimedOut,
            _ => Self::Failed,
        }
    }
}

/// Returns the description of a wrong command line without clap's text for terminals: the word `error`, the usage, the
/// hint to help.
pub(crate) fn plain(rendered: &str) -> String {
    let text = rendered.trim();
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let end = ["\n\nUsage:", "\n\nFor more information"].iter().filter_map(|part| text.find(part)).min();
    text[..end.unwrap_or(text.len())].trim_end().to_owned()
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Failure of a command, with its remedy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    /// The code the process ends with.
    pub(crate) exit: Exit,
    /// Kind of the error for programs: the cluster's kind, otherwise named after the exit code.
    pub(crate) kind: &'static str,
    /// Description of the fault, naming the input.
    pub(crate) message: String,
    /// The next step, if there is one.
    pub(crate) remedy: Option<String>,
    /// The cause may disappear while the same command line stays right: a member waits for that at its start.
    pub(crate) may_pass: bool,
}

impl Failure {
    /// Creates a failure without a remedy.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, kind: exit.kind(), message: message.into(), remedy: None, may_pass: false }
    }

    /// Creates a failure for a wrong command line or configuration.
    pub(crate) fn usage(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message).with_remedy(remedy)
    }

    /// Creates a failure without another exit code.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, message)
    }

    /// Marks a failure whose cause may disappear without a change of the command line.
    #[must_use]
    pub(crate) fn that_may_pass(self) -> Self {
        Self { may_pass: true, ..self }
    }

    /// Returns it as a document for programs.
    pub(crate) fn document(&self) -> ErrorDocument {
        ErrorDocument { error: self.body() }
    }

    /// Returns it as a part of another document.
    pub(crate) fn body(&self) -> ErrorBody {
        let (message, remedy) = (self.message.clone(), self.remedy.clone());
        ErrorBody { kind: self.kind, message, remedy, exit_code: self.exit as u8 }
    }

    /// Adds the next step.
    #[must_use]
    pub(crate) fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

/// Errors of the client library keep their kind and message, and get the remedy of this command line.
impl From<archon_client::Error> for Failure {
    fn from(error: archon_client::Error) -> Self {
        let exit = Exit::of(error.kind());
        let failure = Self { kind: error.kind().as_str(), ..Self::new(exit, error.to_string()) };
        let remedy = match error.kind() {
            _ if says_how(error.kind(), &failure.message) => None,
            ErrorKind::DeadlineExceeded if !error.outcome_unknown() => Some("retry, or give a longer --timeout"),
            ErrorKind::Unreachable | ErrorKind::Refused if says_withdrawn(&failure.message) => Some(READMIT),
            ErrorKind::Unreachable | ErrorKind::Refused if is_of_certificates(&failure.message) => Some(COMPARE),
            kind => remedy_for(kind),
        };
        match remedy {
            Some(remedy) => failure.with_remedy(remedy),
            None => failure,
        }
    }
}

impl From<archon_load::Failure> for Failure {
    fn from(failure: archon_load::Failure) -> Self {
        let kind = ErrorKind::ALL.iter().find(|kind| kind.as_str() == failure.kind);
        Self::new(kind.map_or(Exit::Failed, |kind| Exit::of(*kind)), failure.to_string())
    }
}

/// Time-outs of a cluster that this command runs itself.
impl From<archon_load::TimeoutError> for Failure {
    fn from(late: archon_load::TimeoutError) -> Self {
        Self::failed(late.to_string())
    }
}

/// Failures of a cluster that this command runs itself.
impl From<archon_local_cluster::Error> for Failure {
    fn from(error: archon_local_cluster::Error) -> Self {
        match error {
            archon_local_cluster::Error::Client(error) => error.into(),
            error @ archon_local_cluster::Error::ParentId(_) => Self::new(Exit::Usage, error.to_string()),
            error => Self::failed(error.to_string()),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        if let Some(remedy) = &self.remedy {
            write!(f, "\n  next: {remedy}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// Standard output that went away (`archon … | head`) ends the command quietly.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::new(Exit::Done, "");
        }
        Self::failed(format!("writing the output: {error}"))
    }
}

/// Returns true if the message already names the command that helps: the cluster knows it better than the kind of the
/// error does.
pub(crate) fn says_how(kind: ErrorKind, message: &str) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::AssignmentInProgress) && message.contains("`archon ")
}

/// Remedy for a member that refuses this process's certificate because an administrator has revoked it.
const READMIT: &str = "an administrator has revoked it: use a new certificate; or, if the key was not stolen, ask an \
                       administrator to run `archon access readmit ROLE/NAME`";

/// Returns true if another member refuses this process's certificate as revoked.
fn says_withdrawn(message: &str) -> bool {
    message.contains("refuses this process's certificate: it was withdrawn")
}

/// Returns the remedy for an error of this kind; `None` if the message suffices.
const fn remedy_for(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::Unreachable => {
            Some("check the addresses in --coordinators or ARCHON_COORDINATORS, and that these processes are running")
        }
        ErrorKind::NoQuorum | ErrorKind::NotCoordinatorLeader => Some(
            "start a majority of the coordinators (all at the first start), check the network between them, and retry",
        ),
        ErrorKind::NotEnoughNodes => Some(
            "start more nodes (`archon node --help`); `archon status` shows their \
                                           number",
        ),
        ErrorKind::AssignmentInProgress => {
            Some("`archon rebalance status` shows the running moves; `archon rebalance cancel` cancels them")
        }
        ErrorKind::NotFound => Some("see `archon table list` and `archon node list`"),
        ErrorKind::NothingRunning => Some("`archon rebalance status` shows how the last one ended"),
        ErrorKind::StalePlan => Some("make a new plan: `archon rebalance plan`"),
        ErrorKind::Unavailable | ErrorKind::NotPartitionLeader | ErrorKind::NoLease => Some(
            "`archon status` shows what the partition waits for; with a longer --timeout the command waits as \
                  well",
        ),
        ErrorKind::NotEnoughReplicas | ErrorKind::Overloaded | ErrorKind::ShuttingDown => {
            Some("retry, or give a longer --timeout")
        }
        ErrorKind::DeadlineExceeded => Some("a write may have taken effect: read it back, or give a longer --timeout"),
        ErrorKind::MaybeApplied => Some("read the key back before you write again"),
        ErrorKind::DataLoss => Some(
            "nothing was changed; to accept the loss, repeat the command with \
                                     --accept-data-loss",
        ),
        ErrorKind::WrongValueType => Some("check the value: `archon kv get KEY`"),
        ErrorKind::ReadOnly => Some(
            "free disk space on the machine in the message; if Archon itself fills the disk: `archon table drop NAME`, \
             enlarge the volume, or add a node and `archon node drain` the full one; reads still work",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_client::{Error, ErrorDetail};

    #[test]
    fn withdrawn_certificates_have_a_remedy_of_their_own() {
        let failed = |why: &str| {
            let message = format!("127.0.0.1:7201: it refuses this process's certificate: {why}");
            Failure::from(Error::from(ErrorDetail::new(ErrorKind::Unreachable, message))).remedy.unwrap_or_default()
        };
        assert!(failed("it was withdrawn (CertificateUnknown)").contains("archon access readmit"));
        assert_eq!(failed("no certificate authority that it trusts has signed it (UnknownCA)"), COMPARE);
    }

    /// The contract, kind by kind: a change here is a change for every script.
    #[test]
    fn exit_codes_are_as_promised() {
        let promised = |kind| match kind {
            ErrorKind::InvalidArgument => Some(2),
            ErrorKind::NotFound => Some(3),
            ErrorKind::StalePlan | ErrorKind::AssignmentInProgress | ErrorKind::Refused | ErrorKind::DataLoss => {
                Some(4)
            }
            ErrorKind::Unreachable | ErrorKind::NoQuorum | ErrorKind::Unavailable | ErrorKind::NoLease => Some(5),
            ErrorKind::DeadlineExceeded => Some(6),
            ErrorKind::Internal | ErrorKind::MaybeApplied => Some(1),
            _ => None,
        };
        for kind in ErrorKind::ALL {
            let code = Exit::of(*kind) as u8;
            assert!((1..=6).contains(&code), "{kind} ends with {code}");
            assert!(promised(*kind).is_none_or(|promised| promised == code), "{kind} ends with {code}");
        }
    }

    #[test]
    fn retryable_kinds_end_as_unreachable_refused_or_failed() {
        for kind in ErrorKind::ALL.iter().filter(|kind| kind.is_retryable()) {
            let exit = Exit::of(*kind);
            let thought_or_retry = matches!(exit, Exit::Unreachable | Exit::Refused | Exit::Failed);
            assert!(thought_or_retry, "{kind} is retryable and ends with {exit:?}");
        }
    }

    #[test]
    fn stale_plan_names_both_versions_and_the_next_command() {
        let detail = ErrorDetail::new(ErrorKind::StalePlan, "the table moved on").with_have_need(41, 37);
        let failure = Failure::from(Error::from(detail));
        assert_eq!(failure.exit, Exit::Refused);
        let text = failure.to_string();
        assert!(text.contains("have 41, need 37") && text.contains("archon rebalance plan"), "{text}");
    }

    #[test]
    fn refused_certificate_has_no_advice_about_addresses() {
        for (said, next) in [
            ("10.0.0.1:7101: it refuses this process's certificate: UnknownCA", "archon cert show DIR"),
            ("10.0.0.1:7101: its certificate is refused: not valid for name", "archon cert show DIR"),
            ("10.0.0.1:7101: Connection refused", "check the addresses"),
        ] {
            let text = Failure::from(Error::from(ErrorDetail::new(ErrorKind::Unreachable, said))).to_string();
            assert!(text.contains(next), "{text}");
        }
        let refused = ErrorDetail::new(ErrorKind::Refused, "its certificate is refused: why");
        assert!(Failure::from(Error::from(refused)).to_string().contains("archon cert show DIR"));
    }

    #[test]
    fn blocking_split_has_no_advice_about_moves() {
        let said = "partition big/0 is being split already; cancel it: `archon partition split 0 --table big --cancel`";
        let failure = Failure::from(Error::from(ErrorDetail::new(ErrorKind::AssignmentInProgress, said)));
        assert_eq!((failure.exit, failure.remedy), (Exit::Refused, None));
        let missing = "table times has no partition 99; see `archon partition list --table times`";
        assert_eq!(Failure::from(Error::from(ErrorDetail::new(ErrorKind::NotFound, missing))).remedy, None);
        let plain =
            Failure::from(Error::from(ErrorDetail::new(ErrorKind::AssignmentInProgress, "moves are under way")));
        assert!(plain.remedy.unwrap().contains("archon rebalance cancel"));
    }

    #[test]
    fn timed_out_read_does_not_mention_writes() {
        let read = Error::DeadlineExceeded { timeout_ms: 100, outcome: archon_client::Outcome::Read, last: None };
        let text = Failure::from(read).to_string();
        assert!(text.contains("longer --timeout") && !text.contains("effect") && !text.contains("write"), "{text}");
        let write = Error::DeadlineExceeded { timeout_ms: 100, outcome: archon_client::Outcome::Unknown, last: None };
        assert!(Failure::from(write).to_string().contains("read it back"));
    }

    #[test]
    fn error_document_has_kind_message_and_remedy() {
        let detail = ErrorDetail::new(ErrorKind::StalePlan, "the table moved on");
        let error = Failure::from(Error::from(detail)).document().error;
        assert_eq!((error.kind, error.exit_code), ("stale_plan", 4));
        assert!(error.remedy.unwrap().contains("archon rebalance plan"));
        let plain = Failure::new(Exit::TimedOut, "still running").document().error;
        assert_eq!((plain.kind, plain.remedy), ("deadline_exceeded", None));
    }

    #[test]
    fn error_document_omits_terminal_text() {
        let rendered = "error: unexpected argument '--verbos' found\n\n  tip: a similar argument exists: \
                        '--version'\n\n\
                        Usage: archon status [OPTIONS]\n\nFor more information, try '--help'.\n";
        assert_eq!(
            plain(rendered),
            "unexpected argument '--verbos' found\n\n  tip: a similar argument exists: '--version'"
        );
        assert_eq!(plain("error: no port\n\nFor more information, try '--help'.\n"), "no port");
    }

    #[test]
    fn closed_pipe_is_no_error() {
        let failure = Failure::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert_eq!(failure.exit, Exit::Done);
    }
}
