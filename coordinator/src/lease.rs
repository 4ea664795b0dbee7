//! Answers to heartbeats: each one a lease, given only after a quorum round that began after the heartbeat arrived
//! (PROTOCOL rules 13 to 16).

use crate::clock::boot_now;
use crate::session::{Heard, Session};
use archon_proto::convert::session::{Heartbeat, HeartbeatAnswer};
use archon_types::{ErrorDetail, ErrorKind};
use std::time::Duration;

/// Nodes give a heartbeat 150 ms; an answer after that helps nobody.
const ANSWER_DEADLINE: Duration = Duration::from_millis(140);

/// Takes in a heartbeat and grants the lease.
///
/// # Errors
/// `StaleIncarnation`: register again. `WrongCluster`. `NotCoordinatorLeader`, `NoQuorum`: no lease from here.
pub(crate) async fn answer(session: &Session, heartbeat: Heartbeat) -> Result<HeartbeatAnswer, ErrorDetail> {
    let (node, incarnation) = (heartbeat.member.node, heartbeat.member.incarnation);
    let state = session.quorum().replicated();
    let now = boot_now();
    let activated = {
        let mut liveness = session.liveness().lock();
        state.read(|state| {
            liveness.heard(state, node, incarnation, now)?;
            if heartbeat.stopping && liveness.note_stopping(node, incarnation) {
                session.work.notify_one();
            }
            Ok::<_, ErrorDetail>(state.node(node).and_then(|row| row.activated))
        })?
    };
    let (table_version, key) = (heartbeat.table_version, heartbeat.push_key);
    session.note_heard(node, Heard { incarnation, at: now, table_version, key });
    let turned = session.loads().lock().note(node, &heartbeat.load);
    if turned {
        let name = state.read(|state| state.node_name(node));
        match heartbeat.load.no_room {
            Some(lack) => tracing::warn!(node = name, "a node refuses writes, its disk is full: {lack}"),
            None => tracing::info!(node = name, "a node's disk has room for writes"),
        }
    }
    if activated != Some(incarnation) {
        // A node heartbeats only once its incarnation is on its disk.
        session.activate(node, incarnation);
    }
    if !session.is_granting() {
        let message = "this coordinator stalls and gives leadership away";
        return Err(ErrorDetail::new(ErrorKind::NoQuorum, message).with_retry_after_ms(50));
    }
    session.confirm(ANSWER_DEADLINE).await?;
    let mut liveness = session.liveness().lock();
    let answered = state.read(|state| {
        let answer = liveness.answer(state, node, incarnation, boot_now())?;
        Some((answer, state.table_version()))
    });
    drop(liveness);
    let Some((answer, table_version)) = answered else {
        let message = format!("incarnation {incarnation} of node {node} is over; register again");
        return Err(ErrorDetail::new(ErrorKind::StaleIncarnation, message));
    };
    Ok(HeartbeatAnswer {
        number: heartbeat.number,
        incarnation,
        lease_ms: answer.lease_ms,
        withdrawn: answer.withdrawn,
        table_version,
    })
}
