//! New incarnations of participants. A participant holds only leases, so it cannot lose data: its name is its identity,
//! and a process with the name of a participant that is gone takes its place.

use super::dropped::forget_node;
use super::register::{begin_life, check, forget_lapsed, number};
use super::stage::StagedRows;
use crate::command::apply::entry::Entry;
use crate::command::refusals::{next_epoch, refused};
use crate::state::former_leaders::FormerLeader;
use crate::state::node_row::NodeRow;
use crate::state::response::Response;
use crate::state::{ClusterState, PARTICIPANTS_MAX};
use archon_types::{ErrorDetail, ErrorKind, Incarnation, NodeStatus, Participant, Register};

pub(super) fn register(
    state: &mut ClusterState,
    entry: Entry<'_>,
    register: &Register,
    participant: &Participant,
) -> Result<Response, ErrorDetail> {
    check(state, register)?;
    participant.check()?;
    let incarnation = Incarnation::new(entry.index);
    if let Some(node) = state.nodes.named(&register.name).find(|row| row.node.status != NodeStatus::Lost) {
        let message = format!("the name {:?} belongs to a node; give this participant another one", node.node.name);
        return Err(ErrorDetail::new(ErrorKind::NameTaken, message));
    }
    let known = state.participants.named(&register.name).next().cloned();
    if let Some(known) = &known {
        let alive = known.node.status == NodeStatus::Alive;
        if alive && known.boot == register.boot {
            return Ok(Response::Registered { node: known.node.id, incarnation: known.node.incarnation });
        }
        // If it were accepted, the two processes would fence each other in turn. The latest process keeps the name.
        if alive && known.storage != register.storage && register.last_incarnation.is_some() {
            let message = format!(
                "another process uses the name {:?} and is alive at {}; stop one of the two, or give each its own name",
                register.name, known.node.address
            );
            return Err(refused(message));
        }
        // Only one process can use an address, so a restart at the same address is accepted at once. Partitions of the
        // former incarnation stay unowned until its lease ends, independent of registrations.
        if alive && known.node.address != register.address {
            let message = format!(
                "the name {:?} belongs to a participant that is alive at {}; choose another name, or stop that one \
                 first",
                register.name, known.node.address
            );
            let retry_ms = state.timing_of(known.node.id).failure_timeout_ms;
            return Err(ErrorDetail::new(ErrorKind::NameTaken, message).with_retry_after_ms(retry_ms));
        }
        if known.node.incarnation == incarnation {
            let message = format!("{} registers twice at once; try again", register.name);
            return Err(ErrorDetail::new(ErrorKind::Unavailable, message).with_retry_after_ms(50));
        }
    } else if state.participants.len() >= PARTICIPANTS_MAX {
        let message = format!("{} participants are registered, which is the limit", state.participants.len());
        return Err(ErrorDetail::new(ErrorKind::Refused, message));
    }
    if let Some(known) = &known {
        end_life(state, entry, known)?;
        forget_node(state, known.node.id);
    }
    let id = number(state, known.as_ref());
    Ok(begin_life(state, entry, register, known.as_ref(), id))
}

/// Ends the ownerships of the former incarnation and remembers them, since it may not know.
fn end_life(state: &mut ClusterState, entry: Entry<'_>, known: &NodeRow) -> Result<(), ErrorDetail> {
    let (node, incarnation) = (known.node.id, known.node.incarnation);
    let failure_timeout_ms = state.timing_of(node).failure_timeout_ms;
    let mut staged = StagedRows::new(state, entry);
    for row in state.partitions.on_node(node) {
        let Some(placement) = row.placement_on(node).map(|own| own.id).filter(|own| row.leader == Some(*own)) else {
            continue;
        };
        let mut row = row.clone();
        let (partition, epoch, lapsed) = (row.id, row.epoch, false);
        staged.remember(FormerLeader { partition, epoch, placement, node, incarnation, failure_timeout_ms, lapsed });
        row.leader = None;
        row.epoch = next_epoch(row.epoch)?;
        staged.put(row);
    }
    forget_lapsed(&mut staged, state, (node, incarnation));
    staged.into_effect().commit(state, entry);
    Ok(())
}
