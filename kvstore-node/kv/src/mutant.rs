//! Rules of operations that a test can disable, above all those of exactly-once.

archon_types::mutants! {
    /// A write that changes nothing is answered from the rows seen, without proof that they are the newest.
    AnswerUnproven = 18,
    /// An operation is applied although it is recorded.
    RetryApplied = 24,
    /// An operation below its client's done mark is applied.
    DoneMarkIgnored = 24,
    /// Stamps are ignored: every operation without a record is applied.
    StampIgnored = 24,
    /// Any record of the client proves an old stamp new, also one begun after it.
    AnyRecordProves = 24,
    /// Forgetting a record does not raise `forgotten_through`.
    ForgottenNotRaised = 24,
    /// A stamp after the partition's log time is accepted.
    FutureStampTaken = 24,
    /// An operation that changed nothing is not recorded.
    FailureUnrecorded = 24,
    /// Log time falls when a leader's clock is behind.
    LogTimeFalls = 24,
    /// An entry that forgets a client leaves its window.
    ForgottenKept = 24,
    /// A window begins with the newest entries that are joined, instead of the oldest.
    WindowBegunLater = 24,
    /// Windows that a leader has looked up survive a truncation of its log.
    WindowOutlivesCut = 24,
    /// A write sees a value that expires at or before the log time of its entry.
    ExpiredSeen = 83,
    /// A transaction is carried out although its last check does not hold.
    CheckSkipped = 87,
    /// A late operation that was redirected while its key was another partition's is done if its client has a record.
    RecordTrusted = 50,
}
