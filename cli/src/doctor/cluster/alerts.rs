//! Alerts of the leading coordinator, as in `archon check`, with remedies.

use crate::admin::check::is_without_quorum;
use crate::doctor::subjects::CLUSTER;
use crate::documents::{Finding, FindingCode, Verdict};
use archon_client::{Check, Error, Severity};

/// Judges them like that verb.
pub(super) fn judge(found: Result<Check, Error>) -> Vec<Finding> {
    const CODE: FindingCode = FindingCode::Alert;
    let check = match found {
        Ok(check) => check,
        Err(error) if is_without_quorum(error.kind()) => {
            let remedy = "see `archon status`; start a majority of the coordinators";
            return vec![Finding::error(CODE, CLUSTER, format!("no leading coordinator answers: {error}"), remedy)];
        }
        Err(error) => return vec![Finding::not_checked(CODE, CLUSTER, format!("alerts of `archon check`: {error}"))],
    };
    if check.alerts.is_empty() {
        return vec![Finding::ok(CODE, CLUSTER, "nothing needs attention")];
    }
    let finding = |alert: archon_client::Alert| {
        let verdict = match alert.severity.known() {
            Some(Severity::Notice) => Verdict::Ok,
            Some(Severity::Warning) => Verdict::Warning,
            Some(Severity::Alarm) | None => Verdict::Error,
        };
        let message = format!("{}: {}", alert.reason.code, alert.reason.message);
        Finding::new(CODE, &alert.reason.subject.to_string(), verdict, message, alert.reason.remedy)
    };
    check.alerts.into_iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_client::{Alert, ErrorDetail, ErrorKind, Reason, ReasonCode, Subject};

    #[test]
    fn alarm_is_an_error_and_notice_is_none() {
        let alert = |code: ReasonCode| Alert {
            severity: code.severity().into(),
            reason: Reason {
                code: code.into(),
                subject: Subject::Coordinators,
                message: "m".to_owned(),
                began_at_ms: None,
                remedy: Some("r".to_owned()),
            },
        };
        let codes = [ReasonCode::DataLost, ReasonCode::NodeFailed, ReasonCode::OrderStands];
        let found = judge(Ok(Check::of(codes.map(alert).into(), false)));
        let verdicts: Vec<Verdict> = found.iter().map(|finding| finding.verdict).collect();
        assert_eq!(verdicts, [Verdict::Error, Verdict::Warning, Verdict::Ok]);
        assert_eq!((found[1].message.as_str(), found[1].remedy.as_deref()), ("NodeFailed: m", Some("r")));
        assert_eq!(judge(Ok(Check::of(Vec::new(), false)))[0].verdict, Verdict::Ok);
        let failed = |kind| judge(Err(ErrorDetail::new(kind, "x").into()))[0].verdict;
        assert_eq!((failed(ErrorKind::NoQuorum), failed(ErrorKind::Refused)), (Verdict::Error, Verdict::NotChecked));
    }
}
