//! Heartbeats and their answers: each answer is a lease, given only after a quorum round that began after the heartbeat
//! arrived (PROTOCOL rules 13 to 16 and 54 to 56). The types follow these steps: only a round turns an
//! [`UnconfirmedHeartbeat`] into a [`ConfirmedHeartbeat`], and only a [`ConfirmedHeartbeat`] is answered. One round
//! serves all heartbeats that arrived before it.

use super::Term;
use crate::liveness::HeartbeatAnswer;
use crate::mutant::Mutant;
use crate::state::ClusterState;
use archon_types::{DoorReport, ErrorDetail, Incarnation, Millis, NodeId};

/// A heartbeat, reduced to the fields that a term uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Beat<'a> {
    /// The member.
    pub node: NodeId,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Rises with each heartbeat of an incarnation.
    pub number: u64,
    /// The node is about to exit.
    pub stopping: bool,
    /// Results of its probes, which count if the heartbeat is accepted.
    pub doors: Option<&'a DoorReport>,
}

/// An accepted heartbeat. Its answer waits for a quorum round that begins from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a quorum round may confirm it"]
pub struct UnconfirmedHeartbeat {
    node: NodeId,
    incarnation: Incarnation,
    turn_due: bool,
    /// The last round that began before it arrived.
    after: u64,
}

impl UnconfirmedHeartbeat {
    /// Returns true if a control turn should follow at once.
    pub const fn turn_due(&self) -> bool {
        self.turn_due
    }
}

/// A quorum round that has begun. It proves nothing about later arrivals.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[must_use = "a majority is to be asked"]
pub struct Round(u64);

/// A heartbeat that may be answered: since it arrived, a majority has confirmed that this coordinator leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "it is to be answered at once"]
pub struct ConfirmedHeartbeat {
    node: NodeId,
    incarnation: Incarnation,
}

impl Term {
    /// Accepts a heartbeat that arrived at `now`. `None`: it is repeated or overtaken, and not answered (rule 56).
    ///
    /// # Errors
    /// Like [`crate::Liveness::heard`].
    pub fn heartbeat(
        &mut self,
        state: &ClusterState,
        beat: Beat<'_>,
        now: Millis,
    ) -> Result<Option<UnconfirmedHeartbeat>, ErrorDetail> {
        let Beat { node, incarnation, number, stopping, doors } = beat;
        if !self.liveness.heard(state, node, incarnation, number, now)? {
            return Ok(None);
        }
        if let Some(report) = doors {
            self.liveness.note_doors(node, incarnation, report.clone(), now);
        }
        let mut turn_due = stopping && self.liveness.note_stopping(node, incarnation);
        // A node sends heartbeats only once its incarnation is on its disk.
        if state.node(node).is_some_and(|row| row.activated != Some(incarnation)) {
            turn_due |= self.activate(node, incarnation);
        }
        Ok(Some(UnconfirmedHeartbeat { node, incarnation, turn_due, after: self.rounds }))
    }

    /// Begins a round that asks a majority whether this coordinator leads. It covers only earlier arrivals.
    pub const fn begin_round(&mut self) -> Round {
        self.rounds += 1;
        Round(self.rounds)
    }

    /// Returns true if a round began after this heartbeat had arrived (rule 54).
    pub fn covers(&self, state: &ClusterState, round: Round, heartbeat: UnconfirmedHeartbeat) -> bool {
        heartbeat.after < round.0 || state.breaks(Mutant::RoundShared)
    }

    /// Ends a quorum round: a majority confirmed that this coordinator leads in term `led`, or no majority answered.
    /// `None`: the heartbeat is not answered from here (rule 13), or not after this round (rule 54).
    pub fn confirmed(
        &self,
        state: &ClusterState,
        heartbeat: UnconfirmedHeartbeat,
        round: Round,
        led: Option<u64>,
    ) -> Option<ConfirmedHeartbeat> {
        let UnconfirmedHeartbeat { node, incarnation, .. } = heartbeat;
        let leads = led == Some(self.number) || state.breaks(Mutant::NoQuorumRound);
        (leads && self.covers(state, round, heartbeat)).then_some(ConfirmedHeartbeat { node, incarnation })
    }

    /// Returns the answers to heartbeats, one for each and in their order, from the state that their round confirmed or
    /// a later one, to be sent at once. All are recorded before any is sent (rule 55): a successor is named only when
    /// the records allow it.
    ///
    /// # Errors
    /// For each like [`Liveness::heard`](crate::Liveness::heard); then no lease is granted.
    pub fn answers(
        &mut self,
        state: &ClusterState,
        heartbeats: impl IntoIterator<Item = ConfirmedHeartbeat>,
        now: Millis,
    ) -> Vec<Result<HeartbeatAnswer, ErrorDetail>> {
        let mut unnoted = false;
        let mut answer = |ConfirmedHeartbeat { node, incarnation }| {
            let given = match unnoted {
                true => self.liveness.judge(state, node, incarnation, now),
                false => self.liveness.answer(state, node, incarnation, now),
            };
            unnoted = state.breaks(Mutant::AnsweredPerRound); // rule 55
            given
        };
        heartbeats.into_iter().map(&mut answer).collect()
    }
}
