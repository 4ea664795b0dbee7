//! The document of `archon doctor`.

use schemars::JsonSchema;
use serde::Serialize;

/// What is wrong with this machine and the cluster, and what is not.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct Diagnosis {
    /// The worst of all findings.
    pub(crate) verdict: Verdict,
    /// What was looked at: this machine first, then the cluster.
    pub(crate) findings: Vec<Finding>,
}

/// One thing that was looked at.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct Finding {
    /// What was looked at.
    pub(crate) code: FindingCode,
    /// Of whom or of what: `this machine`, a directory, an address, a member as `node/athens`.
    pub(crate) about: String,
    /// How it is.
    pub(crate) verdict: Verdict,
    /// What was seen, in a sentence.
    pub(crate) message: String,
    /// What to do, if there is anything to do.
    pub(crate) remedy: Option<String>,
}

/// How something is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("type" = "string"))]
pub(crate) enum Verdict {
    /// It could not be looked at here; the message says why.
    NotChecked,
    /// As it should be.
    Ok,
    /// It works, and is worse than it could be or may not last.
    Warning,
    /// It does not work, or data is at risk.
    Error,
}

/// What is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("type" = "string"))]
pub(crate) enum FindingCode {
    /// The file of settings of a coordinator or node, or what was said on the command line.
    Configuration,
    /// Which version of archon runs.
    Version,
    /// Whether the clock is kept right, and agrees with others.
    ClockSet,
    /// Whether the clock goes on evenly, without leaps.
    ClockSteady,
    /// Whether timers come in time.
    Timers,
    /// The data directory: whether it is there, can be written, and is private.
    Directory,
    /// Which process uses the data directory.
    DirectoryLock,
    /// The kind of file system that the data directory is on.
    FileSystem,
    /// Space left on that file system.
    DiskSpace,
    /// How long the disk takes to make a write durable.
    DiskSync,
    /// How many files a process may have open.
    OpenFiles,
    /// Whether an address can be listened on, or who does.
    Port,
    /// Credentials: dates, authorities, and who may read the key.
    Certificate,
    /// The coordinators: who leads, how many may fail, who lags behind.
    Quorum,
    /// A member, and whether it answers.
    Member,
    /// What the leading coordinator says somebody should look at.
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
        Self { code, about: about.to_owned(), verdict, message: message.into(), remedy }
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
