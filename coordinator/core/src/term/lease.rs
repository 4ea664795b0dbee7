//! Heartbeats and what they are answered with: each answer is a lease, given only after a quorum round that began after
//! the heartbeat arrived (PROTOCOL rules 13 to 16). The types go with these steps: nothing but a round makes a
//! [`Confirmed`] of an [`Unconfirmed`], and only a [`Confirmed`] is answered.

use super::Term;
use crate::liveness::HeartbeatAnswer;
use crate::mutant::Mutant;
use crate::state::ClusterState;
use archon_types::{ErrorDetail, ErrorKind, Incarnation, Millis, NodeId};

/// A heartbeat that was taken in. Its answer waits for a quorum round that begins from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a quorum round may confirm it"]
pub struct Unconfirmed {
    node: NodeId,
    incarnation: Incarnation,
    turn_due: bool,
}

impl Unconfirmed {
    /// Whether it told something that a control turn should follow at once.
    pub const fn turn_due(&self) -> bool {
        self.turn_due
    }
}

/// A heartbeat that may be answered: since it arrived, a majority has confirmed that this coordinator leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "it is to be answered at once"]
pub struct Confirmed {
    node: NodeId,
    incarnation: Incarnation,
}

impl Term {
    /// A heartbeat arrived at `now`. `stopping`: the node says that it is about to exit.
    ///
    /// # Errors
    /// As [`crate::Liveness::heard`].
    pub fn heartbeat(
        &mut self,
        state: &ClusterState,
        node: NodeId,
        incarnation: Incarnation,
        stopping: bool,
        now: Millis,
    ) -> Result<Unconfirmed, ErrorDetail> {
        self.liveness.heard(state, node, incarnation, now)?;
        let mut turn_due = stopping && self.liveness.note_stopping(node, incarnation);
        // A node heartbeats only once its incarnation is on its disk.
        if state.node(node).is_some_and(|row| row.activated != Some(incarnation)) {
            turn_due |= self.activate(node, incarnation);
        }
        Ok(Unconfirmed { node, incarnation, turn_due })
    }

    /// A quorum round that began after this heartbeat had arrived is over: a majority said that this coordinator leads in
    /// term `led`, or no majority answered. `None`: the heartbeat is not answered from here (rule 13).
    pub fn confirmed(&self, state: &ClusterState, heartbeat: Unconfirmed, led: Option<u64>) -> Option<Confirmed> {
        let Unconfirmed { node, incarnation, .. } = heartbeat;
        let leads = led == Some(self.number) || state.breaks(Mutant::NoQuorumRound);
        leads.then_some(Confirmed { node, incarnation })
    }

    /// The answer to a heartbeat, from the state that its round confirmed or a later one, to be sent at once.
    ///
    /// # Errors
    /// `StaleIncarnation`: that life is over, or its failure is being decided, so no lease is given. The node should
    /// register again.
    pub fn answer(
        &mut self,
        state: &ClusterState,
        heartbeat: Confirmed,
        now: Millis,
    ) -> Result<HeartbeatAnswer, ErrorDetail> {
        let Confirmed { node, incarnation } = heartbeat;
        self.liveness.answer(state, node, incarnation, now).ok_or_else(|| {
            let message = format!("incarnation {incarnation} of node {node} is over; register again");
            ErrorDetail::new(ErrorKind::StaleIncarnation, message)
        })
    }
}
