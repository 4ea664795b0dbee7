//! Checks of quorum changes: admission of newcomers, and operators' changes of members, before anything is committed.

use crate::command::Command;
use crate::mutant::Mutant;
use crate::quorum::coordinators::QuorumHealth;
use crate::state::ClusterState;
use crate::state::coordinators::{COORDINATORS_MAX, Members, Newcomer, Wish, majority, voters};
use archon_types::limits::check_address;
use archon_types::{ErrorDetail, ErrorKind, QuorumChange};
use std::collections::BTreeSet;

/// Reason why the quorum cannot be changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages are the documentation of the fields.
pub enum QuorumRefusal {
    /// One change at a time.
    #[error(
        "another change of the quorum is running ({wish}); wait for it (`archon quorum list`), or cancel it (`archon \
         quorum cancel`)"
    )]
    UnderWay { wish: String },
    /// No change to cancel.
    #[error("no change of the quorum is running")]
    NothingPending,
    /// Too late to cancel.
    #[error("the voters are changing, which takes only a moment; retry then")]
    TooLate,
    /// No such member.
    #[error("coordinator {id} does not exist; the members are {members}")]
    NoSuchMember { id: u64, members: String },
    /// A voter that lost its votes.
    #[error(
        "coordinator {id} is a member with another data directory: a wiped voter cannot return under its number, \
         because its votes are lost. Join as --id {next}, then `archon quorum replace {id} {next}`"
    )]
    Wiped { id: u64, next: u64 },
    /// A number is used once.
    #[error("number {id} belonged to a removed coordinator and cannot be reused; join as --id {next}")]
    Retired { id: u64, next: u64 },
    /// Two coordinators with one address could not be distinguished.
    #[error("coordinator {id} already uses {address}; give the new one its own address")]
    AddressTaken { id: u64, address: String },
    /// The directory was copied.
    #[error("this data directory is a copy of that of coordinator {id}; start the new coordinator with an empty one")]
    CopiedDirectory { id: u64 },
    /// The address cannot be dialled.
    #[error("{0}")]
    Address(String),
    /// More members make every decision slower and none safer.
    #[error("the quorum has {COORDINATORS_MAX} members, which is the maximum; remove one first")]
    TooMany,
    /// The quorum could not decide anything.
    #[error(
        "only {heard} of the {voters} remaining voters answer, and a majority needs {need}; start the others first, or \
         choose another coordinator"
    )]
    LosesMajority { voters: usize, heard: usize, need: usize },
    /// The last voter stays.
    #[error("coordinator {id} is the only voter; promote or replace it with another one first")]
    LastVoter { id: u64 },
    /// The next failure would end it.
    #[error(
        "without coordinator {id} the remaining {voters} voters tolerate no failure. Add a coordinator first, or \
         accept it with --force"
    )]
    LosesSpare { id: u64, voters: usize },
    /// All later decisions would be on one disk.
    #[error(
        "without coordinator {id} only one answering coordinator remains, with the state on one disk only. Add a \
         coordinator first, or accept it with --force"
    )]
    LastCopy { id: u64 },
    /// It does not answer, so it cannot do its part.
    #[error("coordinator {id} does not answer; start it first")]
    Silent { id: u64 },
    /// Replacing a voter by another one would reduce their number.
    #[error("coordinator {id} is a voter already; to remove one: `archon quorum remove {old}`")]
    VoterAlready { id: u64, old: u64 },
}

impl From<QuorumRefusal> for ErrorDetail {
    fn from(refusal: QuorumRefusal) -> Self {
        let kind = match refusal {
            QuorumRefusal::NoSuchMember { .. } => ErrorKind::NotFound,
            QuorumRefusal::Address(_) => ErrorKind::InvalidArgument,
            QuorumRefusal::AddressTaken { .. } => ErrorKind::AlreadyExists,
            QuorumRefusal::UnderWay { .. } => ErrorKind::AssignmentInProgress,
            _ => ErrorKind::Refused,
        };
        Self::new(kind, refusal.to_string())
    }
}

/// Returns the command that admits a newcomer, or records the new address of a member; `None` if that is done or in
/// progress.
///
/// # Errors
/// The reason why it may not join.
pub fn check_join(state: &ClusterState, newcomer: &Newcomer) -> Result<Option<Command>, QuorumRefusal> {
    let coordinators = &state.coordinators;
    let Newcomer { id, address, storage, .. } = newcomer;
    check_address(address).map_err(|error| QuorumRefusal::Address(error.message))?;
    let next = coordinators.next_id();
    match coordinators.members.get(id) {
        Some(member) if member.storage == *storage && member.address == *address => return Ok(None),
        // It was started again at another address.
        Some(member) if member.storage == *storage => {
            check_free(&coordinators.members, *id, address)?;
            let wish = Wish::Change(QuorumChange::SetAddress { id: *id, address: address.clone() });
            return unless_pending(state, wish);
        }
        Some(_) => return Err(QuorumRefusal::Wiped { id: *id, next }),
        None => {}
    }
    if coordinators.retired.contains_key(id) && !state.breaks(Mutant::RetiredReturns) {
        return Err(QuorumRefusal::Retired { id: *id, next });
    }
    let former = coordinators.retired.iter().find(|(_, former)| *former == storage).map(|(id, _)| *id);
    let member = coordinators.members.iter().find(|(_, member)| member.storage == *storage).map(|(id, _)| *id);
    if let Some(id) = member.or(former).filter(|_| !state.breaks(Mutant::CopiedDirectoryJoins)) {
        return Err(QuorumRefusal::CopiedDirectory { id });
    }
    check_free(&coordinators.members, *id, address)?;
    if coordinators.members.len() >= COORDINATORS_MAX {
        return Err(QuorumRefusal::TooMany);
    }
    unless_pending(state, Wish::Join(newcomer.clone()))
}

