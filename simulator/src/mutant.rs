//! Rules that a run may break, one at a time, to prove that the checks can fail.

/// A rule of the shells around the pure code that can be broken: what the nodes' and coordinators' shells must see to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShellMutant {
    /// The lease counts from the receipt of the answer (rule 14).
    LeaseFromReceipt,
    /// The lease covers every leadership, withdrawn ones too (rule 15).
    NodeWideLease,
    /// A coordinator grants without a quorum round (rule 13).
    NoQuorumRound,
    /// The lease is checked first, the value read after (rule 17).
    LeaseCheckedFirst,
    /// What is read at the start is reported as durable without a sync (rule 20).
    UnsyncedTail,
    /// An answer leaves before its entry is committed.
    AnswerBeforeCommit,
    /// A sole copy answers writes without a lease (rule 17).
    AloneWithoutLease,
    /// A write is acknowledged before the disk has it.
    AckBeforeSync,
    /// Every retry carries a new number (rule 24).
    RetryRenumbered,
    /// A retry is stamped anew (rule 24).
    RetryRestamped,
    /// A copy is complete before its rows are synced.
    CopyUnsynced,
    /// A process that registered anew keeps its leaderships (rule 8).
    KeepsLeading,
}

/// One broken rule, wherever it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    /// In the shells, which here are the simulator's own.
    Shell(ShellMutant),
    /// In the replica.
    #[cfg(feature = "mutants")]
    Replica(archon_replica::Mutant),
    /// In the coordinator's core.
    #[cfg(feature = "mutants")]
    Core(archon_coordinator_core::Mutant),
    /// In what makes each operation take effect once.
    #[cfg(feature = "mutants")]
    Kv(archon_kv::Mutant),
}
