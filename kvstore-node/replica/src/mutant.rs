//! Rules of the data plane that a test can disable, named as in the protocol model where it has them. Zero stands for a
//! property without a numbered rule.

archon_types::mutants! {
    /// A leader stops counting a follower when it asks to drop it, not when it knows the answer.
    SelfShrink = 1,
    /// Writes are admitted and committed while fewer than `min_in_sync` are Live.
    CommitBelowMin = 2,
    /// `min_in_sync` is judged with a joiner that is only requested.
    MinCountsJoiner = 2,
    /// A new leader serves while fewer than `min_in_sync` are Live.
    TakeoverBelowMin = 2,
    /// A leader without a lease confirms reads while fewer than `min_in_sync` are Live.
    NoLeaseBelowMin = 2,
    /// A leader keeps admitting writes that too few followers can acknowledge.
    AdmitStalled = 2,
    /// A joiner counts only once the leader knows the answer.
    JoinerNotCounted = 3,
    /// A leader stops counting a joiner because no answer came.
    JoinerGivenUp = 3,
    /// A leader takes a configuration that it knew already for the answer to its request.
    AnswerNotRisen = 3,
    /// An older configuration replaces a newer one.
    ConfigGoesBack = 4,
    /// A leader requests additions while it has no lease.
    AskWithoutLease = 5,
    /// A request names one silent follower only.
    NamesOneSilent = 6,
    /// A refused or undone request is repeated at once.
    NoBackoff = 6,
    /// A restarted leader continues in an epoch that it had persisted.
    ResumeEpoch = 8,
    /// A node with a new incarnation still believes that it leads.
    LeadsInNextLife = 8,
    /// A follower acknowledges an epoch that it did not persist.
    EpochVolatile = 9,
    /// A new leader serves before its followers hold its log.
    ServeEarly = 9,
    /// A joiner requested during a take-over need not hold the whole log.
    TakeoverJoinerShort = 9,
    /// A follower matches by number only and cuts nothing.
    NoCut = 10,
    /// A follower commits beyond what it matched with this leader.
    CommitUnmatched = 10,
    /// A follower cuts entries that it knows to be committed, without an alarm.
    CutCommitted = 10,
    /// A follower accepts a leader of an epoch below the highest it persisted.
    FollowOldEpoch = 10,
    /// A replica counts as level before it knows committed the log with which its leader began.
    LevelBeforeStart = 33,
    /// A replica accepts messages for another placement or another incarnation.
    StaleAddressee = 10,
    /// A follower accepts a higher epoch from any sender, also from one outside its row.
    FollowStranger = 25,
    /// A replica accepts epochs that no leader can have reached.
    AnyEpochBelieved = 25,
    /// The first sender in an epoch is its leader, even against the row.
    FirstHeardStays = 25,
    /// A leader ended by a higher epoch does not report it, and waits for a row that never comes.
    OvertakenUnreported = 25,
    /// Answers given under another epoch count.
    AckOfOtherEpoch = 11,
    /// Answers given by another incarnation of the same placement count.
    AckOfOtherLife = 11,
    /// A leader serves again in an epoch that it has released.
    ReleaseUndone = 12,
    /// A leader releases before pending proposals are committed.
    ReleaseEarly = 12,
    /// A sole in-sync copy answers a read without a lease.
    AloneWithoutLease = 17,
    /// A confirm round that began before the read counts for it.
    ConfirmReused = 18,
    /// A confirm round does not ask a joiner with an unknown answer.
    ConfirmSkipsJoiner = 18,
    /// A confirm round asks one follower only.
    ConfirmOne = 18,
    /// The answer to any round counts for the present one.
    ConfirmAnyRound = 18,
    /// A follower confirms a leader although it knows a higher epoch.
    ConfirmBlindly = 18,
    /// The first leader of a partition serves before the coordinator has recorded that it leads.
    ServeUnheard = 19,
    /// Data sent to the disk counts as durable.
    AckUndurable = 20,
    /// A restarted replica takes its whole log for committed.
    TailCommitted = 20,
    /// A leader commits, and so answers, entries that only it holds.
    AnswerBeforeCommit = 0,
    /// A leader requests a loader that lacks entries committed since its last page.
    PromoteShort = 0,
    /// A copy that was pulled again counts by a row from before.
    CountsByOldRow = 0,
    /// A copy continues although its source no longer leads the epoch it began in.
    KeepsOrphanedCopy = 0,
}
