//! Recovery of the state from less than a majority: from a surviving directory, or from a file.
//!
//! Entries may be lost that nodes have acted upon, so this state is not trusted until they have reported (PROTOCOL
//! rules 60 to 62). [`begin_generation`] creates the new state; nodes register with it, set all their replicas aside
//! and report the end of the log of each; [`doubts()`] lists the obstacles; `settled` selects the replicas of a
//! partition that count then.
//!
//! | file | holds |
//! |---|---|
//! | `begin` | the initial state of a new generation |
//! | `directory` | detection of older copies of data directories |
//! | `doubts` | facts that are not known yet, and those that cannot be known |
//! | `takeover` | the moment from which a generation takes members from the former coordinators |
//! | `settled` | the replicas that count, and the one from which the partition continues |

mod begin;
mod directory;
pub(crate) mod doubts;
mod settled;
mod takeover;

pub use begin::{RecoveryError, begin_generation};
pub use doubts::{Doubt, doubts};
pub(crate) use settled::{Choice, choose};
pub use takeover::{FormerAnswer, FormerFacts, FormerRound, Takeover, TakeoverStep};

use crate::mutant::Mutant;
use crate::state::ClusterState;
use crate::state::recovery::{Inventory, Recovery};
use archon_types::{NodeId, NodeStatus};

/// Returns the nodes that have not reported everything yet, and are not lost.
pub fn unheard<'a>(state: &'a ClusterState, recovery: &'a Recovery) -> impl Iterator<Item = NodeId> + 'a {
    let nodes = state.nodes.values().filter(|row| row.node.status != NodeStatus::Lost);
    let heard = |node| recovery.inventories.get(&node).is_some_and(Inventory::is_complete);
    nodes.map(|row| row.node.id).filter(move |node| !heard(*node))
}

/// Returns true if the recovery can end: all nodes that are not lost have reported, and an operator has accepted
/// possible losses, if there are any.
pub(crate) fn settles(state: &ClusterState, recovery: &Recovery) -> bool {
    let heard = unheard(state, recovery).next().is_none() && (!recovery.may_lose() || recovery.accepted);
    (heard && recovery.has_taken_over()) || state.breaks(Mutant::SettledUnheard)
}
