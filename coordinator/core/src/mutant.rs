//! The rules of the coordinator that a test can take away; the names are those of the protocol model where it has them.

archon_types::mutants! {
    /// A leader's request is compared with the row's epoch only, not with its version.
    NoVersionCheck = 1,
    /// Any replica may ask for changes of the Live set, not only the leader.
    AnyoneAsks = 1,
    /// A drop is granted although fewer than `min_in_sync` are left.
    DropBelowMin = 2,
    /// A request that is refused leaves the version as it is.
    RefusalKeepsVersion = 3,
    /// A node that acknowledged its duties once is not told others.
    DutiesSaidOnce = 4,
    /// An addition does not look at the joiner's incarnation.
    ExpandUnchecked = 5,
    /// A drop does not look at the follower's incarnation.
    DropUnchecked = 5,
    /// A copy is removed although too few Live copies on nodes that are alive are left.
    CleanupBelowMin = 7,
    /// A copy that counted once is deleted although too few Live copies on nodes that are alive are left.
    LastCopyGoes = 7,
    /// A cancelled migration is undone although the leadership has moved.
    UndoAfterHandOver = 7,
    /// Registration leaves the leaderships of the former life as they are.
    LeadershipSurvives = 8,
    /// A replica that is not Live is elected.
    ElectAnyone = 9,
    /// A release counts for whatever epoch the reporter leads by now.
    StaleRelease = 12,
    /// A coordinator grants without a quorum round.
    NoQuorumRound = 13,
    /// A new coordinator does not wait for leases that an earlier one granted.
    CoordinatorForgets = 13,
    /// A heartbeat is answered without the list of withdrawn leaderships.
    NodeWideLease = 15,
    /// A life is answered although its failure is proposed.
    GrantWhileDeciding = 15,
    /// A coordinator's next session in a Raft term remembers nothing of the earlier one.
    TermForgotten = 15,
    /// A successor is elected without regard to the answers given to the holder.
    ElectForgets = 16,
    /// The state does not keep the former holder when a node registers.
    FormerForgotten = 16,
    /// A node is failed a time-out after it was heard, not after it was answered.
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
    /// The same process that registers again begins another life.
    BootForgotten = 19,
    /// A copy that was lost or damaged is hosted like one that was merely dropped.
    LostCopyHosted = 22,
    /// A second change of the quorum takes the place of the one that is under way.
    SecondChangeTaken = 57,
    /// A newcomer becomes a voter before it has the log.
    NewcomerUnready = 57,
    /// A leading coordinator that is to go does not give way first.
    LeaderStays = 57,
    /// A member is forgotten while its vote still counts.
    VoterForgotten = 57,
    /// A coordinator is heard under its number whatever directory it has.
    OtherDirectoryHeard = 58,
    /// The number of a coordinator that was removed is given to a newcomer.
    RetiredReturns = 58,
    /// A newcomer is let in with a copy of another one's directory.
    CopiedDirectoryJoins = 58,
    /// Whoever is no member is heard.
    StrangerHeard = 59,
    /// A newcomer whose log begins with members of long ago does not hear those that let it in.
    ExpectedForgotten = 59,
    /// A coordinator for which a member vouches is not heard.
    VouchedIgnored = 59,
    /// One that was removed is a member to whoever a laggard vouches for it.
    RemovedVouched = 59,
    /// During a recovery a directory is judged by the node's last activated life, whenever that began.
    OlderByRow = 61,
    /// The rows of recovered state are taken for true, whatever nodes told.
    RowsTrusted = 62,
    /// Recovered state is taken for true before every node was heard.
    SettledUnheard = 62,
    /// A node that has lived in a later generation is taken in.
    LaterGenerationTaken = 60,
    /// The protocol rises although a member does not speak the next one.
    RaisedOverOlder = 63,
    /// A raise that is on its way is carried out although an operator was told meanwhile that the protocol stays.
    HoldOverridden = 63,
    /// Whoever registers is taken in, whatever it speaks.
    AnyProtocolRegisters = 64,
    /// A forced election leaves the other copies as they are.
    LossKeepsOthers = 23,
    /// A leadership is granted although a copy is known to have heard of a higher epoch.
    GrantBelowKnown = 25,
    /// Whatever epoch a copy claims to know is passed, also the last one there is.
    AnyEpochGranted = 25,
    /// Nobody is told to delete the copies of a dropped table.
    CondemnedForgotten = 26,
    /// A node that begins another life need not delete what was dropped before.
    CondemnedEndsWithLife = 26,
    /// The leaderships of a dropped table are not withdrawn.
    DroppedStillLed = 26,
    /// A split is begun, done or given up whatever became of the row since that was decided.
    PartUnguarded = 34,
    /// A partition that is split off has its keys, and the one that is split keeps them too.
    GapAllowed = 34,
    /// The number of a partition that was to be split off is given to the next one.
    NumberReused = 34,
    /// A copy that was formed in an earlier split counts for this one.
    FormedStale = 39,
    /// A copy counts as formed although its node began another life.
    FormedLost = 39,
    /// A split is done although too few copies are formed.
    PartBelowMin = 40,
    /// A copy of the partition that is split off counts although it is not formed.
    RightShort = 40,
    /// The epochs of the partition that is split off begin anew.
    RightEpochRestarts = 40,
    /// A merge begins whatever became of the right partition's row since that was decided.
    MergeUnguarded = 44,
    /// A merge is given up in the left partition's row alone.
    HalfGivenUp = 44,
    /// A partition is repaired while it is merged.
    RepairedWhileMerged = 44,
    /// What was absorbed in an earlier merge counts for this one.
    AbsorbedStale = 47,
    /// A heartbeat is answered after a quorum round that began before it arrived.
    RoundShared = 54,
    /// Whether a life goes on is judged when its heartbeat arrives, and not once more after the round.
    JudgedAtArrival = 54,
    /// The leaderships that the state has ended without their holder's word are not listed as withdrawn.
    FormerNotListed = 54,
    /// Only the first of those that are answered after one round is noted.
    AnsweredPerRound = 55,
    /// A heartbeat counts although a later one of the same life was heard.
    OldBeatCounts = 56,
    /// A life whose failure is only proposed is told that it is over.
    FailingIsOver = 72,
    /// One keeper that finds a door shut is enough.
    DoorOfOne = 74,
    /// However many nodes are unreached at once.
    DoorsEmptyTheCluster = 75,
    /// A node that clients do not reach loses what no other copy can lead.
    UnreachedLosesTheLast = 76,
    /// A table that was made since is told as a change of one that is held.
    NewTableAsChange = 77,
    /// What a node holds by word of an earlier generation counts.
    EarlierGenerationCounts = 78,
    /// A node whose heartbeats are carried is pushed no tables, whether answers bring them or not.
    AnswersAwaitedForEver = 80,
}

archon_types::broken!();
