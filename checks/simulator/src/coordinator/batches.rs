//! Heartbeats of members and of relays: judged individually; those of a batch are answered together.

use super::session::WholeTables;
use crate::event::{BatchId, ClusterNow, CoordinatorMessage, HeartbeatAnswer, HeartbeatRequest, TableUpdates};
use crate::host::carried::CarriedBeat;
use crate::world::World;
use archon_coordinator_core::ClusterState;
use archon_coordinator_core::term::{self, Beat, HeartbeatSummary};
use archon_types::{ErrorKind, Version};

impl World {
    /// Accepts heartbeats: a batch of a relay, or one of the member itself.
    pub(super) fn on_beats(
        &mut self,
        coordinator: usize,
        host: usize,
        batch: Option<BatchId>,
        beats: Vec<CarriedBeat>,
    ) {
        let now = self.coordinator_now(coordinator);
        let own = &mut self.quorum.coordinators[coordinator];
        let Some(session) = &mut own.session else { return };
        let (mut waits, mut refused) = (false, Vec::new());
        for CarriedBeat { heartbeat, stopping, holds, doors, .. } in beats {
            let (node, incarnation) = (heartbeat.node(), heartbeat.incarnation());
            let (number, doors) = (heartbeat.number(), doors.as_ref());
            match session.term.heartbeat(&own.state, Beat { node, incarnation, number, stopping, doors }, now) {
                Ok(Some(unconfirmed)) => {
                    let heard = HeartbeatSummary { at: now, holds, carried: true };
                    match batch {
                        Some(_) => drop(session.heard.insert(node, (incarnation, heard))),
                        None => drop(session.heard.remove(&node)),
                    }
                    session.waiting.push((unconfirmed, HeartbeatRequest { host, heartbeat, batch, holds }));
                    waits = true;
                }
                Ok(None) => self.coverage.beats_overtaken += 1,
                Err(error) if error.kind == ErrorKind::StaleIncarnation => refused.push(heartbeat),
                Err(_) => {}
            }
        }
        match batch {
            Some(batch) if waits => drop(session.refused.insert((host, batch), refused)),
            Some(batch) => {
                let answers = refused.into_iter().map(|heartbeat| (heartbeat, None, None)).collect();
                self.answer_batch(coordinator, host, batch, answers);
            }
            None => {
                refused.into_iter().for_each(|beat| self.stale(coordinator, host, (beat.node(), beat.incarnation())))
            }
        }
        let session = self.quorum.coordinators[coordinator].session.as_ref();
        if waits && session.is_some_and(|session| session.round.is_none()) {
            self.begin_round(coordinator);
        }
    }

    pub(super) fn answer_batch(&mut self, by: usize, host: usize, batch: BatchId, mut answers: Vec<HeartbeatAnswer>) {
        let own = &mut self.quorum.coordinators[by];
        let Some(session) = &mut own.session else { return };
        let refused = session.refused.remove(&(host, batch)).unwrap_or_default();
        answers.extend(refused.into_iter().map(|heartbeat| (heartbeat, None, None)));
        let cluster = cluster_now(&own.state);
        for (heartbeat, _, _) in answers.iter().filter(|(_, lease, _)| lease.is_none()) {
            self.judge_ended(by, heartbeat.node(), heartbeat.incarnation());
        }
        let withdrawn = answers.iter().flat_map(|(_, lease, _)| lease).map(|lease| lease.withdrawn.len() as u64);
        self.coverage.withdrawn += withdrawn.sum::<u64>();
        self.name_coordinators(by, host);
        let message = CoordinatorMessage::Judged { by, batch, answers, cluster };
        self.send_to_host(by, host, message);
    }
}

/// Returns the cluster description in heartbeat answers.
pub(super) fn cluster_now(state: &ClusterState) -> ClusterNow {
    ClusterNow { relays: state.relay_count(), door_every_ms: state.settings.doors_every_ms(state.protocol) }
}

/// Returns the updates for a node that holds everything up to `holds`.
pub(super) fn news(state: &ClusterState, holds: Version) -> Option<Box<TableUpdates>> {
    let term::TableUpdates { nodes, tables, complete, .. } = term::news(state, holds, &WholeTables)?;
    Some(Box::new(TableUpdates { nodes, tables, complete }))
}
