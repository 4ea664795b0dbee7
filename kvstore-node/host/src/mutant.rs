//! Rules of a node's partitions that a test can disable.

archon_types::mutants! {
    /// The next commit releases an answer, even one below its position.
    AnswerUncommitted = 0,
    /// The log kept for other copies is reviewed only after syncs of the engine.
    RetentionUnreviewed = 0,
    /// Pages are served by a copy that no longer leads and may be cleared meanwhile.
    CopyUnchecked = 0,
    /// A node keeps its leaderships after it registers again.
    KeepsLeading = 8,
    /// The lease is checked first, the value read after.
    LeaseCheckedFirst = 17,
    /// A sole copy answers without a lease.
    AloneWithoutLease = 17,
    /// A reset copy is not reported.
    EmptiedUnreported = 19,
    /// Copies that no duty names are deleted.
    UnnamedDeleted = 22,
    /// An abandoned write is reported to have changed nothing.
    AbandonedChangedNothing = 24,
    /// A partial copy leads.
    PartLeads = 27,
    /// A forwarded operation gets another name.
    ForwardRenamed = 32,
    /// A forwarded operation is forwarded again.
    ForwardedAgain = 32,
    /// A stale read shows uncommitted rows.
    StaleShowsOpen = 33,
    /// A copy that is not in sync answers stale reads.
    StaleWhileLoading = 33,
    /// A copy answers stale reads before it knows which of its rows are committed.
    StaleBeyondCommit = 33,
    /// A copy answers reads with a bound however long ago its leader was heard.
    ReplicaUnheard = 33,
    /// A copy answers reads with a bound without a lease of its node.
    ReplicaUnleased = 33,
    /// A leader that takes over ignores the seal in its log.
    SealForgotten = 35,
    /// Reads of sealed keys continue.
    ReadsWhileSealed = 35,
    /// Writes of sealed keys continue until the seal is committed.
    SealAtCommit = 35,
    /// A read that arrived before its key was sealed is answered after that.
    ReadNotRechecked = 35,
    /// A copy serves keys that its row gives to another partition.
    BeyondServed = 37,
    /// A seal is lifted once an operation has waited long enough for it.
    SealGivenUp = 36,
    /// A copy is formed of uncommitted rows.
    FormedEarly = 38,
    /// The log of a formed copy starts over, and revisions with it.
    RevisionRestarts = 38,
    /// Sealed keys are cleared while the row still has the split in progress.
    ClearEarly = 41,
    /// A retry on a key given away is redirected before the client records are checked.
    OwnerFirst = 42,
    /// An operation is redirected as soon as the log seals its key.
    MovedBeforePart = 42,
    /// Rows are given to the left neighbour before the log seals them.
    PullUnsealed = 45,
    /// Keys are merged in over remains of an earlier attempt.
    AbsorbOverRemains = 46,
    /// A page is written to the log as one entry, however many rows it has.
    PageUncut = 46,
    /// A merge is reported before its last entry is committed.
    AbsorbedEarly = 47,
    /// A copy shows keys that its row gives it before its log has them.
    StaleUnabsorbed = 48,
    /// Merged-in keys are served before the row gives them.
    WidenUnabsorbed = 48,
    /// Revisions restart where the log's positions are lower than those of the merged-in rows.
    RevisionFalls = 49,
    /// A copy accepts entries after it reported the end of its log.
    InspectedMoves = 61,
    /// A copy with an entry that its version cannot read counts as damaged.
    UnreadableDamaged = 64,
    /// A read answers that a value has expired without an entry that decides it.
    ExpiryUnlogged = 84,
    /// Reads compare expiries with the leader's clock, even if it is behind the log time.
    ExpiryByClock = 84,
    /// A read that gets an entry is evaluated over committed rows, as if no write were before that entry.
    ExpiryOfCommitted = 84,
    /// A merge does not raise the log time to that of the rows that it takes in.
    ExpiryUnmerged = 85,
    /// Rows are removed as expired without looking at them again.
    RemovedUnseen = 86,
    /// The writes of a transaction are divided into two entries.
    TransactionInParts = 87,
    /// An operation redirected while its key belonged to another partition is executed when it arrives late.
    MovedThroughKept = 50,
}

archon_types::broken!();
