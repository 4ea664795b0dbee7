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
    let unconfirmed = {
        let mut term = session.term().lock();
        state.read(|state| term.heartbeat(state, node, incarnation, heartbeat.stopping, now))?
    };
    if unconfirmed.turn_due() {
        session.work.notify_one();
    }
    let (table_version, key) = (heartbeat.table_version, heartbeat.push_key);
    session.note_heard(node, Heard { incarnation, at: now, table_version, key });
    let turned = session.loads().lock().note(node, &heartbeat.load);
    if turned {
        let name = state.read(|state| state.node_name(node));
        match heartbeat.load.disk_full {
            Some(lack) => tracing::warn!(node = name, "a node refuses writes, its disk is full: {lack}"),
            None => tracing::info!(node = name, "a node's disk has space for writes"),
        }
    }
    if !session.is_granting() {
        let message = "this coordinator stalls and gives leadership away";
        return Err(ErrorDetail::new(ErrorKind::NoQuorum, message).with_retry_after_ms(50));
    }
    let led = session.led(ANSWER_DEADLINE).await?;
    let mut term = session.term().lock();
    let answered = state.read(|state| {
        let Some(confirmed) = term.confirmed(state, unconfirmed, Some(led)) else { return Ok(None) };
        let answer = term.answer(state, confirmed, boot_now())?;
        Ok::<_, ErrorDetail>(Some((answer, state.table_version())))
    });
    drop(term);
    let Some((answer, table_version)) = answered? else { return Err(session.quorum().not_leading()) };
    Ok(HeartbeatAnswer {
        number: heartbeat.number,
        incarnation,
        lease_ms: answer.lease_ms,
        withdrawn: answer.withdrawn,
        table_version,
        replication_timeout_ms: answer.replication_timeout_ms,
    })
}
