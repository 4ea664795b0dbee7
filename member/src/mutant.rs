//! Rules of a member's session that a test can disable.

archon_types::mutants! {
    /// The lease starts when the answer is received.
    LeaseFromReceipt = 14,
    /// The lease covers every leadership, including withdrawn ones.
    NodeWideLease = 15,
    /// A partition that was acquired once counts as owned from then on.
    CheckBeforeUse = 28,
    /// A participant reports a lost partition as released.
    LostAsReleased = 28,
    /// A participant reports that it drops a partition before it releases it.
    DropTellsFirst = 28,
    /// The lease starts when the newest heartbeat was sent, regardless of the answered one.
    AnswerForLatest = 52,
    /// An answer counts for any member and incarnation.
    LifeNotNamed = 52,
    /// An answer counts after one to a newer heartbeat.
    OlderAnswerTaken = 53,
    /// A relay passes an answer to its member regardless of the incarnation.
    AnswerToAnotherLife = 65,
    /// A relay passes on a heartbeat of any age, repeatedly.
    OldBeatPassedOn = 66,
    /// A relay replaces a heartbeat by an older one that arrives later.
    OlderBeatTaken = 66,
    /// A member that once asked the coordinators directly never uses a relay again.
    DirectForEver = 67,
    /// A relay without an answering coordinator drops the carried heartbeats.
    BeatsNotKept = 68,
    /// A relay does not report that no coordinator answers.
    SilenceUntold = 68,
    /// Every member that learns of a silent coordinator asks all coordinators.
    AllAskThemselves = 68,
    /// A relay does not notify members that its rows show as fenced.
    OverUntold = 72,
    /// A fencing notice for any incarnation of a member ends the current one.
    OverWithoutLife = 72,
    /// A relay counts participants among the nodes that it carries for.
    ParticipantsCrowdOut = 81,
}

archon_types::broken!();
