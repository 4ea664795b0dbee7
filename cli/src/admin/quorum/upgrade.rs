//! `archon upgrade …`: the protocol of the cluster, and its rise.

use crate::args::UpgradeVerb;
#[cfg(test)]
use crate::documents::contract;
use crate::exit::{Exit, Failure};
use crate::output::{Column, Output, count_text};
use archon_client::{Admin, Error, ErrorKind, UpgradeMember, UpgradeSummary};
use archon_types::ProtocolRange;

/// Documents of the verbs.
#[cfg(test)]
pub(crate) const DOCUMENTS: contract::Documents = &[
    ("upgrade status", contract::one::<UpgradeSummary>),
    ("upgrade hold", contract::one::<archon_client::UpgradeChanged>),
    ("upgrade release", contract::one::<archon_client::UpgradeChanged>),
    ("upgrade finalize", contract::one::<archon_client::UpgradeChanged>),
];

/// Carries out one of them.
pub(crate) async fn run(verb: &UpgradeVerb, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let (changed, text) = match verb {
        UpgradeVerb::Status => return status(admin, output).await,
        UpgradeVerb::Hold => {
            (admin.hold_upgrade().await, "held: members can be rolled back until `archon upgrade finalize`")
        }
        UpgradeVerb::Release => {
            (admin.release_upgrade().await, "released: the protocol rises once every member supports the next one")
        }
        UpgradeVerb::Finalize => (admin.finalize_upgrade().await, "finalized: members can no longer be rolled back"),
    };
    let changed = changed.map_err(failure)?;
    let text = match changed.changed {
        true if matches!(verb, UpgradeVerb::Finalize) && !changed.raised => {
            "no member supports a newer protocol; the hold has ended"
        }
        true => text,
        false => "already in effect",
    };
    output.done(&changed, format!("{text}; the cluster uses protocol {}", changed.protocol))
}

fn failure(error: Error) -> Failure {
    let remedy = match error.kind() {
        ErrorKind::Refused => "`archon upgrade status` shows the protocols of each member",
        ErrorKind::ProtocolMismatch => "it is older than this program; upgrade the coordinators first",
        _ => return error.into(),
    };
    Failure::from(error).with_remedy(remedy)
}

async fn status(admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let found = admin.upgrade().await.map_err(failure)?;
    if output.is_json() {
        output.json(&found)?;
        return Ok(Exit::Done);
    }
    let columns = [
        Column::text("KIND"),
        Column::number("ID"),
        Column::text("NAME"),
        Column::text("SPEAKS"),
        Column::text("ANSWERS"),
    ];
    let rows = found.spoken_by.iter().map(|member| row(member, &found, output)).collect();
    output.rows(&columns, rows, "no members")?;
    output.talk(summary(&found));
    Ok(Exit::Done)
}

fn row(member: &UpgradeMember, found: &UpgradeSummary, output: &Output) -> Vec<String> {
    let speaks = match (member.protocol_min, member.protocol_max) {
        (Some(oldest), Some(newest)) => ProtocolRange { oldest, newest }.to_string(),
        _ => "?".to_owned(),
    };
    let behind = found.waits_for().any(|other| other == member);
    vec![
        member.kind.as_str().to_owned(),
        member.id.to_string(),
        member.name.clone(),
        if behind { output.bad(&speaks) } else { speaks },
        if member.answers { "yes".to_owned() } else { output.bad("no") },
    ]
}

/// Describes the present protocol, and the next step.
fn summary(found: &UpgradeSummary) -> String {
    let UpgradeSummary { protocol, protocol_newest: newest, held, .. } = *found;
    let speaks = format!("the cluster uses protocol {protocol}");
    let waiting = found.waits_for().count();
    match (newest > protocol, waiting, held) {
        (false, _, false) => format!("{speaks}; no member supports a newer one"),
        (false, _, true) => format!("{speaks}, held; no member supports a newer one"),
        (true, 0, false) => format!("{speaks}; every member supports {newest}, to which it rises in a moment"),
        (true, 0, true) => {
            format!("{speaks}, held; every member supports {newest}: `archon upgrade finalize`")
        }
        (true, waiting, _) => {
            let members = count_text(waiting, "member", "members");
            format!(
                "{speaks}; {newest} waits for {members}: restart them with the new version and without --protocol-max, \
                 or remove those that are gone"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_client::{MemberKind, OpenEnum};

    fn found(ranges: &[(u32, u32)], protocol: u32, held: bool) -> UpgradeSummary {
        let member = |(id, (oldest, newest)): (u64, &(u32, u32))| UpgradeMember {
            kind: OpenEnum::Known(MemberKind::Node),
            id,
            name: format!("node-{id}"),
            protocol_min: Some(*oldest).filter(|oldest| *oldest > 0),
            protocol_max: Some(*newest).filter(|newest| *newest > 0),
            answers: *newest > 0,
        };
        let newest = ranges.iter().map(|(_, newest)| *newest).max().unwrap_or(1);
        UpgradeSummary { protocol, protocol_newest: newest, held, spoken_by: (1..).zip(ranges).map(member).collect() }
    }

    #[test]
    fn upgrade_texts_name_the_next_step() {
        let done = found(&[(1, 2), (1, 2)], 2, false);
        assert_eq!(summary(&done), "the cluster uses protocol 2; no member supports a newer one");
        let half = found(&[(1, 2), (1, 1), (0, 0)], 1, false);
        assert_eq!(
            summary(&half),
            "the cluster uses protocol 1; 2 waits for 2 members: restart them with the new version and \
             without --protocol-max, or remove those that are gone"
        );
        let held = found(&[(1, 2), (1, 2)], 1, true);
        assert!(summary(&held).contains("held; every member supports 2: `archon upgrade finalize`"));
        assert!(summary(&found(&[(1, 2)], 1, false)).contains("rises in a moment"));
        assert!(summary(&found(&[(1, 2)], 2, true)).contains(", held"));
    }
}
