//! Alerts of the leading coordinator, as in `archon check`, with remedies.

use crate::admin::check::{is_without_quorum, without_quorum};
use crate::doctor::subjects::CLUSTER;
use crate::documents::{Finding, FindingCode, Verdict};
use archon_client::{Check, Error, Reason, Severity};

/// Judges them like that verb.
pub(super) fn judge(found: Result<Check, Error>) -> Vec<Finding> {
    const CODE: FindingCode = FindingCode::Alert;
    let check = match found {
        Ok(check) => check,
        Err(error) if is_without_quorum(error.kind()) => without_quorum(&error.to_string()),
        Err(error) => return vec![Finding::not_checked(CODE, CLUSTER, format!("alerts of `archon check`: {error}"))],
    };
    if check.alerts.is_empty() {
        return vec![Finding::ok(CODE, CLUSTER, "nothing needs attention")];
    }
    let finding = |reason: Reason| {
        let verdict = match reason.severity.known() {
            Some(Severity::Notice) => Verdict::Ok,
            Some(Severity::Warning) => Verdict::Warning,
            Some(Severity::Alarm) | None => Verdict::Error,
        };
        let message = format!("{}: {}", reason.code, reason.message);
        let (about, remedy) = (reason.subject.to_string(), reason.remedy.clone());
        Finding { reason: Some(reason), ..Finding::new(CODE, &about, verdict, message, remedy) }
    };
    check.alerts.into_iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_client::{ErrorDetail, ErrorKind, Subject};
    use archon_types::{Facts, Finding as Found, StandingOrder};

    #[test]
    fn alarm_is_an_error_and_notice_is_none() {
        let down = Facts::NodeFailed { address: "a:1".into(), stopped: true, drained: false, lack: None };
        let order = Facts::OrderStands { order: StandingOrder::Cordon, excluded: None };
        let reason = |facts| Reason::from(Found::new(Subject::Node { node_id: 1, node: "athens".into() }, facts));
        let all = [Facts::DataLost {}, down, order].map(reason);
        let found = judge(Ok(Check::of(all.into(), false)));
        let verdicts: Vec<Verdict> = found.iter().map(|finding| finding.verdict).collect();
        assert_eq!(verdicts, [Verdict::Error, Verdict::Warning, Verdict::Ok]);
        let texts = (found[1].message.as_str(), found[1].remedy.as_deref());
        assert_eq!(
            texts,
            ("NodeFailed: athens at a:1 has stopped", Some("start athens again with its data directory"))
        );
        let reason = found[1].reason.as_ref().expect("a finding of the coordinators");
        assert_eq!(reason.code.as_str(), "node_failed");
        assert_eq!(reason.facts["stopped"], serde_json::Value::Bool(true));
        assert_eq!(judge(Ok(Check::of(Vec::new(), false)))[0].verdict, Verdict::Ok);
        let failed = |kind| judge(Err(ErrorDetail::new(kind, "x").into()))[0].verdict;
        assert_eq!((failed(ErrorKind::NoQuorum), failed(ErrorKind::Refused)), (Verdict::Error, Verdict::NotChecked));
    }
}
