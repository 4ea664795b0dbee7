//! The rules of a node's partitions that a test can take away.

archon_types::mutants! {
    /// An answer leaves with the next commit, whatever that covers.
    AnswerUncommitted = 0,
    /// Pages are given by a copy that leads no more, and may be emptied meanwhile.
    CopyUnchecked = 0,
    /// A node that registered anew keeps its leaderships.
    KeepsLeading = 8,
    /// The lease counts from the receipt of the answer.
    LeaseFromReceipt = 14,
    /// The lease covers every leadership, withdrawn ones too.
    NodeWideLease = 15,
    /// The lease is checked first, the value read after.
    LeaseCheckedFirst = 17,
    /// A sole copy answers without a lease.
    AloneWithoutLease = 17,
    /// It is not said that a copy has thrown its data away.
    EmptiedUnreported = 19,
    /// What no duty names is deleted.
    UnnamedDeleted = 22,
    /// A write that was abandoned is said to have changed nothing.
    AbandonedChangedNothing = 24,
    /// A copy leads that holds a part of its partition.
    PartLeads = 27,
}

/// The rule that is taken away. In a product build there is none, and nothing is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Broken {
    #[cfg(any(test, feature = "mutants"))]
    mutant: Option<Mutant>,
}

impl Broken {
    /// Takes a rule away.
    #[cfg(any(test, feature = "mutants"))]
    pub const fn by(mutant: Option<Mutant>) -> Self {
        Self { mutant }
    }

    #[cfg(any(test, feature = "mutants"))]
    pub(crate) fn breaks(self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    #[cfg(not(any(test, feature = "mutants")))]
    pub(crate) const fn breaks(self, _: Mutant) -> bool {
        false
    }
}
