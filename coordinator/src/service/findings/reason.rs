//! A reason with its subject, as findings show it.

use crate::service::findings::describe::{
    STAYS_REMEDY, awaits_first_participant, limit_remedy, no_participant_remedy, operand, withheld_remedy,
};
use crate::service::findings::subjects;
use crate::service::findings::words::because;
use archon_coordinator_core::{ClusterState, Remembered, Why};
use archon_documents::Reason;
use archon_types::subject::Subject;
use archon_types::{Millis, PartitionId, ReasonCode};

/// Returns a reason without a known start. An empty remedy counts as none.
pub(crate) fn reason_now(code: ReasonCode, subject: Subject, message: String, remedy: impl Into<String>) -> Reason {
    Reason {
        code: code.into(),
        subject,
        message,
        began_at_ms: None,
        remedy: Some(remedy.into()).filter(|remedy| !remedy.is_empty()),
    }
}

/// Returns a moment; `None` for zero.
pub(crate) fn at(time: Millis) -> Option<u64> {
    (time > Millis::ZERO).then_some(time.get())
}

/// Returns the reason for the state of one partition.
pub(crate) fn reason(state: &ClusterState, remembered: &Remembered, partition: PartitionId, why: &Why) -> Reason {
    let name = |node| state.node_name(node);
    // A cause of unavailability is reported with the start of the unavailability.
    let unserved = remembered.unserved_since(partition).unwrap_or_default();
    let (code, message, since, remedy) = match why {
        Why::NotEnoughNodes { have, need } => (
            ReasonCode::NotEnoughNodes,
            format!("{have} of {need} required nodes are registered"),
            unserved,
            match need.saturating_sub(*have) {
                1 => "start another node".to_owned(),
                more => format!("start {more} more nodes"),
            },
        ),
        Why::NoParticipant { table } if awaits_first_participant(state, partition.table) => (
            ReasonCode::AwaitsFirstParticipant,
            format!("table {table} waits for its first participant"),
            unserved,
            no_participant_remedy(state, table),
        ),
        Why::NoParticipant { table } => (
            ReasonCode::NoParticipant,
            format!("no participant takes partitions of table {table}"),
            unserved,
            no_participant_remedy(state, table),
        ),
        Why::AboutToBeAssigned => {
            (ReasonCode::AboutToBeAssigned, "its nodes are being chosen".into(), unserved, String::new())
        }
        Why::NodesAtLimit { full, plan } => (
            ReasonCode::NodesAtLimit,
            format!("all {full} nodes that could take its copies are at their limits (--partitions-max)"),
            unserved,
            limit_remedy(state, *plan),
        ),
        Why::LeaderHearsTooFew { node, hears, need } => (
            ReasonCode::LeaderHearsTooFew,
            format!(
                "its leader {} refuses writes: it reaches {hears} of the {need} copies that must store each write, \
                 including its own",
                name(*node)
            ),
            Millis::ZERO,
            format!("check the network between {} and the nodes of the other copies", name(*node)),
        ),
        Why::RepairWithheld { failed, of } => (
            ReasonCode::RepairWithheld,
            format!("more than a third of the nodes are failed ({failed} of {of}): their copies are not replaced"),
            Millis::ZERO,
            withheld_remedy(),
        ),
        Why::TakingOver { node } => {
            (ReasonCode::TakingOver, format!("{} is taking over", name(*node)), unserved, String::new())
        }
        Why::EpochSurpassed { known } => (
            ReasonCode::EpochSurpassed,
            format!("a copy knew epoch {known}, which was never granted; the next leader uses a higher one"),
            unserved,
            "look for a node started from an old or copied data directory, or for coordinators restored from an old \
             state"
                .into(),
        ),
        Why::WaitingForLease { node, .. } => (
            ReasonCode::WaitingForLease,
            format!("the lease of {} may not have expired yet", name(*node)),
            unserved,
            String::new(),
        ),
        Why::NoLiveReplica { node, since, .. } => (
            ReasonCode::NoLiveReplica,
            format!("an in-sync copy is on {}, which is not alive", name(*node)),
            *since,
            format!("start {} again with its data directory", name(*node)),
        ),
        Why::HolderRegistering { node } => {
            (ReasonCode::HolderRegistering, format!("{} is registering", name(*node)), unserved, String::new())
        }
        Why::AboutToBeElected => {
            (ReasonCode::AboutToBeElected, "its leader is being elected".into(), unserved, String::new())
        }
        Why::DataLost => (
            ReasonCode::DataLost,
            "no in-sync copy is left".into(),
            unserved,
            format!("see the remaining copies: `archon partition describe {}`", operand(state, partition)),
        ),
        Why::LostCopyKept { node, alive, need } => (
            ReasonCode::LostCopyKept,
            format!(
                "the copy on {} was lost or damaged, and is kept until other copies are in sync on live nodes: {alive} \
                 of {need} are",
                name(*node)
            ),
            Millis::ZERO,
            "start the nodes of the other copies; then it is replaced".into(),
        ),
        Why::UnderReplicated { have, want } => (
            ReasonCode::UnderReplicated,
            format!("{have} of {want} copies are in sync"),
            Millis::ZERO,
            "add nodes or start failed ones".into(),
        ),
        Why::Offline { note } => (
            ReasonCode::Offline,
            format!("an operator took it offline{}", because(&note.why)),
            note.at,
            format!("`archon partition online {}` brings it back", operand(state, partition)),
        ),
        Why::AllBarred { participants } => (
            ReasonCode::AllBarred,
            format!(
                "all {participants} participants that serve its table are excluded from it, or have no right to \
                     own it"
            ),
            unserved,
            format!(
                "lift an exclusion (see `archon partition describe {}`), or grant the right: `archon access grant own \
                 --participant NAME --table {}`",
                operand(state, partition),
                subjects::table_name(state, partition.table)
            ),
        ),
        Why::OwnerStays { node } => (
            ReasonCode::OwnerStays,
            format!("{} should give it up and stays its owner, because no other participant may own it", name(*node)),
            Millis::ZERO,
            STAYS_REMEDY.to_owned(),
        ),
        Why::GivenUp { participants } => (
            ReasonCode::GivenUp,
            match participants {
                1 => "the only possible owner gave it up recently".to_owned(),
                all => format!("all {all} possible owners gave it up recently"),
            },
            unserved,
            "see their logs for the reason; each is asked again after 10 s".into(),
        ),
        Why::MoveWaits { migration, why } => {
            (ReasonCode::MoveWaits, format!("move {migration} waits: {why}"), Millis::ZERO, String::new())
        }
    };
    let subject = subjects::partition(state, partition);
    Reason { began_at_ms: at(since), ..reason_now(code, subject, message, remedy) }
}
