//! `archon doctor`: problems of this machine and the cluster, with remedies.
//!
//! Each check is a reading, which queries the machine or the cluster, and a pure judgement of it.

mod cluster;
mod machine;
pub(crate) mod subjects;
mod target;

use crate::args::{Connection, DoctorArgs};
use crate::doctor::subjects::{CLUSTER, MACHINE};
use crate::documents::{Diagnosis, Finding, FindingCode, Verdict};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use target::Target;

/// Runs the checks and prints the findings.
pub(crate) async fn run(args: &DoctorArgs, connection: &Connection, output: &Output) -> Result<Exit, Failure> {
    let target = Target::of(args, connection);
    let of_machine = machine::look(&target).await;
    let of_cluster = cluster::look(&target).await;
    let machines = of_machine.len();
    let diagnosis = Diagnosis::of(of_machine.into_iter().chain(of_cluster).collect());
    if output.is_json() {
        output.json(&diagnosis)?;
    } else {
        output.line(text(&diagnosis, machines, output))?;
    }
    Ok(if diagnosis.verdict == Verdict::Error { Exit::Alarm } else { Exit::Done })
}

/// Formats all findings, the first `machines` of them under a separate heading.
fn text(diagnosis: &Diagnosis, machines: usize, output: &Output) -> String {
    let (machine, cluster) = diagnosis.findings.split_at(machines);
    let mut lines = Vec::new();
    for (heading, findings) in [(MACHINE, machine), (CLUSTER, cluster)] {
        lines.push(output.bold(heading));
        lines.extend(findings.iter().flat_map(|finding| finding_lines(finding, heading, output)));
    }
    lines.push(sum_text(diagnosis, output));
    lines.join("\n")
}

fn finding_lines(finding: &Finding, heading: &str, output: &Output) -> Vec<String> {
    let word = format!("{:<11}", finding.verdict.shown());
    let word = match finding.verdict {
        Verdict::NotChecked => output.dim(&word),
        Verdict::Ok => output.good(&word),
        Verdict::Warning | Verdict::Error => output.bad(&word),
    };
    let about = if finding.about == heading { String::new() } else { format!(" ({})", finding.about) };
    let line = format!("  {word} {}: {}{about}", finding.code.shown(), finding.message);
    let remedy = finding.remedy.iter().map(|remedy| format!("              {remedy}"));
    std::iter::once(line).chain(remedy).collect()
}

/// Formats the totals: `1 error, 2 warnings, 9 ok, 1 not checked`.
fn sum_text(diagnosis: &Diagnosis, output: &Output) -> String {
    let count = |verdict| diagnosis.count(verdict);
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    let (errors, warnings) = (count(Verdict::Error), count(Verdict::Warning));
    let wrong = format!("{errors} error{}, {warnings} warning{}", plural(errors), plural(warnings));
    let unseen = |finding: &Finding| finding.code == FindingCode::Quorum && finding.verdict == Verdict::NotChecked;
    let wrong = match (errors + warnings, diagnosis.findings.iter().any(unseen)) {
        // A user without the right to query the cluster must not read that all is well.
        (0, true) => "the cluster was not checked; no faults found".to_owned(),
        (0, false) => output.good("no faults found"),
        _ => output.bad(&wrong),
    };
    format!("{wrong}; {} ok, {} not checked", count(Verdict::Ok), count(Verdict::NotChecked))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;

    #[test]
    fn refused_query_is_not_reported_as_healthy() {
        let plain = Output::plain(Format::Table);
        let sum = |finding| {
            sum_text(&Diagnosis::of(vec![Finding::ok(FindingCode::Version, MACHINE, "0.1.0"), finding]), &plain)
        };
        let refused = Finding::not_checked(FindingCode::Quorum, CLUSTER, "these credentials have no right to ask");
        assert_eq!(sum(refused), "the cluster was not checked; no faults found; 1 ok, 1 not checked");
        let unnamed = Finding::not_checked(FindingCode::Directory, MACHINE, "no data directory is named");
        assert_eq!(sum(unnamed), "no faults found; 1 ok, 1 not checked");
    }

    #[test]
    fn finding_names_observation_subject_and_remedy() {
        let plain = Output::plain(Format::Table);
        let diagnosis = Diagnosis::of(vec![
            Finding::ok(FindingCode::Version, MACHINE, "archon 0.1.0"),
            Finding::error(FindingCode::FileSystem, "/data", "it is on tmpfs", "put it on a disk"),
            Finding::not_checked(FindingCode::Quorum, CLUSTER, "no coordinator is named"),
        ]);
        assert_eq!(
            text(&diagnosis, 2, &plain),
            "this machine\n  ok          Version: archon 0.1.0\n  error       FileSystem: it is on tmpfs (/data)\n              put it on a \
             disk\nthe cluster\n  not checked Quorum: no coordinator is named\n1 error, 0 warnings; 1 ok, 1 not checked"
        );
    }
}
