//! `archon check`: reasons for an operator to act, with their severity, also as the exit code.

use super::reasons;
use crate::args::CheckArgs;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use archon_client::{Admin, Check, CheckThresholds, ErrorKind, Reason, Severity, Subject};
use archon_security::{COMPARE, is_of_certificates};
use archon_types::{Facts, Finding};

/// Checks the cluster.
pub(crate) async fn run(args: &CheckArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let thresholds = CheckThresholds {
        stale_after: args.stale_after,
        members_min: args.min_members,
        members_of: args.of.clone(),
        held_for: args.held_for,
    };
    let check = match admin.check(&thresholds).await {
        Ok(check) => check,
        // A monitoring script needs an alarm here, and not the advice to retry.
        Err(error) if is_without_quorum(error.kind()) => without_quorum(&error.to_string()),
        Err(error) => return Err(error.into()),
    };
    if output.is_json() {
        output.json(&check)?;
    } else {
        output.line(text(&check, output))?;
    }
    Ok(match check.severity.known() {
        Some(Severity::Notice) => Exit::Done,
        Some(Severity::Warning) => Exit::Found,
        Some(Severity::Alarm) | None => Exit::Alarm,
    })
}

/// Returns true if an error means that there is no quorum to ask, or none that answers.
pub(crate) const fn is_without_quorum(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Unreachable
            | ErrorKind::NoQuorum
            | ErrorKind::NotCoordinatorLeader
            | ErrorKind::DeadlineExceeded
            | ErrorKind::Unavailable
    )
}

/// Returns the check of a cluster without a quorum that answers.
pub(crate) fn without_quorum(error: &str) -> Check {
    let facts = Facts::NoQuorum { error: error.to_owned() };
    let mut reason = Reason::from(Finding::new(Subject::Coordinators, facts));
    // A majority may be running, and not accept this certificate.
    if is_of_certificates(error) {
        reason.remedy = Some(COMPARE.to_owned());
    }
    Check::of(vec![reason], false)
}

fn text(check: &Check, output: &Output) -> String {
    if check.alerts.is_empty() {
        return output.good("all is well");
    }
    let mut lines = Vec::new();
    for reason in &check.alerts {
        let word = format!("{:<8}", reason.severity.as_str());
        let word = if reason.severity == Severity::Notice { word } else { output.bad(&word) };
        let text = reasons::sentence_about(reason, reasons::age(reason));
        lines.push(format!("{word} {}: {text}", reason.code));
        lines.extend(reason.remedy.iter().map(|remedy| format!("         {remedy}")));
    }
    if check.more {
        lines.push("         … and more; resolve these first".to_owned());
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;

    #[test]
    fn worst_alert_decides_and_each_has_a_remedy() {
        let plain = Output::plain(Format::Table);
        let well = Check::of(Vec::new(), false);
        assert_eq!(well.severity, Severity::Notice);
        assert_eq!(text(&well, &plain), "all is well");
        let check = without_quorum("nobody answers");
        assert_eq!(check.severity, Severity::Alarm);
        assert_eq!(
            text(&check, &plain),
            "alarm    NoQuorum: no leading coordinator answers: nobody answers (coordinators)\n         see `archon \
             status`; \
             start a majority of the coordinators"
        );
        let check = without_quorum("c1:7101: its certificate is refused: not valid for name");
        assert!(!text(&check, &plain).contains("majority") && text(&check, &plain).contains("archon cert show"));
    }
}
