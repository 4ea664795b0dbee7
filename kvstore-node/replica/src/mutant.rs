//! Rules that a simulator may break, one at a time, to prove that its checks can fail.

/// One rule broken. The names are those of the protocol model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(any(test, feature = "mutants")), allow(dead_code, unreachable_pub))]
pub enum Mutant {
    /// A follower acknowledges an epoch that it did not persist.
    EpochVolatile,
    /// A follower matches by number only and cuts nothing.
    NoCut,
    /// A new leader serves before its followers hold its log.
    ServeEarly,
    /// A joiner counts only once the leader knows the answer.
    JoinerNotCounted,
    /// A leader stops counting a follower when it asks, not when it knows.
    SelfShrink,
    /// A leader stops counting a joiner because no answer came.
    JoinerGivenUp,
    /// An older configuration replaces a newer one.
    ConfigGoesBack,
    /// A confirm round asks one follower only.
    ConfirmOne,
}
