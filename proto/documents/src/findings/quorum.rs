//! Texts about coordinators, recoveries and upgrades.

use super::phrases::coordinator;
use archon_types::subject::Subject;
use archon_types::{MemberKind, OTHER_HISTORY_REMEDY, OutdatedMember};

/// Describes a quorum in which the failure of any one voter ends the majority.
pub(super) fn too_few_voters(voters: u32, had_more: bool) -> (String, String) {
    let message = match (voters, had_more) {
        (1, true) => {
            "only one voter is left: without it the cluster cannot decide anything, and its state is on one disk only"
        }
        (1, false) => {
            "there is only one coordinator: without it the cluster cannot decide anything, and its state is on one disk \
             only"
        }
        _ => "there are only two voters, and neither may fail: without one of them the cluster cannot decide anything",
    };
    let remedy = "add coordinators until there are three voters: `archon coordinator --id N --join H:P --data-dir DIR`; \
                  or promote an existing learner: `archon quorum promote N`";
    (message.to_owned(), remedy.to_owned())
}

/// Describes a coordinator that does not answer the leader.
pub(super) fn unreachable(
    subject: &Subject,
    address: &str,
    why: Option<&str>,
    (learner, spare): (bool, u64),
    heartbeat_ms: Option<u64>,
) -> (String, String) {
    let silent = why.map_or_else(|| format!("{address} does not answer"), str::to_owned);
    let message = match spare {
        _ if learner => format!("{silent}; it is a learner, so availability is not affected"),
        0 => format!("{silent}; if another one fails, the majority is lost"),
        spare => format!("{silent}; {spare} more may fail"),
    };
    if let Some(heartbeat_ms) = heartbeat_ms {
        return (message, format!("start every coordinator with --quorum-heartbeat-ms {heartbeat_ms}"));
    }
    let id = id(subject);
    let lost = match learner {
        false => format!("start a new one with --join, then run `archon quorum replace {id} NEW`"),
        true => format!("`archon quorum remove {id}`"),
    };
    let moved = format!("if it runs at another address, `archon quorum set-address {id} ADDRESS`");
    (message, format!("start {subject} again with its data directory; if that is lost, {lost}; {moved}"))
}

/// Describes a coordinator with a differing state.
pub(super) fn differs(subject: &Subject, index: u64, wrong: bool) -> (String, String) {
    match wrong {
        true => (
            format!("as of log entry {index} its state differs from that of the majority; it exits by itself"),
            format!(
                "restart it, so that it reads its disk again; if the error repeats, start a new one with --join, then \
                 run `archon quorum replace {} NEW`",
                id(subject)
            ),
        ),
        false => (
            format!(
                "as of log entry {index} its state differs from that of others, and there is no majority for one state"
            ),
            "do not change tables or members; stop the coordinators, copy their data directories, and recover from the \
             correct one (`archon quorum recover`)"
                .to_owned(),
        ),
    }
}

/// Describes a coordinator of another history of the cluster.
pub(super) fn other_history(generation: Option<u64>, waits: bool) -> (String, String) {
    let generation = generation.unwrap_or_default();
    match waits {
        true => (
            format!(
                "a recovery of these coordinators (generation {generation}) answers at its address; it accepts no \
                 member and grants nothing while they have a majority"
            ),
            "stop the recovered coordinator if it is a trial; to keep it, stop these coordinators: \
             docs/operate/runbooks/majority-lost.md"
                .to_owned(),
        ),
        false => (
            format!(
                "a coordinator of generation {generation} answers at its address, which was recovered from a different \
                 state than these coordinators"
            ),
            OTHER_HISTORY_REMEDY.to_owned(),
        ),
    }
}

/// Describes a recovery in progress.
pub(super) fn recovery(nodes_unheard: u64) -> (String, String) {
    let message = match nodes_unheard {
        0 => "the coordinators are being recovered, and wait for an operator to accept the open questions".to_owned(),
        nodes => format!("the coordinators are being recovered, and wait for the reports of {nodes} nodes"),
    };
    let remedy = "`archon quorum list` shows what it waits for and the next step; no partition is available until the \
                  recovery ends";
    (message, remedy.to_owned())
}

/// Describes an upgrade that waits for members or for an operator.
pub(super) fn upgrade(protocol: u32, newest: u32, outdated: &[OutdatedMember], others: u64) -> (String, String) {
    match outdated.is_empty() {
        false => (
            format!(
                "the cluster uses protocol {protocol}, and {newest} after the upgrade: {}",
                waits_for(outdated, others)
            ),
            "continue the upgrade, or roll back to the previous version; `archon upgrade status` shows the protocols of \
             each member"
                .to_owned(),
        ),
        true => (
            format!("every member supports protocol {newest}, and the cluster is held at {protocol}"),
            "`archon upgrade finalize` raises it; from then on members cannot go back to the version before".to_owned(),
        ),
    }
}

/// Describes the members that keep the cluster from a protocol; `others`: their number beside those listed.
pub fn waits_for(outdated: &[OutdatedMember], others: u64) -> String {
    let text = |member: &OutdatedMember| {
        let name = format!("{} {}", member.kind.as_str(), member.name);
        match (&member.supports, member.answers) {
            (None, _) => format!("{name} does not answer (start it, or `archon quorum remove` it)"),
            (Some(supports), true) => format!("{name} supports {supports}"),
            (Some(supports), false) => {
                let gone = match member.kind.known() {
                    Some(MemberKind::Participant) => "`archon node remove` it if it is gone for good",
                    _ => "start it, or `archon node lost` it",
                };
                format!("{name} is not alive and supported {supports} ({gone})")
            }
        }
    };
    let mut texts: Vec<String> = outdated.iter().map(text).collect();
    if others > 0 {
        texts.push(format!("and {others} more"));
    }
    texts.join(", ")
}

/// Describes a coordinator that cannot create files.
pub(super) fn disk_fails(subject: &Subject, address: &str) -> (String, String) {
    let voter = coordinator(subject, address);
    (
        format!("{voter} appends nothing to its log, it cannot create files on its disk; see its log"),
        format!("check the log and the disk of {subject}; it then resumes automatically"),
    )
}

/// Describes a coordinator without space for a snapshot.
pub(super) fn snapshot_waits(subject: &Subject, address: &str) -> (String, String) {
    let voter = coordinator(subject, address);
    (
        format!(
            "{voter} has no space on its disk for a snapshot: until it has one, it cannot truncate its log or catch up"
        ),
        format!("free disk space for {subject}; it retries every second"),
    )
}

fn id(subject: &Subject) -> u64 {
    if let Subject::Coordinator { coordinator_id } = subject { *coordinator_id } else { 0 }
}
