//! One term of a coordinator: what it remembers while, and only while, it leads, and what it does with that. The coordinator's
//! process and the simulator's coordinators drive the same code: they bring heartbeats, reports and the time, ask the quorum for
//! rounds, and commit, push and answer what comes out.
//!
//! | file | holds |
//! |---|---|
//! | `mod` | who leads in it since when; control turns |
//! | `lease` | heartbeats, quorum rounds, leases |
//! | `reports` | what nodes report, and what proves the answer |
//! | `news` | what the answers to carried heartbeats bring in place of pushes |
//! | `pushes` | what a node acknowledged, what it lacks, what its answers mean |
//! | `polls` | what a participant that asks for its duties is told |
//! | `relaying` | who relays, for participants |
//! | `stall` | whether this coordinator can keep its word |

mod lease;
mod news;
mod polls;
mod pushes;
mod relaying;
mod reports;
mod stall;

pub use lease::{Beat, Confirmed, Round, Unconfirmed};
pub use news::{Awaited, News, news};
pub use polls::{Polled, Told, polled};
pub use pushes::{Acknowledged, Due, Piece, Pieces, Promise, Promised, Push};
pub use relaying::KnownRelays;
pub use reports::Reported;
pub use stall::Stall;

use crate::command::Command;
use crate::liveness::Liveness;
use crate::mutant::Mutant;
use crate::state::ClusterState;
use crate::turn::{Turn, turn};
use archon_types::{Incarnation, Millis, NodeId};
use std::collections::BTreeMap;

/// Longest pause between two control turns, in milliseconds.
pub const PAUSE_MAX_MS: u64 = 50;
/// Most activations that wait for the next control turn.
const ACTIVATIONS_MAX: usize = 20_000;

/// A Raft term in which a coordinator leads, across all its sessions. A new Raft term starts with an empty memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Term {
    number: u64,
    liveness: Liveness,
    /// Lives that were heard and are not on record as active yet.
    activations: BTreeMap<NodeId, Incarnation>,
    /// Quorum rounds that heartbeats waited for, so far.
    rounds: u64,
}

impl Term {
    /// The coordinator began to lead in term `number` at `now`: every timer begins at zero.
    pub fn new(number: u64, now: Millis) -> Self {
        Self { number, liveness: Liveness::new(now), activations: BTreeMap::new(), rounds: 0 }
    }

    /// A later session of this Raft term begins at `now`. Silence is counted from here, because no session ran in between.
    /// Failures and withdrawals that an earlier session decided stand: the commands that rest on them may still be committed
    /// (rule 15).
    pub fn resume(&mut self, state: &ClusterState, now: Millis) {
        match state.breaks(Mutant::TermForgotten) {
            true => self.liveness = Liveness::new(now),
            false => self.liveness.resume(now),
        }
    }

    /// Its number in Raft.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// What is remembered of lives and leases.
    pub const fn liveness(&self) -> &Liveness {
        &self.liveness
    }

    /// The wall clock shows `wall` now. By it only what people have given a time ends; leases never do.
    pub const fn set_wall(&mut self, now: Millis, wall: Millis) {
        self.liveness.set_wall(now, wall);
    }

    /// One control turn: what should be committed now, each command under its own guard, and when the next turn is due if
    /// the state does not change before.
    pub fn turn(&mut self, state: &ClusterState, now: Millis) -> Turn {
        let heard = std::mem::take(&mut self.activations);
        let mut commands: Vec<Command> =
            heard.into_iter().map(|(node, incarnation)| Command::Activate { node, incarnation }).collect();
        let turned = turn(state, &mut self.liveness, now);
        commands.extend(turned.commands);
        commands.extend(self.liveness.door_news().into_iter().map(Command::NoteDoor));
        Turn { commands, wake_at: turned.wake_at.min(now.plus(PAUSE_MAX_MS)) }
    }

    /// The turn of a quorum that cannot commit anything: the state is observed and nothing is decided. A decision changes what
    /// heartbeats are answered (rule 15), and without its command that change would last until the quorum has space again.
    pub fn observe(&mut self, state: &ClusterState, now: Millis) -> Turn {
        self.liveness.sync(state, now);
        Turn { commands: Vec::new(), wake_at: now.plus(PAUSE_MAX_MS) }
    }

    /// Retracts commands of a turn that never reached Raft: lives that they would have failed are answered again.
    pub fn retract(&mut self, commands: &[Command]) {
        for command in commands {
            if let Command::NodeFailed { node, incarnation, .. } = command {
                self.liveness.retract_failure(*node, *incarnation);
            }
        }
    }

    /// A node was heard in this life: the next turn commits that it acts in it. Returns whether that is news.
    fn activate(&mut self, node: NodeId, incarnation: Incarnation) -> bool {
        self.activations.len() < ACTIVATIONS_MAX && self.activations.insert(node, incarnation) != Some(incarnation)
    }
}
