//! Heartbeats, and which answer belongs to which (PROTOCOL rule 14).

use archon_types::{Epoch, Incarnation, Millis, PartitionId};

/// The heartbeats of one life of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Heartbeats {
    incarnation: Incarnation,
    sent: u64,
}

/// A heartbeat that was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Heartbeat {
    incarnation: Incarnation,
    number: u64,
    at: Millis,
}

/// What a coordinator answered to a heartbeat, as far as the lease goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseAnswer {
    /// The life that it is given to.
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
    pub const fn new(incarnation: Incarnation) -> Self {
        Self { incarnation, sent: 0 }
    }

    /// A heartbeat is about to be sent. The lease counts from `now`: before it can have left.
    pub const fn send(&mut self, now: Millis) -> Heartbeat {
        self.sent += 1;
        Heartbeat { incarnation: self.incarnation, number: self.sent, at: now }
    }
}

impl Heartbeat {
    /// The life that it is a sign of.
    pub const fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Its number, which its answer echoes.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// When it was sent, on the local clock.
    pub const fn sent(&self) -> Millis {
        self.at
    }

    /// The answer of a coordinator that heard it: a lease for so many milliseconds, and the leaderships it does not cover.
    pub const fn answer(&self, lease_ms: u64, withdrawn: Vec<(PartitionId, Epoch)>) -> LeaseAnswer {
        LeaseAnswer { incarnation: self.incarnation, number: self.number, lease_ms, withdrawn }
    }

    /// Whether this is the answer to it.
    pub(crate) fn is_answered_by(&self, answer: &LeaseAnswer) -> bool {
        (answer.incarnation, answer.number) == (self.incarnation, self.number)
    }
}
