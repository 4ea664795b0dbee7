//! Operator's end of a recovery despite a possible loss, judged in advance (PROTOCOL rule 62).

use crate::command::Command;
use crate::quorum::recovery::{Doubt, doubts};
use crate::state::ClusterState;

/// Reason for which an operator's order does not end a recovery.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SettleRefusal {
    /// No recovery is in progress.
    #[error("no recovery is running")]
    Over,
    /// Former coordinators work with a majority.
    #[error(
        "coordinators of an earlier generation may still have a majority (see `archon quorum list`): to keep the \
         recovery, stop them first and retry; if it is a trial, stop the recovered coordinators"
    )]
    FormerWorks,
    /// Some nodes have not reported their replicas.
    #[error(
        "{} not reported yet what {}: {}. Start {} and check again (`archon quorum list`), or, if the data is gone for \
         good, run `archon node lost NAME --accept-data-loss`",
        if nodes.len() == 1 { "one node has" } else { "some nodes have" },
        if nodes.len() == 1 { "it holds" } else { "they hold" },
        nodes.join(", "),
        if nodes.len() == 1 { "it" } else { "them" }
    )]
    Unheard {
        /// Their names.
        nodes: Vec<String>,
    },
    /// Data may be lost, and the operator has not accepted that.
    #[error(
        "changes known to nodes were lost, or a node registered with an older copy of its data directory, so \
         acknowledged writes may be lost: see `archon quorum list`, and add --accept-data-loss to continue with the \
         data of the nodes"
    )]
    NotAccepted,
}

/// Returns the command by which a recovery that stands by takes over, or `None` if it goes on by itself. `former_works`: the last round of
/// questions found a former coordinator that works with a majority.
///
/// # Errors
/// [`SettleRefusal`].
pub fn check_take_over(
    state: &ClusterState,
    former_works: bool,
    accept_loss: bool,
) -> Result<Option<Command>, SettleRefusal> {
    let recovery = state.recovery.as_deref().ok_or(SettleRefusal::Over)?;
    let facts = recovery.former_facts();
    match (former_works, accept_loss) {
        (true, _) => Err(SettleRefusal::FormerWorks),
        (false, _) if facts.taken_over || !facts.worked => Ok(None),
        (false, true) => Ok(Some(Command::TakeOver)),
        (false, false) => Err(SettleRefusal::NotAccepted),
    }
}

/// Returns the command that ends a recovery, or `None` if it ends by itself.
///
/// # Errors
/// [`SettleRefusal`].
pub fn check_settle(state: &ClusterState, accept_loss: bool) -> Result<Option<Command>, SettleRefusal> {
    if state.recovery.is_none() {
        return Err(SettleRefusal::Over);
    }
    let doubts = doubts(state);
    let unheard = |doubt: &Doubt| match doubt {
        Doubt::Unheard { node, .. } => Some(state.node_name(*node)),
        _ => None,
    };
    let nodes: Vec<String> = doubts.iter().filter_map(unheard).collect();
    if !nodes.is_empty() {
        return Err(SettleRefusal::Unheard { nodes });
    }
    match doubts.is_empty() {
        true => Ok(None),
        false if accept_loss => Ok(Some(Command::AcceptRecovery)),
        false => Err(SettleRefusal::NotAccepted),
    }
}
