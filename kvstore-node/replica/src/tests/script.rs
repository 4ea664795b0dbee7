//! Helpers for tests that compare whole lists of outputs. Replica `n` is placement `n` on node `n`.

use super::coordinator::{PARTITION, row};
use crate::{
    Body, Configuration, Entry, Identity, Input, Limits, Message, Output, Peer, Position, RecoveredState, Replica,
    ReplicaAddress, Run, Timing,
};
use archon_types::{
    Epoch, Fact, Incarnation, Millis, NodeId, PartitionStatus, PlacementId, ReplicaName, ReplicaState, Report, Seq,
    Version,
};
use bytes::Bytes;

pub(super) fn address(number: u64) -> ReplicaAddress {
    ReplicaAddress { placement: PlacementId::new(number), node: NodeId::new(number), incarnation: Incarnation::new(1) }
}

pub(super) fn name(number: u64) -> ReplicaName {
    ReplicaName { placement: PlacementId::new(number), incarnation: Incarnation::new(1) }
}

pub(super) fn at(epoch: u64, seq: u64) -> Position {
    Position::new(Epoch::new(epoch), Seq::new(seq))
}

pub(super) fn entry(epoch: u64, seq: u64) -> Entry {
    Entry { at: at(epoch, seq), bytes: Bytes::from(format!("e{epoch}s{seq}")) }
}

/// Recovered state of a disk: entries of these epochs from position 1.
pub(super) fn recovered(epoch: u64, epochs: &[u64], commit: u64) -> RecoveredState {
    let mut runs: Vec<Run> = Vec::new();
    for (epoch, seq) in epochs.iter().zip(1..) {
        if runs.last().is_none_or(|run| run.epoch.get() != *epoch) {
            runs.push(Run { epoch: Epoch::new(*epoch), first: Seq::new(seq) });
        }
    }
    RecoveredState {
        epoch: Epoch::new(epoch),
        base: Position::ZERO,
        runs,
        last: Seq::new(epochs.len() as u64),
        commit: Seq::new(commit),
    }
}

pub(super) fn message(from: u64, to: u64, epoch: u64, body: Body) -> Message {
    Message { partition: PARTITION, from: address(from), to: address(to), epoch: Epoch::new(epoch), body }
}

/// One replica and its clock.
pub(super) struct Script {
    pub(super) replica: Replica,
    pub(super) now: Millis,
    own: u64,
}

impl Script {
    pub(super) fn new(own: u64, recovered: RecoveredState) -> Self {
        Self::with_limits(own, recovered, Limits::default())
    }

    pub(super) fn with_limits(own: u64, recovered: RecoveredState, limits: Limits) -> Self {
        let address = address(own);
        let identity = Identity {
            partition: PARTITION,
            placement: address.placement,
            node: address.node,
            incarnation: address.incarnation,
        };
        let replica = Replica::new(identity, recovered, limits).unwrap();
        let mut script = Self { replica, now: Millis::new(10_000), own };
        // It knows the locations of the others, and no leadership.
        let known =
            Configuration { row: row(0, 0, None, &[ReplicaState::Live; 4], 1), ..configuration((0, 0), 1, &[], 1) };
        assert_eq!(script.one(Input::Configure(known)), []);
        script
    }

    /// Runs the inputs of one turn; returns the outputs.
    pub(super) fn turn(&mut self, inputs: impl IntoIterator<Item = Input>) -> Vec<Output> {
        let mut out = Vec::new();
        for input in inputs {
            self.replica.step(self.now, input, &mut out);
        }
        self.replica.flush(self.now, &mut out);
        out
    }

    pub(super) fn one(&mut self, input: Input) -> Vec<Output> {
        self.turn([input])
    }

    pub(super) fn hear(&mut self, from: u64, epoch: u64, body: Body) -> Vec<Output> {
        let message = message(from, self.own, epoch, body);
        self.one(Input::Message(message))
    }

    pub(super) fn persisted(&mut self, token: u64) -> Vec<Output> {
        self.one(Input::Persisted { token })
    }

    pub(super) fn configure(
        &mut self,
        (epoch, version): (u64, u64),
        leader: u64,
        states: &[ReplicaState],
        min: u8,
    ) -> Vec<Output> {
        self.one(Input::Configure(configuration((epoch, version), leader, states, min)))
    }

    pub(super) fn tick_after(&mut self, millis: u64) -> Vec<Output> {
        self.now = self.now.plus(millis);
        self.one(Input::Tick)
    }

    /// Returns a message of this replica.
    pub(super) fn send(&self, to: u64, epoch: u64, body: Body) -> Output {
        Output::Send(message(self.own, to, epoch, body))
    }

    pub(super) fn report(&self, epoch: u64, version: u64, fact: Fact) -> Output {
        Output::Report(Report {
            partition: PARTITION,
            placement: PlacementId::new(self.own),
            epoch: Epoch::new(epoch),
            version: Version::new(version),
            fact,
        })
    }

    /// Replica 1, serving in epoch 1 at version 1 with an empty log; every Live replica holds it.
    pub(super) fn serving(states: &[ReplicaState], min: u8) -> Self {
        let mut script = Self::new(1, RecoveredState::default());
        script.configure((1, 1), 1, states, min);
        for (state, number) in states.iter().zip(1..).skip(1) {
            if *state == ReplicaState::Live {
                script.hear(number, 1, Body::Adopted { at: Position::ZERO, held: Seq::ZERO });
            }
        }
        let out = script.persisted(1);
        assert!(out.contains(&Output::Serve(true)), "{out:?}");
        script
    }

    pub(super) fn propose(&mut self, ticket: u64) -> Vec<Output> {
        self.one(Input::Propose { ticket, entry: Bytes::from(format!("w{ticket}")) })
    }
}

/// Configuration of a partition with a leader known to serve.
pub(super) fn configuration(at: (u64, u64), leader: u64, states: &[ReplicaState], min: u8) -> Configuration {
    let mut configuration = unheard(at, leader, states, min);
    configuration.row.status = PartitionStatus::Online;
    configuration
}

/// As [`configuration`], with a leader that the coordinator has not recorded yet.
pub(super) fn unheard((epoch, version): (u64, u64), leader: u64, states: &[ReplicaState], min: u8) -> Configuration {
    let row = row(epoch, version, Some(leader), states, min);
    let peers = row.placements.iter().map(|placement| {
        (placement.id, Peer { node: placement.node, incarnation: Incarnation::new(1), failed: false })
    });
    Configuration { peers: peers.collect(), row, timing: Timing::default() }
}
