//! Heartbeats and their matching answers (PROTOCOL rules 14 and 52).

use crate::mutant::{DisabledRule, Mutant};
use archon_types::{Epoch, Incarnation, Millis, NodeId, PartitionId};

/// Number of the newest heartbeats that a member remembers: an answer to an earlier one grants nothing.
const REMEMBERED: u64 = 16;

/// The sent heartbeats of one incarnation. Several may be in flight, along several ways, so their answers may arrive
/// in any order, twice or not at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Heartbeats {
    node: NodeId,
    incarnation: Incarnation,
    sent: u64,
    /// Times on the local clock when the newest ones were sent, each at its number modulo the array's length.
    instants: [Millis; REMEMBERED as usize],
}

/// A heartbeat that was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Heartbeat {
    node: NodeId,
    incarnation: Incarnation,
    number: u64,
}

/// The lease part of an answer to a heartbeat. Its fields belong together and must not be combined with those of
/// other answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseAnswer {
    /// The member that it is granted to.
    pub node: NodeId,
    /// The member's incarnation.
    pub incarnation: Incarnation,
    /// The number of the answered heartbeat.
    pub number: u64,
    /// Duration of the lease in milliseconds, from when the heartbeat was sent.
    pub lease_ms: u64,
    /// Leaderships that the lease does not cover.
    pub withdrawn: Vec<(PartitionId, Epoch)>,
}

impl Heartbeats {
    /// Starts without any heartbeat.
    pub fn new(node: NodeId, incarnation: Incarnation) -> Self {
        Self { node, incarnation, ..Self::default() }
    }

    /// Creates a heartbeat that is about to be sent. The lease starts at `now`, before the heartbeat can leave.
    pub const fn send(&mut self, now: Millis) -> Heartbeat {
        self.sent += 1;
        self.instants[(self.sent % REMEMBERED) as usize] = now;
        Heartbeat { node: self.node, incarnation: self.incarnation, number: self.sent }
    }

    /// Returns when the answered heartbeat was sent; `None` if it is not of this incarnation or not remembered.
    pub(crate) fn sent(&self, answer: &LeaseAnswer, broken: DisabledRule) -> Option<Millis> {
        let ours = (answer.node, answer.incarnation) == (self.node, self.incarnation);
        let number = if broken.breaks(Mutant::AnswerForLatest) { self.sent } else { answer.number };
        let remembered = (1..=self.sent).contains(&number) && self.sent - number < REMEMBERED;
        let known = remembered && (ours || broken.breaks(Mutant::LifeNotNamed));
        known.then(|| self.instants[(number % REMEMBERED) as usize])
    }
}

impl Heartbeat {
    /// Returns the member.
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// Returns the incarnation of the member.
    pub const fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Returns the number, which the answer echoes.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Creates a coordinator's answer: a lease of `lease_ms` milliseconds, and the leaderships it does not cover.
    pub const fn answer(&self, lease_ms: u64, withdrawn: Vec<(PartitionId, Epoch)>) -> LeaseAnswer {
        LeaseAnswer { node: self.node, incarnation: self.incarnation, number: self.number, lease_ms, withdrawn }
    }
}
