//! The rules of operations that a test can take away, above all those of exactly-once.

archon_types::mutants! {
    /// A write that changes nothing is answered from what was seen, although nothing proves that this is the newest.
    AnswerUnproven = 18,
    /// An operation is applied although it is recorded.
    RetryApplied = 24,
    /// An operation below its client's done mark is applied.
    DoneMarkIgnored = 24,
    /// Stamps are not looked at: what is not recorded is applied.
    StampIgnored = 24,
    /// Any record of the client proves an old stamp new, also one begun after it.
    AnyRecordProves = 24,
    /// Forgetting a record does not raise `forgotten_through`.
    ForgottenNotRaised = 24,
    /// A stamp after the partition's log time is taken.
    FutureStampTaken = 24,
    /// What did not come to a change is not recorded.
    FailureUnrecorded = 24,
    /// Log time falls when a leader's clock is behind.
    LogTimeFalls = 24,
    /// Of a client that has a record, what was sent on when its key was another partition's is done when it comes late.
    RecordTrusted = 50,
}