/// Returns the command that changes the quorum; `None` if it needs no change. `force`: the quorum need not tolerate
/// another failure afterwards.
///
/// # Errors
/// The reason for the refusal.
pub fn check_quorum_change(
    state: &ClusterState,
    health: &QuorumHealth,
    change: &QuorumChange,
    force: bool,
) -> Result<Option<Command>, QuorumRefusal> {
    let coordinators = &state.coordinators;
    let members = &coordinators.members;
    let known = |id: u64| match members.get(&id) {
        Some(member) => Ok(member),
        None => Err(QuorumRefusal::NoSuchMember { id, members: numbers(members) }),
    };
    let (mut comes, mut leaves) = (None, None);
    match change {
        QuorumChange::Promote { id } => {
            known(*id)?;
            comes = Some(*id);
        }
        QuorumChange::Demote { id } | QuorumChange::Remove { id } => {
            known(*id)?;
            leaves = Some(*id);
        }
        QuorumChange::Replace { old, new } => {
            known(*old)?;
            if known(*new)?.voter {
                return Err(QuorumRefusal::VoterAlready { id: *new, old: *old });
            }
            (comes, leaves) = (Some(*new), Some(*old));
        }
        QuorumChange::SetAddress { id, address } => {
            known(*id)?;
            check_address(address).map_err(|error| QuorumRefusal::Address(error.message))?;
            check_free(members, *id, address)?;
        }
    }
    let wish = Wish::Change(change.clone());
    let wanted = wish.wanted(members);
    let pending = coordinators.pending.as_ref();
    if pending.is_some_and(|pending| pending.wish == wish) || (pending.is_none() && wanted == *members) {
        return Ok(None);
    }
    let command = command(state, wish)?;
    if let Some(id) = comes.filter(|id| !health.heard.contains(id)) {
        return Err(QuorumRefusal::Silent { id });
    }
    check_spare(health, &voters(members), &voters(&wanted), leaves, force)?;
    // A replaced member has a successor.
    let less = leaves.filter(|_| comes.is_none() && !force);
    less.map_or(Ok(()), |id| check_copies(health, members, &wanted, id))?;
    Ok(Some(command))
}

/// Returns the command that cancels the change in progress.
///
/// # Errors
/// If there is none, or it is too late.
pub fn check_cancel_quorum_change(state: &ClusterState) -> Result<Command, QuorumRefusal> {
    let coordinators = &state.coordinators;
    if coordinators.pending.is_none() {
        return Err(QuorumRefusal::NothingPending);
    }
    if coordinators.joint {
        return Err(QuorumRefusal::TooLate);
    }
    Ok(Command::EndQuorumChange { if_version: coordinators.version, done: false })
}

/// Checks that enough of the future voters answer.
fn check_spare(
    health: &QuorumHealth,
    before: &BTreeSet<u64>,
    after: &BTreeSet<u64>,
    leaves: Option<u64>,
    force: bool,
) -> Result<(), QuorumRefusal> {
    if before == after {
        return Ok(());
    }
    if let (true, Some(id)) = (after.is_empty(), leaves) {
        return Err(QuorumRefusal::LastVoter { id });
    }
    let (voters, heard) = (after.len(), after.intersection(&health.heard).count());
    let Some(spare) = health.spare(after) else {
        return Err(QuorumRefusal::LosesMajority { voters, heard, need: majority(voters) });
    };
    match leaves {
        // The removal of a silent voter loses nothing.
        Some(id) if spare == 0 && !force && health.spare(before).is_some_and(|spare| spare > 0) => {
            Err(QuorumRefusal::LosesSpare { id, voters })
        }
        _ => Ok(()),
    }
}

/// Checks that more than one answering member remains to hold decisions, if there is more than one now: among the
/// voters, which decide, and among all members, which copy the log.
fn check_copies(health: &QuorumHealth, before: &Members, after: &Members, id: u64) -> Result<(), QuorumRefusal> {
    let voting = |members: &Members| voters(members).intersection(&health.heard).count();
    let copying = |members: &Members| members.keys().filter(|id| health.heard.contains(id)).count();
    let falls = |before: usize, after: usize| before > 1 && after == 1;
    if falls(voting(before), voting(after)) || falls(copying(before), copying(after)) {
        return Err(QuorumRefusal::LastCopy { id });
    }
    Ok(())
}

fn check_free(members: &Members, id: u64, address: &str) -> Result<(), QuorumRefusal> {
    match members.iter().find(|(other, member)| **other != id && member.address == address) {
        Some((other, _)) => Err(QuorumRefusal::AddressTaken { id: *other, address: address.to_owned() }),
        None => Ok(()),
    }
}

fn unless_pending(state: &ClusterState, wish: Wish) -> Result<Option<Command>, QuorumRefusal> {
    match &state.coordinators.pending {
        Some(pending) if pending.wish == wish => Ok(None),
        _ => command(state, wish).map(Some),
    }
}

fn command(state: &ClusterState, wish: Wish) -> Result<Command, QuorumRefusal> {
    let coordinators = &state.coordinators;
    match &coordinators.pending {
        Some(pending) if !state.breaks(Mutant::SecondChangeTaken) => {
            Err(QuorumRefusal::UnderWay { wish: pending.wish.to_string() })
        }
        _ => Ok(Command::ChangeQuorum { if_version: coordinators.version, wish }),
    }
}

fn numbers(members: &Members) -> String {
    members.keys().map(u64::to_string).collect::<Vec<_>>().join(", ")
}
