//! Reasons to release a partition.

/// Reason why a participant gives up a partition that it still owns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReleaseCause {
    /// The coordinator chose another owner.
    HandedOver,
    /// The service dropped it.
    Declined,
    /// The participant is stopping.
    Stopped,
}
