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
    /// The lease counts from when the newest heartbeat was sent, whichever is answered.
    AnswerForLatest = 52,
    /// An answer counts whatever member and life it names.
    LifeNotNamed = 52,
    /// An answer counts that was overtaken by the answer to a later heartbeat.
    OlderAnswerTaken = 53,
    /// Word that a life of a member is over ends whichever it lives.
    OverWithoutLife = 72,
}

archon_types::broken!();
