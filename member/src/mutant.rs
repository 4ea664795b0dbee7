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
    /// A relay brings an answer to its member, whichever life of that it names.
    AnswerToAnotherLife = 65,
    /// A relay passes on a heartbeat however long ago it came, again and again.
    OldBeatPassedOn = 66,
    /// A relay takes a heartbeat that comes after a later one, in place of that.
    OlderBeatTaken = 66,
    /// A member that once asked the coordinators itself never asks a relay again.
    DirectForEver = 67,
    /// A relay that no coordinator answers forgets what it carries.
    BeatsNotKept = 68,
    /// A relay that no coordinator answers keeps that to itself.
    SilenceUntold = 68,
    /// Whoever is told that no coordinator answers asks all of them.
    AllAskThemselves = 68,
    /// A relay does not tell the members whose life its rows have ended.
    OverUntold = 72,
    /// Word that a life of a member is over ends whichever it lives.
    OverWithoutLife = 72,
    /// A relay counts participants among the nodes for which it carries.
    ParticipantsCrowdOut = 81,
}

archon_types::broken!();
