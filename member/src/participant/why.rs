//! Why a partition is released.

/// Why a participant gives up a partition that it still owns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// The coordinator wants another participant to own it.
    HandedOver,
    /// The participant wants to be rid of it.
    Declined,
    /// The participant is stopping.
    Stopped,
}
