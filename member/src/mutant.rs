//! The rules of a member's session that a test can take away.

archon_types::mutants! {
    /// The lease counts from the receipt of the answer.
    LeaseFromReceipt = 14,
    /// The lease covers every leadership, withdrawn ones too.
    NodeWideLease = 15,
}

archon_types::broken!();
