//! Recovery of a quorum: its obstacles, and its end.

use super::failure;
use crate::admin::{short_time, since};
use crate::documents::QuorumChanged;
use crate::exit::{Exit, Failure};
use crate::output::{Column, Output};
use archon_client::{Admin, DoubtKind, OTHER_HISTORY_REMEDY, QuorumRecovery, RecoveryDoubt};

/// Prints the obstacles to the end of a recovery, and the next steps.
pub(super) fn show_recovery(generation: u64, recovery: &QuorumRecovery, output: &Output) -> Result<(), Failure> {
    let age = since(recovery.began_at_ms).map_or_else(String::new, |age| format!(" for {}", short_time(age)));
    output.line(format!(
        "\nrecovering{age}: generation {generation}, from log entry {}; no partition is available until the recovery \
         ends",
        recovery.base_index
    ))?;
    let columns = [Column::text("DOUBT"), Column::text("OF"), Column::text("WHAT")];
    let row = |doubt: &RecoveryDoubt| vec![doubt.kind.as_str().to_owned(), doubt.about.clone(), doubt.text.clone()];
    output.rows(
        &columns,
        recovery.doubts.iter().map(row).collect(),
        "no open questions: the recovery ends by itself",
    )?;
    let more = u64::from(recovery.doubts_total).saturating_sub(recovery.doubts.len() as u64);
    if more > 0 {
        output.talk(format!("and {more} more"));
    }
    if let Some(next) = next_of_recovery(recovery) {
        output.talk(next);
    }
    Ok(())
}

/// Returns the step needed to end a recovery.
fn next_of_recovery(recovery: &QuorumRecovery) -> Option<&'static str> {
    let waits = || recovery.doubts.iter().filter(|doubt| !doubt.may_be_accepted);
    if waits().any(|doubt| doubt.kind == DoubtKind::OtherHistory) {
        return Some(OTHER_HISTORY_REMEDY);
    }
    if waits().any(|doubt| doubt.kind == DoubtKind::FormerQuorum) {
        return None; // Its text says what to do.
    }
    if stood_by(recovery) {
        return Some(
            "if this is a trial, stop it; to replace the former coordinators, stop them and run `archon quorum settle \
             --accept-data-loss`",
        );
    }
    match (waits().next(), recovery.doubts.is_empty()) {
        (Some(_), _) => Some(
            "start the nodes that have not reported, each with its own --data-dir; for a node whose data is gone for \
             good: `archon node lost \
             NAME --accept-data-loss`",
        ),
        (None, false) => Some("to continue with the data of the nodes: `archon quorum settle --accept-data-loss`"),
        (None, true) => None,
    }
}

/// Returns true if the recovery has not taken over from the former coordinators.
fn stood_by(recovery: &QuorumRecovery) -> bool {
    recovery.doubts.iter().any(|doubt| doubt.kind == DoubtKind::FormerQuorum)
}

/// Ends a recovery.
pub(super) async fn settle(accept_data_loss: bool, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    // The information is not available afterwards.
    let before = admin.quorum_of_leader().await?.recovery;
    let changed = admin.settle_recovery(accept_data_loss).await.map_err(failure)?;
    let quorum = admin.quorum_of_leader().await?;
    let text = if changed && before.as_ref().is_some_and(stood_by) {
        "it replaces the former coordinators; `archon quorum list` shows what it waits for"
    } else if changed {
        "settled: partitions continue with the data of the nodes"
    } else {
        "the recovery ends by itself"
    };
    let exit = output.done(&QuorumChanged { change: "settled".to_owned(), changed, quorum }, text)?;
    for text in before.iter().flat_map(left_on_disks) {
        output.talk(text);
    }
    Ok(exit)
}

/// Lists replicas that stay on nodes' disks when a recovery is settled, and are not listed anywhere else.
fn left_on_disks(recovery: &QuorumRecovery) -> impl Iterator<Item = String> {
    let left = recovery.doubts.iter().filter(|doubt| doubt.kind == DoubtKind::Unknown);
    left.map(|doubt| format!("on {}: {}", doubt.about, doubt.text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_client::OpenEnum;

    fn recovery(doubts: &[(DoubtKind, bool)]) -> QuorumRecovery {
        let doubt = |(kind, may_be_accepted): &(DoubtKind, bool)| RecoveryDoubt {
            kind: OpenEnum::Known(*kind),
            about: "athens".to_owned(),
            text: "it holds 2 replicas of unknown partitions (7/0, 7/1)".to_owned(),
            may_be_accepted: *may_be_accepted,
        };
        let doubts: Vec<RecoveryDoubt> = doubts.iter().map(doubt).collect();
        QuorumRecovery { began_at_ms: 0, base_index: 1, doubts_total: doubts.len() as u32, doubts }
    }

    #[test]
    fn node_of_another_history_is_not_to_be_declared_lost() {
        let next = |doubts: &[(DoubtKind, bool)]| next_of_recovery(&recovery(doubts)).unwrap_or_default();
        assert!(next(&[(DoubtKind::Unheard, false)]).contains("archon node lost"));
        let other = next(&[(DoubtKind::Unheard, false), (DoubtKind::OtherHistory, false)]);
        assert_eq!(other, OTHER_HISTORY_REMEDY);
        assert_eq!(next(&[(DoubtKind::FormerQuorum, false)]), "", "its text says what to do");
        let order = next(&[(DoubtKind::FormerQuorum, true)]);
        assert!(order.contains("quorum settle") && order.contains("former coordinators"), "{order}");
        // Once the node is registered, its holdings are accepted like any others.
        assert!(next(&[(DoubtKind::OtherHistory, true)]).contains("quorum settle"));
        assert_eq!(next(&[]), "");
    }

    #[test]
    fn settled_recovery_lists_unknown_replicas() {
        let left: Vec<String> =
            left_on_disks(&recovery(&[(DoubtKind::Behind, true), (DoubtKind::Unknown, true)])).collect();
        assert_eq!(left, ["on athens: it holds 2 replicas of unknown partitions (7/0, 7/1)"]);
    }
}
