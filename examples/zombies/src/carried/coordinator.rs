//! The leading coordinator: incarnations and leases by the product's own decisions. Its decisions are committed at
//! once.

use super::member::Beat;
use archon_coordinator_core::term::{Beat as Sign, Round, UnconfirmedHeartbeat};
use archon_coordinator_core::{Actor, ClusterState, Command, CommandBatch, Register, Response, Term, apply};
use archon_member::LeaseAnswer;
use archon_types::{
    BootId, ClusterId, ErrorDetail, Incarnation, LeaseTiming, Millis, NodeId, NodeStatus, Settings, StorageId,
};
use uuid::Uuid;

/// Term of its leadership.
const TERM: u64 = 1;

/// Error: a command that begins the cluster was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a cluster of {members} members cannot be begun: {refusal}")]
pub struct CommandRefusal {
    /// Requested number of members.
    pub members: u32,
    /// Reason.
    pub refusal: Box<ErrorDetail>,
}

/// Heartbeats of one message, which wait for a quorum round.
#[derive(Debug)]
pub(super) struct PendingHeartbeats {
    round: Round,
    beats: Vec<(Beat, UnconfirmedHeartbeat)>,
}

pub(super) struct Coordinator {
    state: ClusterState,
    term: Term,
}

impl Coordinator {
    /// Returns a cluster with this many members, and their incarnations in the order of registration.
    pub(super) fn new(members: u32) -> Result<(Self, Vec<(NodeId, Incarnation)>), CommandRefusal> {
        let began = Millis::new(1);
        let mut coordinator = Self { state: ClusterState::new(), term: Term::new(TERM, began) };
        let not_taken = |refusal| CommandRefusal { members, refusal: Box::new(refusal) };
        // No partitions are assigned: leases are the subject.
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

    /// Receives heartbeats. A quorum round starts now; [`answer`](Self::answer) follows when a majority confirms the
    /// leadership.
    pub(super) fn hear(&mut self, beats: Vec<Beat>, now: Millis) -> PendingHeartbeats {
        let Self { state, term } = self;
        let taken = beats.into_iter().filter_map(|beat| {
            let sign = Sign {
                doors: None,
                node: beat.0.node(),
                incarnation: beat.0.incarnation(),
                number: beat.0.number(),
                stopping: false,
            };
            // A failed member would be notified, and register again: that is not simulated.
            let unconfirmed = term.heartbeat(state, sign, now).ok().flatten()?;
            Some((beat, unconfirmed))
        });
        let beats = taken.collect();
        PendingHeartbeats { round: term.begin_round(), beats }
    }

    /// Returns the leases after a confirmed quorum round.
    pub(super) fn answer(&mut self, heard: PendingHeartbeats, now: Millis) -> Vec<LeaseAnswer> {
        let Self { state, term } = self;
        let PendingHeartbeats { round, beats } = heard;
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

    /// Runs a control turn. Returns the failed members, if they have changed, and the time of the next turn.
    pub(super) fn turn(&mut self, now: Millis) -> (Vec<NodeId>, Millis) {
        let alive = self.state.nodes_alive();
        let turn = self.term.turn(&self.state, now);
        if !turn.commands.is_empty() {
            // A refused command was overtaken, and the next turn sees the reason.
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
