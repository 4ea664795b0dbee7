//! A registration that would end the life of a node that is believed to live counts only once the process at that node's
//! address has confirmed it. Whoever knows a data directory's id could take its copies out of every Live set otherwise.

use crate::node_row::NodeRow;
use crate::registration::Register;
use crate::state::ClusterState;
use archon_types::{ErrorDetail, ErrorKind, NodeStatus};

/// What the process at a node's address says of the boot id that registers in the node's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// It is its own.
    Own,
    /// It is another process.
    Foreign,
    /// Nobody answers.
    Silent,
}

/// The node whose life this registration would end although it is believed to live, if any: the process at its address has
/// to be asked first. What is refused whoever answers is not worth asking for.
pub fn to_confirm<'a>(state: &'a ClusterState, register: &Register) -> Option<&'a NodeRow> {
    let known = state.node_by_storage(register.storage)?;
    let another_life = known.node.status == NodeStatus::Alive && known.boot != register.boot;
    let at_its_address = known.node.address == register.address && register.expects == Some(known.node.incarnation);
    (another_life && at_its_address).then_some(known)
}

/// Judges a registration by what the process at the address of `known` said.
///
/// # Errors
/// `NameTaken` if another process is there. `Unavailable`, to be tried again, if nobody answers: either the process that
/// registers does not listen yet, or nothing is there and the node's life is failed before long.
pub fn check_confirmed(state: &ClusterState, known: &NodeRow, said: Confirmation) -> Result<(), ErrorDetail> {
    let (name, address) = (&known.node.name, &known.node.address);
    let timing = &state.settings.timing;
    match said {
        Confirmation::Own => Ok(()),
        Confirmation::Foreign => {
            let message = format!(
                "{name} lives, and the process at {address} says that it is not the one that registers; stop {name} first, \
                 or give this node an empty --data-dir and a --name of its own"
            );
            Err(ErrorDetail::new(ErrorKind::NameTaken, message).with_retry_after_ms(timing.failure_timeout_ms))
        }
        Confirmation::Silent => {
            let message = format!(
                "{name} is believed to live, and no process at {address} confirms that it registers anew; try again: \
                 without a sign of life {name} is failed within {} ms, and may register then",
                timing.failure_timeout_ms
            );
            Err(ErrorDetail::new(ErrorKind::Unavailable, message).with_retry_after_ms(timing.heartbeat_ms))
        }
    }
}
