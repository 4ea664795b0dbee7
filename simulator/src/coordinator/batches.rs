//! Heartbeats that a relay carries: judged one by one, like all others, and answered together.

use crate::event::{Asked, BatchId, CoordinatorMessage, Event};
use crate::host::relaying::CarriedBeat;
use crate::network::End;
use crate::world::World;
use archon_coordinator_core::term::Beat;
use archon_member::{Heartbeat, LeaseAnswer};
use archon_types::{ErrorKind, relay_count};

impl World {
    pub(super) fn on_batch(&mut self, coordinator: usize, host: usize, batch: BatchId, beats: Vec<CarriedBeat>) {
        let now = self.coordinator_now(coordinator);
        let own = &mut self.quorum.coordinators[coordinator];
        let Some(session) = &mut own.session else { return };
        let (mut waits, mut refused) = (false, Vec::new());
        for CarriedBeat { heartbeat, stopping, .. } in beats {
            let (node, incarnation) = (heartbeat.node(), heartbeat.incarnation());
            let beat = Beat { node, incarnation, number: heartbeat.number(), stopping };
            match session.term.heartbeat(&own.state, beat, now) {
                Ok(Some(unconfirmed)) => {
                    session.waiting.push((unconfirmed, Asked { host, heartbeat, batch: Some(batch) }));
                    waits = true;
                }
                Ok(None) => self.coverage.beats_overtaken += 1,
                Err(error) if error.kind == ErrorKind::StaleIncarnation => refused.push(heartbeat),
                Err(_) => {}
            }
        }
        if !waits {
            let answers = refused.into_iter().map(|heartbeat| (heartbeat, None)).collect();
            return self.answer_batch(coordinator, host, batch, answers);
        }
        if !refused.is_empty() {
            session.refused.insert((host, batch), refused);
        }
        if session.round.is_none() {
            self.begin_round(coordinator);
        }
    }

    pub(super) fn answer_batch(
        &mut self,
        by: usize,
        host: usize,
        batch: BatchId,
        mut answers: Vec<(Heartbeat, Option<LeaseAnswer>)>,
    ) {
        let own = &mut self.quorum.coordinators[by];
        let Some(session) = &mut own.session else { return };
        let refused = session.refused.remove(&(host, batch)).unwrap_or_default();
        answers.extend(refused.into_iter().map(|heartbeat| (heartbeat, None)));
        let relays = relay_count(own.state.nodes_alive(), own.state.settings.relays_from);
        let withdrawn = answers.iter().flat_map(|(_, lease)| lease).map(|lease| lease.withdrawn.len() as u64);
        self.coverage.withdrawn += withdrawn.sum::<u64>();
        self.name_coordinators(by, host);
        let message = CoordinatorMessage::Judged { by, batch, answers, relays };
        self.send(End::Coordinator(by), End::Host(host), Event::CoordinatorMessage { host, message });
    }
}
