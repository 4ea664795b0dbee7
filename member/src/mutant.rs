//! The rules of a member's session that a test can take away.

archon_types::mutants! {
    /// The lease counts from the receipt of the answer.
    LeaseFromReceipt = 14,
    /// The lease covers every leadership, withdrawn ones too.
    NodeWideLease = 15,
    /// What a participant acquired once counts as owned from then on.
    CheckBeforeUse = 28,
    /// What a participant has lost is told as if it had been released.
    LostAsReleased = 28,
    /// A participant says that it drops a partition, and releases it after.
    DropTellsFirst = 28,
}

archon_types::broken!();
