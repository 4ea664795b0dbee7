//! Heartbeats, and which answer belongs to which (PROTOCOL rules 14 and 52).

use crate::mutant::{Broken, Mutant};
use archon_types::{Epoch, Incarnation, Millis, NodeId, PartitionId};

/// How many of its last heartbeats a member remembers having sent: an answer to an earlier one grants nothing.
const REMEMBERED: u64 = 16;

/// The heartbeats of one life of a member: which were sent, and when. Several may be under way at a time, by several ways, so
/// their answers come in any order, twice or not at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Heartbeats {
    node: NodeId,
    incarnation: Incarnation,
    sent: u64,
    /// When the last ones were sent, on the local clock; each stands at its number, modulo how many are remembered.
    instants: [Millis; REMEMBERED as usize],
}

/// A heartbeat that was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Heartbeat {
    node: NodeId,
    incarnation: Incarnation,
    number: u64,
}

/// What a coordinator answered to a heartbeat, as far as the lease goes: one entry, whose parts never travel apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseAnswer {
    /// The member that it is given to.
    pub node: NodeId,
    /// Its life.
    pub incarnation: Incarnation,
    /// The number of the heartbeat that it answers.
    pub number: u64,
    /// How long the lease lasts, in milliseconds from when the heartbeat was sent.
    pub lease_ms: u64,
    /// Leaderships that the lease does not cover.
    pub withdrawn: Vec<(PartitionId, Epoch)>,
}

impl Heartbeats {
    /// No heartbeat of this life was sent yet.
    pub fn new(node: NodeId, incarnation: Incarnation) -> Self {
        Self { node, incarnation, ..Self::default() }
    }

    /// A heartbeat is about to be sent. The lease counts from `now`: before it can have left.
    pub const fn send(&mut self, now: Millis) -> Heartbeat {
        self.sent += 1;
        self.instants[(self.sent % REMEMBERED) as usize] = now;
        Heartbeat { node: self.node, incarnation: self.incarnation, number: self.sent }
    }

    /// When the heartbeat was sent that this answers; `None` if it is none of this life, or none that is remembered.
    pub(crate) fn sent(&self, answer: &LeaseAnswer, broken: Broken) -> Option<Millis> {
        let ours = (answer.node, answer.incarnation) == (self.node, self.incarnation);
        let number = if broken.breaks(Mutant::AnswerForLatest) { self.sent } else { answer.number };
        let remembered = (1..=self.sent).contains(&number) && self.sent - number < REMEMBERED;
        let known = remembered && (ours || broken.breaks(Mutant::LifeNotNamed));
        known.then(|| self.instants[(number % REMEMBERED) as usize])
    }
}

impl Heartbeat {
    /// The member that lives.
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// The life that it is a sign of.
    pub const fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Its number, which its answer echoes.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// The answer of a coordinator that heard it: a lease for so many milliseconds, and the leaderships it does not cover.
    pub const fn answer(&self, lease_ms: u64, withdrawn: Vec<(PartitionId, Epoch)>) -> LeaseAnswer {
        LeaseAnswer { node: self.node, incarnation: self.incarnation, number: self.number, lease_ms, withdrawn }
    }
}
