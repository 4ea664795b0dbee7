//! The rules of a node's partitions that a test can take away.

archon_types::mutants! {
    /// An answer leaves with the next commit, whatever that covers.
    AnswerUncommitted = 0,
    /// The log kept for other copies is reviewed only after syncs of the engine.
    RetentionUnreviewed = 0,
    /// Pages are given by a copy that leads no more, and may be emptied meanwhile.
    CopyUnchecked = 0,
    /// A node that registered anew keeps its leaderships.
    KeepsLeading = 8,
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
    /// An operation that is passed on gets another name.
    ForwardRenamed = 32,
    /// What another node passed on is passed on again.
    ForwardedAgain = 32,
    /// A stale read shows what is not committed.
    StaleShowsOpen = 33,
    /// A copy that does not count answers stale reads.
    StaleWhileLoading = 33,
    /// A copy answers stale reads that does not know which of its rows are committed.
    StaleBeyondCommit = 33,
    /// A leader that takes over does not read what its log gives away.
    SealForgotten = 35,
    /// Reads go on of keys that the log has given away.
    ReadsWhileSealed = 35,
    /// Writes of keys that the log gives away go on until that is committed.
    SealAtCommit = 35,
    /// A read that arrived before its key was given away is answered after that.
    ReadNotRechecked = 35,
    /// A copy serves keys that its row gives to another partition.
    BeyondServed = 37,
    /// What was given away is taken back when somebody has waited long enough for it.
    SealGivenUp = 36,
    /// A copy is formed of what is not committed.
    FormedEarly = 38,
    /// The log of a copy that is formed begins anew, and revisions with it.
    RevisionRestarts = 38,
    /// The keys are cleared while the row still says that they are to go.
    ClearEarly = 41,
    /// Whoever asks for a key that was given away is sent on before the records are looked into.
    OwnerFirst = 42,
    /// Whoever asks for a key is sent on as soon as the log has given it away.
    MovedBeforePart = 42,
    /// Rows are given to the left neighbour before the log has given them away.
    PullUnsealed = 45,
    /// Keys are absorbed over what an earlier attempt left.
    AbsorbOverRemains = 46,
    /// A page is written into the log as one entry, however many rows it has.
    PageUncut = 46,
    /// It is said that keys were absorbed before that is committed.
    AbsorbedEarly = 47,
    /// A copy shows keys that its row gives it before its log has them.
    StaleUnabsorbed = 48,
    /// Keys are served as soon as they are absorbed, although the row does not give them yet.
    WidenUnabsorbed = 48,
    /// Revisions begin anew where the log's positions are lower than those of what was absorbed.
    RevisionFalls = 49,
    /// A copy takes in entries after it told where its log ends.
    InspectedMoves = 61,
    /// A copy with an entry that its version does not read is taken for damaged.
    UnreadableDamaged = 64,
    /// What was sent on when its key was another partition's is done when it comes late.
    MovedThroughKept = 50,
}

archon_types::broken!();
