//! One term of a coordinator: its volatile memory while it leads, and its work with that. The coordinator's process and
//! the simulator's coordinators drive the same code: they supply heartbeats, reports and the time, run quorum rounds,
//! and commit, push and send the results.
//!
//! | file | holds |
//! |---|---|
//! | `mod` | the term; control turns |
//! | `lease` | heartbeats, quorum rounds, leases |
//! | `reports` | reports of nodes, and the proof that answers need |
//! | `news` | table updates in the answers to relayed heartbeats, in place of pushes |
//! | `pushes` | data that a node acknowledged and lacks; meanings of its answers |
//! | `polls` | answers to participants' polls for duties |
//! | `relaying` | relays, for participants |
//! | `stall` | detection of a stalled coordinator |

mod lease;
mod pieces;
mod polls;
mod pushes;
mod relaying;
mod reports;
mod stall;
mod table_updates;

pub use lease::{Beat, ConfirmedHeartbeat, Round, UnconfirmedHeartbeat};
pub use pieces::{Piece, Pieces};
pub use polls::{Poll, PollAnswer, Polls};
pub use pushes::{HeartbeatSummary, Promise, PromisedPush, Push, PushProgress, PushStep, PushUrgency};
pub use relaying::KnownRelays;
pub use reports::ReportOutcomes;
pub use stall::Stall;
pub use table_updates::{AnswerDeadline, TableUpdates, news};

use crate::command::Command;
use crate::leader::turn::{Turn, turn};
use crate::liveness::Liveness;
use crate::mutant::Mutant;
use crate::state::ClusterState;
use archon_types::{Incarnation, Millis, NodeId};
use std::collections::BTreeMap;

/// Maximum pause between two control turns, in milliseconds.
pub const PAUSE_MAX_MS: u64 = 50;
/// Maximum number of activations that wait for the next control turn.
const ACTIVATIONS_MAX: usize = 20_000;

/// A Raft term in which a coordinator leads, across all its sessions. A new Raft term starts with an empty memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Term {
    number: u64,
    liveness: Liveness,
    /// Incarnations that sent heartbeats and are not recorded as active yet.
    activations: BTreeMap<NodeId, Incarnation>,
    /// Number of quorum rounds for heartbeats so far.
    rounds: u64,
}

impl Term {
    /// Creates the memory of a coordinator that began to lead in term `number` at `now`: every timer begins at zero.
    pub fn new(number: u64, now: Millis) -> Self {
        Self { number, liveness: Liveness::new(now), activations: BTreeMap::new(), rounds: 0 }
    }

    /// Begins a later session of this Raft term at `now`. Silence is counted from here, because no session ran in
    /// between. Failures and withdrawals decided by an earlier session stand: their commands may still be committed
    /// (rule 15).
    pub fn resume(&mut self, state: &ClusterState, now: Millis) {
        match state.breaks(Mutant::TermForgotten) {
            true => self.liveness = Liveness::new(now),
            false => self.liveness.resume(now),
        }
    }

    /// Returns its number in Raft.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Returns the memory of incarnations and leases.
    pub const fn liveness(&self) -> &Liveness {
        &self.liveness
    }

    /// Sets the wall clock. Only deadlines set by people depend on it, leases never.
    pub const fn set_wall(&mut self, now: Millis, wall: Millis) {
        self.liveness.set_wall(now, wall);
    }

    /// Runs one control turn: returns the commands to commit now, each under its own guard, and the time of the next
    /// turn if the state does not change before.
    pub fn turn(&mut self, state: &ClusterState, now: Millis) -> Turn {
        let heard = std::mem::take(&mut self.activations);
        let mut commands: Vec<Command> =
            heard.into_iter().map(|(node, incarnation)| Command::Activate { node, incarnation }).collect();
        let turned = turn(state, &mut self.liveness, now);
        commands.extend(turned.commands);
        commands.extend(self.liveness.door_news().into_iter().map(Command::NoteDoor));
        Turn { commands, wake_at: turned.wake_at.min(now.plus(PAUSE_MAX_MS)) }
    }

    /// Runs the turn of a quorum that cannot commit anything: it observes the state and decides nothing. A decision
    /// changes the answers to heartbeats (rule 15), and without its command that change would last until the quorum has
    /// space again.
    pub fn observe(&mut self, state: &ClusterState, now: Millis) -> Turn {
        self.liveness.sync(state, now);
        Turn { commands: Vec::new(), wake_at: now.plus(PAUSE_MAX_MS) }
    }

    /// Retracts commands of a turn that never reached Raft: incarnations that they would have failed are answered
    /// again.
    pub fn retract(&mut self, commands: &[Command]) {
        for command in commands {
            if let Command::NodeFailed { node, incarnation, .. } = command {
                self.liveness.retract_failure(*node, *incarnation);
            }
        }
    }

    /// Records a heartbeat of this incarnation: the next turn commits its activation. Returns true if that is new.
    fn activate(&mut self, node: NodeId, incarnation: Incarnation) -> bool {
        self.activations.len() < ACTIVATIONS_MAX && self.activations.insert(node, incarnation) != Some(incarnation)
    }
}
