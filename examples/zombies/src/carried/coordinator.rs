//! The coordinator that leads: lives and leases by the product's own decisions. What it decides is committed at once.

use super::member::Beat;
use archon_coordinator_core::term::{Beat as Sign, Round, Unconfirmed};
use archon_coordinator_core::{Actor, ClusterState, Command, CommandBatch, Register, Response, Term, apply};
use archon_member::LeaseAnswer;
use archon_types::{
    BootId, ClusterId, ErrorDetail, Incarnation, LeaseTiming, Millis, NodeId, NodeStatus, Settings, StorageId,
};
use uuid::Uuid;

/// The term in which it leads.
const TERM: u64 = 1;

/// A command that begins the cluster was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a cluster of {members} members cannot be begun: {refusal}")]
pub struct NotTaken {
    /// How many there were to be.
    pub members: u32,
    /// Why not.
    pub refusal: Box<ErrorDetail>,
}

/// Heartbeats of one message, which wait for a quorum round.
#[derive(Debug)]
pub(super) struct Heard {
    round: Round,
    beats: Vec<(Beat, Unconfirmed)>,
}

pub(super) struct Coordinator {
    state: ClusterState,
    term: Term,
}

impl Coordinator {
    /// A cluster with so many members, and their lives in the order in which they registered.
    pub(super) fn new(members: u32) -> Result<(Self, Vec<(NodeId, Incarnation)>), NotTaken> {
        let began = Millis::new(1);
        let mut coordinator = Self { state: ClusterState::new(), term: Term::new(TERM, began) };
        let not_taken = |refusal| NotTaken { members, refusal: Box::new(refusal) };
        // Nobody is given a partition: leases are what this is about.
        let settings = Settings { nodes_min: u32::MAX, ..Settings::default() };
        let cluster = ClusterId::new(Uuid::from_u128(1));
        coordinator.commit(vec![Command::Bootstrap { cluster, settings }], began).map_err(not_taken)?;
        let registers = (1..=members).map(|number| {
            let id = Uuid::from_u128(number.into());
            let register = Register::new(
                format!("node-{number}"),
                format!("node-{number}:7201"),
                StorageId::new(id),
                BootId::new(id),
            );
            Command::Register(Box::new(register))
        });
        let responses = coordinator.commit(registers.collect(), began).map_err(not_taken)?;
        let lives = responses.into_iter().filter_map(|response| match response {
            Response::Registered { node, incarnation } => Some((node, incarnation)),
            _ => None,
        });
        Ok((coordinator, lives.collect()))
    }

    pub(super) fn cluster(&self) -> ClusterId {
        self.state.cluster
    }

    pub(super) const fn timing(&self) -> LeaseTiming {
        self.state.settings.timing
    }

    /// Heartbeats came. Whether it leads is asked from now on; [`answer`](Self::answer) is what follows when a majority says so.
    pub(super) fn hear(&mut self, beats: Vec<Beat>, now: Millis) -> Heard {
        let Self { state, term } = self;
        let taken = beats.into_iter().filter_map(|beat| {
            let sign = Sign {
                node: beat.0.node(),
                incarnation: beat.0.incarnation(),
                number: beat.0.number(),
                stopping: false,
            };
            // Whoever is failed would hear that it is, and register anew: that is not played.
            let unconfirmed = term.heartbeat(state, sign, now).ok().flatten()?;
            Some((beat, unconfirmed))
        });
        let beats = taken.collect();
        Heard { round: term.begin_round(), beats }
    }

    /// A majority said that it leads: the leases.
    pub(super) fn answer(&mut self, heard: Heard, now: Millis) -> Vec<LeaseAnswer> {
        let Self { state, term } = self;
        let Heard { round, beats } = heard;
        let confirmed = beats.into_iter().filter_map(|(beat, waits)| {
            let confirmed = term.confirmed(state, waits, round, Some(TERM))?;
            Some((beat, confirmed))
        });
        let (beats, confirmed): (Vec<_>, Vec<_>) = confirmed.unzip();
        let answers = term.answers(state, confirmed, now);
        let granted = beats.into_iter().zip(answers).filter_map(|(beat, answer)| {
            let answer = answer.ok()?;
            Some(beat.0.answer(answer.lease_ms, answer.withdrawn))
        });
        granted.collect()
    }

    /// A control turn. Returns who is failed by now, if that has changed, and when the next one is due.
    pub(super) fn turn(&mut self, now: Millis) -> (Vec<NodeId>, Millis) {
        let alive = self.state.nodes_alive();
        let turn = self.term.turn(&self.state, now);
        if !turn.commands.is_empty() {
            // What is refused was overtaken, and the next turn sees why.
            let _ = self.commit(turn.commands, now);
        }
        if self.state.nodes_alive() == alive {
            return (Vec::new(), turn.wake_at);
        }
        let failed = self.state.nodes.values().filter(|row| row.node.status == NodeStatus::Failed);
        (failed.map(|row| row.node.id).collect(), turn.wake_at)
    }

    fn commit(&mut self, commands: Vec<Command>, at: Millis) -> Result<Vec<Response>, ErrorDetail> {
        let batch = CommandBatch { request: None, at, who: Actor::Coordinator(1), proposer: 1, term: TERM, commands };
        let index = self.state.applied + 1;
        let responses = apply(&mut self.state, index, &batch);
        match responses.iter().find_map(Response::refusal) {
            Some(refusal) => Err(refusal.clone()),
            None => Ok(responses),
        }
    }
}
