//! Effects: requests to a participant's service.

use super::holdings::Acquisition;
use super::release_cause::ReleaseCause;

/// A request to the service, in order. Each acquisition ends in exactly one way: it fails, its release finishes, or
/// [`Effect::Lost`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Prepare to own the partition; [`super::Participation::acquired`] reports the outcome.
    Acquire(Acquisition),
    /// Finish the work on the partition, which the service still owns; [`super::Participation::released`] reports the
    /// end.
    Release(Acquisition, ReleaseCause),
    /// The partition is lost: abort all work and touch nothing.
    Lost(Acquisition),
}
