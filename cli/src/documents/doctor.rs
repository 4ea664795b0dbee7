//! The document of `archon doctor`.

use archon_client::Reason;
use schemars::JsonSchema;
use serde::Serialize;

/// Result of all checks of this machine and the cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct Diagnosis {
    /// Worst verdict of all findings.
    pub(crate) verdict: Verdict,
    /// Results of the checks: first of this machine, then of the cluster.
    pub(crate) findings: Vec<Finding>,
}

/// Result of one check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct Finding {
    /// Kind of check.
    pub(crate) code: FindingCode,
    /// Checked object: `this machine`, a directory, an address, or a member such as `node/athens`.
    pub(crate) about: String,
    /// Verdict of the check.
    pub(crate) verdict: Verdict,
    /// Result, in a sentence.
    pub(crate) message: String,
    /// Suggested remedy, if there is one.
    pub(crate) remedy: Option<String>,
    /// Finding of the leading coordinator; only of an alert.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<Reason>,
}

/// Verdict of a check.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("type" = "string"))]
pub(crate) enum Verdict {
    /// Not checked here; the message gives the reason.
    NotChecked,
    /// No fault found.
    Ok,
    /// Works, but is degraded or may fail soon.
    Warning,
    /// Does not work, or data is at risk.
    Error,
}

/// Kind of check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("type" = "string"))]
pub(crate) enum FindingCode {
    /// Configuration file and flags of a coordinator or node.
    Configuration,
    /// Version of archon.
    Version,
    /// Clock synchronization, and agreement with other members.
    ClockSet,
    /// Steadiness of the clock: no jumps.
    ClockSteady,
    /// Latency of timers.
    Timers,
    /// Data directory: existence, write permission, privacy.
    Directory,
    /// Process that uses the data directory.
    DirectoryLock,
    /// File system type of the data directory.
    FileSystem,
    /// Free space of that file system.
    DiskSpace,
    /// Latency of durable writes.
    DiskSync,
    /// Limit of open files.
    OpenFiles,
    /// Availability of a listen address, or the process that uses it.
    Port,
    /// Credentials: validity, authorities, permissions of the key file.
    Certificate,
    /// Coordinators: leader, tolerated failures, lag.
    Quorum,
    /// Reachability and reports of a member.
    Member,
    /// Condition reported by the leading coordinator.
    Alert,
}

impl Diagnosis {
    /// Creates it from all findings, with the worst verdict among them.
    pub(crate) fn of(findings: Vec<Finding>) -> Self {
        let worst = findings.iter().map(|finding| finding.verdict).max();
        Self { verdict: worst.unwrap_or(Verdict::NotChecked), findings }
    }

    /// Returns the number of findings with this verdict.
    pub(crate) fn count(&self, verdict: Verdict) -> usize {
        self.findings.iter().filter(|finding| finding.verdict == verdict).count()
    }
}

impl Finding {
    /// Creates a finding without a fault.
    pub(crate) fn ok(code: FindingCode, about: &str, message: impl Into<String>) -> Self {
        Self::new(code, about, Verdict::Ok, message, None)
    }

    /// Creates a finding for a failed check, with the reason.
    pub(crate) fn not_checked(code: FindingCode, about: &str, message: impl Into<String>) -> Self {
        Self::new(code, about, Verdict::NotChecked, message, None)
    }

    /// Creates a warning with its remedy.
    pub(crate) fn warning(
        code: FindingCode,
        about: &str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::new(code, about, Verdict::Warning, message, Some(remedy.into()))
    }

    /// Creates an error with its remedy.
    pub(crate) fn error(code: FindingCode, about: &str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(code, about, Verdict::Error, message, Some(remedy.into()))
    }

    /// Creates a finding with a verdict reached elsewhere.
    pub(crate) fn new(
        code: FindingCode,
        about: &str,
        verdict: Verdict,
        message: impl Into<String>,
        remedy: Option<String>,
    ) -> Self {
        Self { code, about: about.to_owned(), verdict, message: message.into(), remedy, reason: None }
    }
}

impl Verdict {
    /// Returns the text for people.
    pub(crate) const fn shown(self) -> &'static str {
        match self {
            Self::NotChecked => "not checked",
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl FindingCode {
    /// Returns the text for people: without underscores.
    pub(crate) const fn shown(self) -> &'static str {
        match self {
            Self::Configuration => "Configuration",
            Self::Version => "Version",
            Self::ClockSet => "ClockSet",
            Self::ClockSteady => "ClockSteady",
            Self::Timers => "Timers",
            Self::Directory => "Directory",
            Self::DirectoryLock => "DirectoryLock",
            Self::FileSystem => "FileSystem",
            Self::DiskSpace => "DiskSpace",
            Self::DiskSync => "DiskSync",
            Self::OpenFiles => "OpenFiles",
            Self::Port => "Port",
            Self::Certificate => "Certificate",
            Self::Quorum => "Quorum",
            Self::Member => "Member",
            Self::Alert => "Alert",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_json_use_the_same_words() {
        use FindingCode as C;
        for code in [
            C::Configuration,
            C::Version,
            C::ClockSet,
            C::ClockSteady,
            C::Timers,
            C::Directory,
            C::DirectoryLock,
            C::FileSystem,
            C::DiskSpace,
            C::DiskSync,
            C::OpenFiles,
            C::Port,
            C::Certificate,
            C::Quorum,
            C::Member,
            C::Alert,
        ] {
            let word = serde_json::to_value(code).unwrap();
            let plain = word.as_str().unwrap().replace('_', "");
            assert_eq!(plain, code.shown().to_lowercase());
        }
    }

    #[test]
    fn unchecked_finding_does_not_hide_an_error() {
        let finding = |verdict| Finding::new(FindingCode::Port, "x", verdict, "m", None);
        let all = Diagnosis::of([Verdict::NotChecked, Verdict::Error, Verdict::Ok].map(finding).into());
        assert_eq!(all.verdict, Verdict::Error);
        assert_eq!(Diagnosis::of(Vec::new()).verdict, Verdict::NotChecked);
        assert_eq!(Diagnosis::of([Verdict::NotChecked, Verdict::Ok].map(finding).into()).verdict, Verdict::Ok);
    }
}
