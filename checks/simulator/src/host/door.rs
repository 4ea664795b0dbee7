//! Reachability of machines.

/// Kind of unreachability of a live machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unreachability {
    /// Incoming packets are dropped on the way, or wait in a queue that is not read.
    Dropped,
    /// Connections are refused.
    Refused,
    /// Shards take turns, and none of their answers leaves.
    Unanswered,
}

/// Reachability of a machine for clients and probers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Door {
    /// Kind of unreachability for all, and its end.
    pub(crate) shut: Option<(Unreachability, u64)>,
    /// One machine that does not reach it, and its end.
    pub(crate) shut_to: Option<(usize, u64)>,
}

impl Door {
    /// Returns the kind of unreachability for all at this instant.
    pub(crate) fn shut_at(&self, truth: u64) -> Option<Unreachability> {
        self.shut.filter(|(_, until)| truth < *until).map(|(shut, _)| shut)
    }

    pub(crate) fn shut_to(&self, keeper: usize, truth: u64) -> Option<Unreachability> {
        let one = self.shut_to.filter(|(to, until)| *to == keeper && truth < *until).map(|_| Unreachability::Dropped);
        self.shut_at(truth).or(one)
    }
}
