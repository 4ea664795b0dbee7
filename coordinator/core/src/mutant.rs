//! Rules of the coordinator that tests can disable; named after the protocol model where it has them.

archon_types::mutants! {
    /// A leader's request is compared with the row's epoch only, not with its version.
    NoVersionCheck = 1,
    /// Any replica may ask for changes of the Live set, not only the leader.
    AnyoneAsks = 1,
    /// A drop is granted although fewer than `min_in_sync` are left.
    DropBelowMin = 2,
    /// A request that is refused leaves the version as it is.
    RefusalKeepsVersion = 3,
    /// A node that acknowledged its duties once gets no others.
    DutiesSaidOnce = 4,
    /// An addition ignores the joiner's incarnation.
    ExpandUnchecked = 5,
    /// A drop ignores the follower's incarnation.
    DropUnchecked = 5,
    /// A copy is removed although too few Live copies on nodes that are alive are left.
    CleanupBelowMin = 7,
    /// A copy that was in sync is deleted although too few Live copies on nodes that are alive are left.
    LastCopyGoes = 7,
    /// A cancelled migration is undone although the leadership has moved.
    UndoAfterHandOver = 7,
    /// Registration leaves the leaderships of the former incarnation as they are.
    LeadershipSurvives = 8,
    /// A replica that is not Live is elected.
    ElectAnyone = 9,
    /// A release counts for the epoch that the reporter leads by now.
    StaleRelease = 12,
    /// A coordinator grants without a quorum round.
    NoQuorumRound = 13,
    /// A new coordinator does not wait for leases that an earlier one granted.
    CoordinatorForgets = 13,
    /// A heartbeat is answered without the list of withdrawn leaderships.
    NodeWideLease = 15,
    /// An incarnation is answered although its failure is proposed.
    GrantWhileDeciding = 15,
    /// A coordinator's next session in a Raft term forgets the earlier one.
    TermForgotten = 15,
    /// A successor is elected without regard to the answers given to the holder.
    ElectForgets = 16,
    /// The state does not keep the former holder when a node registers.
    FormerForgotten = 16,
    /// A node is failed a time-out after its last heartbeat, not after its last answer.
    FailFromHeard = 16,
    /// The length of leases changes while some run.
    LeaseChanges = 16,
    /// An election is committed although the row has changed since it was decided.
    ElectStale = 16,
    /// Another data directory takes over the name, and the old one's copies stay Live.
    WipedStaysLive = 19,
    /// A copy that its node does not list as whole stays Live.
    UnheldStaysLive = 19,
    /// The copies in an older or cloned directory stay Live.
    OtherCopyStaysLive = 19,
    /// The same process that registers again begins another incarnation.
    BootForgotten = 19,
    /// A copy that was lost or damaged is hosted like one that was merely dropped.
    LostCopyHosted = 22,
    /// A second change of the quorum replaces the one in progress.
    SecondChangeTaken = 57,
    /// A newcomer becomes a voter before it has the log.
    NewcomerUnready = 57,
    /// A leading coordinator that is to leave does not give way first.
    LeaderStays = 57,
    /// A member is forgotten while its vote still counts.
    VoterForgotten = 57,
    /// A coordinator is heard under its number with any directory.
    OtherDirectoryHeard = 58,
    /// The number of a coordinator that was removed is given to a newcomer.
    RetiredReturns = 58,
    /// A newcomer is admitted with a copy of another one's directory.
    CopiedDirectoryJoins = 58,
    /// Messages of coordinators that are no members are heard.
    StrangerHeard = 59,
    /// A newcomer with old members at the beginning of its log does not hear those that admitted it.
    ExpectedForgotten = 59,
    /// A coordinator for which a member vouches is not heard.
    VouchedIgnored = 59,
    /// A removed coordinator counts as a member if a laggard vouches for it.
    RemovedVouched = 59,
    /// During a recovery a directory is judged by the node's last activated incarnation, of any generation.
    OlderByRow = 61,
    /// The rows of recovered state are trusted, regardless of the nodes' reports.
    RowsTrusted = 62,
    /// Recovered state is trusted before every node was heard.
    SettledUnheard = 62,
    /// A node that has lived in a later generation is admitted.
    LaterGenerationTaken = 60,
    /// A recovery takes members in before it has taken over from the former coordinators.
    TakenWhileStandingBy = 60,
    /// The protocol rises although a member does not speak the next one.
    RaisedOverOlder = 63,
    /// A raise in progress is carried out although an operator has ordered a hold meanwhile.
    HoldOverridden = 63,
    /// Members register with any protocol.
    AnyProtocolRegisters = 64,
    /// A forced election leaves the other copies as they are.
    LossKeepsOthers = 23,
    /// A leadership is granted although a copy is known to have seen a higher epoch.
    GrantBelowKnown = 25,
    /// Any epoch that a copy reports is passed, even the last one there is.
    AnyEpochGranted = 25,
    /// The deletion of the copies of a dropped table is not ordered.
    CondemnedForgotten = 26,
    /// A node that begins another incarnation need not delete copies that were dropped before.
    CondemnedEndsWithLife = 26,
    /// The leaderships of a dropped table are not withdrawn.
    DroppedStillLed = 26,
    /// A split is begun, done or abandoned although the row changed since that was decided.
    PartUnguarded = 34,
    /// A partition that is split off has its keys, and the split one keeps them too.
    GapAllowed = 34,
    /// The number of an abandoned new partition is given to the next one.
    NumberReused = 34,
    /// A copy that was formed in an earlier split counts for this one.
    FormedStale = 39,
    /// A copy counts as formed although its node began another incarnation.
    FormedLost = 39,
    /// A split is done although too few copies are formed.
    PartBelowMin = 40,
    /// A copy of the partition that is split off counts although it is not formed.
    RightShort = 40,
    /// The epochs of the partition that is split off restart.
    RightEpochRestarts = 40,
    /// A merge begins although the right partition's row changed since that was decided.
    MergeUnguarded = 44,
    /// A merge is abandoned in the left partition's row alone.
    HalfGivenUp = 44,
    /// A partition is repaired while it is merged.
    RepairedWhileMerged = 44,
    /// An absorption of an earlier merge counts for this one.
    AbsorbedStale = 47,
    /// A heartbeat is answered after a quorum round that began before it arrived.
    RoundShared = 54,
    /// An incarnation is judged when its heartbeat arrives, and not again after the round.
    JudgedAtArrival = 54,
    /// The leaderships that the state ended without acknowledgement are not listed as withdrawn.
    FormerNotListed = 54,
    /// Only the first of the answers after one round is recorded.
    AnsweredPerRound = 55,
    /// A heartbeat counts although a later one of the same incarnation was heard.
    OldBeatCounts = 56,
    /// An incarnation with a failure that is only proposed is reported as fenced.
    FailingIsOver = 72,
    /// One keeper that finds a door shut is enough.
    DoorOfOne = 74,
    /// The number of unreached nodes at a time is unlimited.
    DoorsEmptyTheCluster = 75,
    /// A node that clients cannot reach loses leaderships that no other copy can take.
    UnreachedLosesTheLast = 76,
    /// A new table is sent as a change of one that is held.
    NewTableAsChange = 77,
    /// A node's version from an earlier generation counts.
    EarlierGenerationCounts = 78,
    /// A node with relayed heartbeats is pushed no tables, even if answers do not carry them.
    AnswersAwaitedForEver = 80,
}

archon_types::broken!();
