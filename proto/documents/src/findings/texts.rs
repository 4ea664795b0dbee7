//! The sentence and the remedy of each finding.

use super::phrases::members as members_of;
use super::phrases::{
    ROOM_REMEDY, STAYS_REMEDY, WITHHELD_REMEDY, because, limit_remedy, name, operand, partition_of, seconds,
};
use super::{members, quorum};
use archon_types::subject::Subject;
use archon_types::{Facts, OTHER_HISTORY_REMEDY};

/// Returns the sentence and the remedy of a finding. The remedy is empty if it resolves by itself.
pub(super) fn text(subject: &Subject, facts: &Facts) -> (String, String) {
    let own = |message: &str, remedy: &str| (message.to_owned(), remedy.to_owned());
    match facts {
        Facts::NotEnoughNodes { have, need } => (
            format!("{have} of {need} required nodes are registered"),
            match need.saturating_sub(*have) {
                1 => "start another node".to_owned(),
                more => format!("start {more} more nodes"),
            },
        ),
        Facts::NoParticipant { drained, cordoned, in_maintenance } => members::no_participant(
            &name(subject),
            drained.as_deref(),
            cordoned.as_deref(),
            in_maintenance.as_deref(),
        ),
        Facts::AwaitsFirstParticipant {} => {
            let table = name(subject);
            (format!("table {table} waits for its first participant"), format!("start one that serves {table}"))
        }
        Facts::AboutToBeAssigned {} => own("its nodes are being chosen", ""),
        Facts::NodesAtLimit { partitions_short: partitions, nodes_full: nodes, plan, raisable } => (
            match partitions {
                Some(partitions) => {
                    format!("{partitions} partitions lack a replica, and all nodes that could take it are full")
                }
                None => {
                    format!("all {nodes} nodes that could take its replicas are at their limits (--partitions-max)")
                }
            },
            limit_remedy(*plan, *raisable),
        ),
        Facts::NodeFailed { address, stopped, drained, lack } => {
            members::down(subject, address, *stopped, *drained, lack.as_ref())
        }
        Facts::InMaintenance { address, stopped, drained, lack, why } => {
            members::maintained(members::down(subject, address, *stopped, *drained, lack.as_ref()), why)
        }
        Facts::OnlyInMaintenance { node, partitions_led: partitions, partition: first } => {
            let others = match partitions {
                1 => String::new(),
                more => format!(", and {} more like it", more - 1),
            };
            let message = format!(
                "{node} is in maintenance and still leads its partition {first}{others}, because no other node can \
                 take it: it becomes unavailable when {node} stops"
            );
            (message, format!("end a maintenance: `archon node resume {node}`; or start other nodes"))
        }
        Facts::Offline { why } => (
            format!("an operator took it offline{}", because(why)),
            format!("`{}` brings it back", members::online(subject)),
        ),
        Facts::AllBarred { participants_total: participants } => (
            format!(
                "all {participants} participants that serve its table are excluded from it, or have no right to own it"
            ),
            format!(
                "lift an exclusion (see `archon partition describe {}`), or grant the right: `archon access grant own \
                 --participant NAME --table {}`",
                operand(subject),
                name(subject)
            ),
        ),
        Facts::OwnerStays { node, leases_kept: None, .. } => (
            format!("{node} should give it up and stays its owner, because no other participant may own it"),
            STAYS_REMEDY.to_owned(),
        ),
        Facts::OwnerStays { node, leases_kept: Some(leases), named } => {
            let leases = if *leases == 1 { "1 lease".to_owned() } else { format!("{leases} leases") };
            let message = format!(
                "{node} should give up {leases} and keeps them, because no other participant may own them ({named})"
            );
            (message, STAYS_REMEDY.to_owned())
        }
        Facts::NoLeaseTable { table, exists } => {
            let what = if *exists { "holds data, not leases" } else { "does not exist" };
            let remedy = match exists {
                true => "start it with the name of a lease table: `archon table list`".to_owned(),
                false => format!("`archon table create {table} --lease`, or start it with the name of another table"),
            };
            (format!("{} serves table {table}, which {what}", name(subject)), remedy)
        }
        Facts::TableNotGranted { table } => {
            let member = name(subject);
            let message =
                format!("{member} serves lease table {table} without the right `own`: it gets no partition of it");
            let grant = format!("archon access grant own --participant {member} --table {table}");
            (message, format!("`{grant}`, or start it without that table"))
        }
        Facts::HeartbeatsOverdue { silent_for_ms, left_for_ms } => (
            format!(
                "its lease was not extended for {}; it is failed after {} more",
                seconds(*silent_for_ms),
                seconds(*left_for_ms)
            ),
            "check that it is running and reaches the coordinators".to_owned(),
        ),
        Facts::GivenUp { participants_total: participants } => (
            match participants {
                1 => "the only possible owner gave it up recently".to_owned(),
                all => format!("all {all} possible owners gave it up recently"),
            },
            "see their logs for the reason; each is asked again after 10 s".to_owned(),
        ),
        Facts::NotServed { partitions_unserved: partitions, partitions_total: of, longest } => {
            let table = name(subject);
            let message = format!(
                "{partitions} of {of} partitions of table {table} have been unavailable for longer than a failover \
                 takes; partition {longest} for longest"
            );
            (message, format!("see the reason: `archon partition describe {}`", partition_of(&table, *longest)))
        }
        Facts::TooLittleRoom { have, need } => {
            let (who, things) = members_of(subject);
            (format!("the {who} together can take {have} {things}, but there are {need}"), ROOM_REMEDY.to_owned())
        }
        Facts::NoSpareRoom { without, have, need } => {
            let (who, things) = members_of(subject);
            let message = format!("without {without} the {who} together can take {have} {things}, but there are {need}");
            (message, ROOM_REMEDY.to_owned())
        }
        Facts::TooFewMembers { have, need } => {
            let (who, _) = members_of(subject);
            let message = format!("{have} {who} take partitions, fewer than the required {need}");
            (message, "start more, or uncordon or undrain existing ones".to_owned())
        }
        Facts::LeaseStale { silent_for_ms } => (
            format!("its lease was not extended for {}", seconds(*silent_for_ms)),
            "check that it reaches the coordinators, and that these have a majority".to_owned(),
        ),
        Facts::OrderStands { order, excluded } | Facts::HeldTooLong { order, excluded } => {
            members::order(subject, *order, excluded.as_deref())
        }
        Facts::LeaderHearsTooFew { node, have, need } => (
            format!(
                "its leader {node} refuses writes: it reaches {have} of the {need} replicas that must store each write, \
                 including its own"
            ),
            format!("check the network between {node} and the nodes of the other replicas"),
        ),
        Facts::RepairWithheld { partitions_short: partitions, nodes_failed: failed, nodes_total: nodes } => {
            let third = format!("more than a third of the nodes are failed ({failed} of {nodes})");
            let message = match partitions {
                Some(partitions) => {
                    format!("{partitions} partitions lack a replica on a failed node, and are not repaired, because {third}")
                }
                None => format!("{third}: their replicas are not replaced"),
            };
            (message, WITHHELD_REMEDY.to_owned())
        }
        Facts::TakingOver { node } => (format!("{node} is taking over"), String::new()),
        Facts::EpochSurpassed { epoch } => (
            format!("a replica knew epoch {epoch}, which was never granted; the next leader uses a higher one"),
            "look for a node started from an old or copied data directory, or for coordinators restored from an old \
             state"
                .to_owned(),
        ),
        Facts::WaitingForLease { node } => (format!("the lease of {node} may not have expired yet"), String::new()),
        Facts::NoLiveReplica { node } => (
            format!("an in-sync replica is on {node}, which is not alive"),
            format!("start {node} again with its data directory"),
        ),
        Facts::HolderRegistering { node } => (format!("{node} is registering"), String::new()),
        Facts::AboutToBeElected {} => own("its leader is being elected", ""),
        Facts::DataLost {} => (
            "no in-sync replica is left".to_owned(),
            format!("see the remaining replicas: `archon partition describe {}`", operand(subject)),
        ),
        Facts::UnderReplicated { missing, of, supply } => {
            members::under_replicated(subject, *missing, *of, supply.as_ref())
        }
        Facts::LostCopyKept { node, have, need } => (
            format!(
                "the replica on {node} was lost or damaged, and is kept until other replicas are in sync on live nodes: \
                 {have} of {need} are"
            ),
            "start the nodes of the other replicas; then it is replaced".to_owned(),
        ),
        Facts::MoveWaits { move_id, why } => (format!("move {move_id} waits: {why}"), String::new()),
        Facts::CopiesCondemned { copies_condemned: copies, holders, nodes_more: others, away } => {
            members::condemned(*copies, holders, *others, *away)
        }
        Facts::NodeUnreached { address, shut_to, partitions_led } => {
            members::unreached(subject, address, shut_to, *partitions_led)
        }
        Facts::DiskFull { address, lack } => members::disk_full(subject, address, lack),
        Facts::LogPinned { placement_id, replica_of, bytes_pinned: bytes } => {
            members::log_pinned(subject, *placement_id, replica_of.as_deref(), *bytes)
        }
        Facts::DiskFails { address } => quorum::disk_fails(subject, address),
        Facts::SnapshotWaits { address } => quorum::snapshot_waits(subject, address),
        Facts::CertificateExpires { members: named, members_total, first, left_for_ms }
        | Facts::CertificateExpired { members: named, members_total, first, left_for_ms } => {
            members::ending_certificates(named, *members_total, first, *left_for_ms)
        }
        Facts::CertificateNotTaken { members: named, members_total, first } => {
            members::unused_certificates(named, *members_total, first)
        }
        Facts::AuthoritiesDiffer { authorities } => members::authorities(authorities),
        Facts::TooFewVoters { voters_total: voters, had_more } => quorum::too_few_voters(*voters, *had_more),
        Facts::StatesDiffer { index, wrong } => quorum::differs(subject, *index, *wrong),
        Facts::OtherHistory { member: Some(member), why, .. } => {
            (format!("{member} is refused: {why}"), OTHER_HISTORY_REMEDY.to_owned())
        }
        Facts::OtherHistory { member: None, generation, waits, .. } => quorum::other_history(*generation, *waits),
        Facts::CoordinatorUnreachable { address, why, learner, spare_voters, quorum_heartbeat_ms } => {
            let standing = (*learner, *spare_voters);
            quorum::unreachable(subject, address, why.as_deref(), standing, *quorum_heartbeat_ms)
        }
        Facts::BeingRecovered { nodes_unheard } => quorum::recovery(*nodes_unheard),
        Facts::QuorumChanging { change } => (
            format!("running: {change}"),
            "it continues automatically: `archon quorum list` shows what it waits for, `archon quorum cancel` cancels it"
                .to_owned(),
        ),
        Facts::Upgrading { protocol, newest, outdated, members_more: others } => {
            quorum::upgrade(*protocol, *newest, outdated, *others)
        }
        Facts::NoQuorum { error } => (
            format!("no leading coordinator answers: {error}"),
            "see `archon status`; start a majority of the coordinators".to_owned(),
        ),
        Facts::ReadOnly { why } => (
            format!("changes are refused because disks of coordinators lack space: {why}"),
            "free disk space there; changes then resume automatically; meanwhile nodes keep their leases and serve \
             keys, but failed nodes are not replaced"
                .to_owned(),
        ),
    }
}
