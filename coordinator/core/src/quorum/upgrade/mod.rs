//! Raises of the cluster's protocol once every member speaks the next one (docs/design/adr/0057-upgrades.md, PROTOCOL rules 63
//! and 64): members are replaced by newer versions one by one, all speak the old protocol meanwhile, and only then is
//! anything written or sent that the older versions could not read.
//!
//! Nodes and participants report their protocols when they register, so the state has them; coordinators report them
//! with each answer to the leading coordinator, so only that one has them.

mod member;

pub use member::{UpgradeMember, UpgradeName};

use crate::command::Command;
use crate::mutant::Mutant;
use crate::state::ClusterState;
use crate::state::node_row::NodeRow;
use archon_types::{ErrorDetail, ErrorKind, PROTOCOL_FIRST, ProtocolRange};
use std::collections::{BTreeMap, BTreeSet};

/// Protocols of each member of the quorum; `None` for one that does not answer.
pub type CoordinatorsSpeak = BTreeMap<u64, Option<ProtocolRange>>;

/// Returns all members that must speak a protocol before the cluster does: the members of the quorum, including
/// learners, and nodes and participants that are not lost. A failed one is included, since it may come back unchanged.
pub fn upgrade_members(state: &ClusterState, coordinators: &CoordinatorsSpeak) -> Vec<UpgradeMember> {
    let ids: BTreeSet<u64> = state.coordinators.members.keys().chain(coordinators.keys()).copied().collect();
    let quorum = ids.into_iter().map(|id| {
        let speaks = coordinators.get(&id).copied().flatten();
        UpgradeMember { name: UpgradeName::Coordinator(id), speaks, answers: speaks.is_some() }
    });
    let members = who_counts(state).map(|row| UpgradeMember {
        name: match row.participant {
            Some(_) => UpgradeName::Participant(row.node.id),
            None => UpgradeName::Node(row.node.id),
        },
        speaks: Some(row.speaks()),
        answers: state.is_alive(row.node.id),
    });
    quorum.chain(members).collect()
}

/// Returns the nodes and participants that must speak a protocol before the cluster does.
fn who_counts(state: &ClusterState) -> impl Iterator<Item = &NodeRow> {
    state.members().filter(|row| !row.is_lost())
}

/// Returns the first node or participant that does not speak this protocol.
pub(crate) fn registered_laggard(state: &ClusterState, protocol: u32) -> Option<&NodeRow> {
    who_counts(state).find(|row| !row.speaks().contains(protocol))
}

/// Returns the newest protocol that any of them speaks.
pub fn newest_spoken(members: &[UpgradeMember]) -> u32 {
    members.iter().filter_map(|member| member.speaks).map(|speaks| speaks.newest).max().unwrap_or(PROTOCOL_FIRST)
}

/// Returns the members that do not speak this protocol.
pub fn laggards(members: &[UpgradeMember], protocol: u32) -> impl Iterator<Item = &UpgradeMember> {
    members.iter().filter(move |member| !member.speaks.is_some_and(|speaks| speaks.contains(protocol)))
}

/// Returns the command that raises the protocol to the newest one that all members speak; `None` if that is reached.
///
/// # Errors
/// During a recovery, or while a coordinator joins: their protocols are not known yet.
pub fn check_raise(state: &ClusterState, coordinators: &CoordinatorsSpeak) -> Result<Option<Command>, ErrorDetail> {
    if !state.is_bootstrapped() || state.recovery.is_some() {
        let message = "the coordinators are being recovered or founded; the protocol rises after that";
        return Err(ErrorDetail::new(ErrorKind::Unavailable, message).with_retry_after_ms(1_000));
    }
    if let Some(joining) = state.coordinators.joining() {
        let message =
            format!("coordinator {joining} is joining with an unknown protocol; the protocol rises after that");
        return Err(ErrorDetail::new(ErrorKind::AssignmentInProgress, message).with_retry_after_ms(1_000));
    }
    let members = upgrade_members(state, coordinators);
    // The lowest of their newest protocols bounds the common one.
    let to = members.iter().filter_map(|member| member.speaks).map(|speaks| speaks.newest).min();
    let to = to.filter(|to| *to > state.protocol && laggards(&members, *to).next().is_none());
    Ok(to.map(|to| Command::RaiseProtocol { to }))
}

/// Returns the command that raises the protocol automatically, if it is possible and no operator holds it.
pub fn next_raise(state: &ClusterState, coordinators: &CoordinatorsSpeak) -> Option<Command> {
    if state.protocol_held {
        return None;
    }
    check_raise(state, coordinators).ok().flatten()
}

/// Rejects a member that does not speak the protocol of the cluster (PROTOCOL rule 64).
pub(crate) fn check_speaks(state: &ClusterState, name: &str, speaks: ProtocolRange) -> Result<(), ErrorDetail> {
    let protocol = state.protocol.max(PROTOCOL_FIRST);
    if speaks.contains(protocol) || state.breaks(Mutant::AnyProtocolRegisters) {
        return Ok(());
    }
    Err(mismatch(protocol, name, speaks))
}

/// Rejects a coordinator that wants to join and does not speak the protocol of the cluster (PROTOCOL rule 64).
///
/// # Errors
/// The version to start instead.
pub fn check_coordinator_speaks(state: &ClusterState, id: u64, speaks: ProtocolRange) -> Result<(), ErrorDetail> {
    check_speaks(state, &format!("coordinator {id}"), speaks)
}

fn mismatch(protocol: u32, name: &str, speaks: ProtocolRange) -> ErrorDetail {
    let (version, why) = match speaks.newest < protocol {
        true => ("newer", "the cluster was upgraded and cannot be rolled back"),
        false => ("older", "upgrade the cluster through the versions in between"),
    };
    let message = format!(
        "the cluster uses protocol {protocol}, and {name} supports {speaks}: start a {version} version of it ({why}; \
         see `archon upgrade status`)"
    );
    ErrorDetail::new(ErrorKind::ProtocolMismatch, message)
}

/// Rejects commands that members of the cluster may not be able to read yet (PROTOCOL rule 64).
///
/// # Errors
/// The required protocol, and where its blockers are shown.
pub fn check_commands(state: &ClusterState, commands: &[Command]) -> Result<(), ErrorDetail> {
    let Some(newer) = commands.iter().find(|command| command.since() > state.protocol.max(PROTOCOL_FIRST)) else {
        return Ok(());
    };
    let message = format!(
        "{} needs protocol {}, and the cluster uses {}: not every member is upgraded; see `archon upgrade status`",
        newer.name(),
        newer.since(),
        state.protocol
    );
    Err(ErrorDetail::new(ErrorKind::Refused, message))
}
