//! Findings and events for people: the document of a finding, with its sentence and its remedy, and of an event, with its
//! sentence.
//!
//! This is the only place where they are written. The command line parses every command in them in a test.

mod events;
mod members;
mod phrases;
mod quorum;
mod texts;

pub use phrases::coordinators;
pub use quorum::waits_for;

use archon_types::subject::Subject;
use archon_types::{Finding, Millis, OpenEnum, ReasonCode, Severity};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// A condition that needs attention, or that something waits for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    /// Code of the reason.
    pub code: OpenEnum<ReasonCode>,
    /// Severity: that of the code, or `notice` if the state of the cluster makes the condition intended.
    #[serde(default = "severity_of_older_versions")]
    pub severity: OpenEnum<Severity>,
    /// The object.
    pub subject: Subject,
    /// Facts of the code, as listed there. `alike` and `first_alike`: number of partitions with this finding and the first of
    /// them, if one finding stands for several.
    #[serde(default)]
    pub facts: BTreeMap<String, Value>,
    /// The reason, in a sentence.
    pub message: String,
    /// Unix time in milliseconds of its begin, if known.
    pub began_at_ms: Option<u64>,
    /// Suggested remedy, if there is one.
    pub remedy: Option<String>,
}

/// Returns the severity of a reason in a status from a coordinator that names none.
fn severity_of_older_versions() -> OpenEnum<Severity> {
    Severity::Warning.into()
}

impl From<Finding> for Reason {
    fn from(finding: Finding) -> Self {
        // Texts and commands of a finding that stands for several are those of the first partition.
        let written_for = match (&finding.subject, finding.alike) {
            (Subject::Table { table_id, table }, Some((_, partition))) => {
                &Subject::Partition { table_id: *table_id, table: table.clone(), partition }
            }
            (subject, _) => subject,
        };
        let (message, remedy) = texts::text(written_for, &finding.facts);
        let mut facts: BTreeMap<String, Value> = finding.facts.to_object().into_iter().collect();
        let message = match finding.alike {
            Some((count, first)) => {
                facts.insert("alike".to_owned(), count.into());
                facts.insert("first_alike".to_owned(), first.into());
                format!("{count} of its partitions, the first is {first}: {message}")
            }
            None => message,
        };
        Self {
            code: finding.code().into(),
            severity: finding.severity.into(),
            subject: finding.subject,
            facts,
            message,
            began_at_ms: (finding.since > Millis::ZERO).then_some(finding.since.get()),
            remedy: Some(remedy).filter(|remedy| !remedy.is_empty()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::Facts;

    #[test]
    fn reason_has_code_severity_facts_and_texts() {
        let subject = Subject::Table { table_id: 3, table: "orders".into() };
        let facts = Facts::NotServed { partitions_unserved: 2, partitions_total: 16, longest: 7 };
        let reason = Reason::from(Finding::new(subject, facts).since(Millis::new(9)));
        let written = serde_json::to_value(&reason).unwrap();
        assert_eq!(written["code"], "not_served");
        assert_eq!(written["severity"], "alarm");
        assert_eq!(
            written["facts"],
            serde_json::json!({"partitions_unserved": 2, "partitions_total": 16, "longest": 7})
        );
        assert_eq!(written["began_at_ms"], 9);
        assert_eq!(written["remedy"], "see the reason: `archon partition describe 7 --table orders`");
    }

    #[test]
    fn finding_for_several_partitions_names_their_number() {
        let subject = Subject::Table { table_id: 3, table: "orders".into() };
        let finding = Finding::new(subject, Facts::NoLiveReplica { node: "athens".into() });
        let reason = Reason::from(Finding { alike: Some((27, 3)), ..finding });
        assert_eq!(
            reason.message,
            "27 of its partitions, the first is 3: an in-sync replica is on athens, which is not alive"
        );
        assert_eq!(reason.facts["alike"], 27);
    }

    #[test]
    fn reason_of_an_older_coordinator_is_read() {
        let older = serde_json::json!({
            "code": "data_lost", "subject": {"kind": "cluster"}, "message": "m", "began_at_ms": null, "remedy": null
        });
        let reason: Reason = serde_json::from_value(older).unwrap();
        assert_eq!((reason.severity, reason.facts.len()), (Severity::Warning.into(), 0));
    }

    #[test]
    fn command_of_merged_finding_names_first_partition() {
        let subject = Subject::Table { table_id: 2, table: "orders".to_owned() };
        let finding = Finding { alike: Some((3, 7)), ..Finding::new(subject, Facts::DataLost {}) };
        let reason = Reason::from(finding);
        assert_eq!(reason.subject.to_string(), "table orders");
        let remedy = reason.remedy.unwrap();
        assert!(remedy.contains("`archon partition describe 7 --table orders`"), "{remedy}");
    }
}
