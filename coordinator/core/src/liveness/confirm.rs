//! Confirmation of registrations: one that would fence a node that is believed alive takes effect only once the process
//! at that node's address has confirmed it. Otherwise anyone who knows a data directory's id could take its copies out
//! of every Live set.

use crate::state::ClusterState;
use crate::state::node_row::NodeRow;
use archon_types::{ErrorDetail, ErrorKind, NodeStatus, Register};

/// Answer of the process at a node's address about a boot id that registers under the node's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// The boot id is its own.
    Own,
    /// It is another process.
    Foreign,
    /// No answer.
    Silent,
}

/// Returns the node that this registration would fence although it is believed alive, if any: the process at its
/// address must be asked first. Registrations that fail in any case need no confirmation.
pub fn to_confirm<'a>(state: &'a ClusterState, register: &Register) -> Option<&'a NodeRow> {
    let known = state.node_by_storage(register.storage)?;
    let another_life = known.node.status == NodeStatus::Alive && known.boot != register.boot;
    let at_its_address = known.node.address == register.address && register.expects == Some(known.node.incarnation);
    (another_life && at_its_address).then_some(known)
}

/// Checks a registration by the answer of the process at the address of `known`.
///
/// # Errors
/// `NameTaken` if another process is there. `Unavailable`, retryable, without an answer: either the registering process
/// does not listen yet, or nothing is there and the node is failed before long.
pub fn check_confirmed(state: &ClusterState, known: &NodeRow, said: Confirmation) -> Result<(), ErrorDetail> {
    let (name, address) = (&known.node.name, &known.node.address);
    let timing = &state.settings.timing;
    match said {
        Confirmation::Own => Ok(()),
        Confirmation::Foreign => {
            let message = format!(
                "{name} is alive at {address} and is another process than this one; stop {name} first, or give this \
                 node an empty --data-dir and its own --name"
            );
            Err(ErrorDetail::new(ErrorKind::NameTaken, message).with_retry_after_ms(timing.failure_timeout_ms))
        }
        Confirmation::Silent => {
            let message = format!(
                "{name} is still considered alive, and no process at {address} confirms this registration; retry: \
                 without heartbeats {name} is failed within {} ms, and may register then",
                timing.failure_timeout_ms
            );
            Err(ErrorDetail::new(ErrorKind::Unavailable, message).with_retry_after_ms(timing.heartbeat_ms))
        }
    }
}
