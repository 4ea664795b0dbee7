//! What a participant's service is to do.

use super::holdings::Acquired;
use super::why::Why;

/// What is to be done, in the order in which it is given out. Of each acquisition exactly one ending is told: it failed, its
/// release was finished, or [`Effect::Lost`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// The service is to make ready to own it; [`super::Participation::acquired`] says how that ended.
    Acquire(Acquired),
    /// The service still owns it and is to bring to an end what it does with it; [`super::Participation::released`] says
    /// that it has.
    Release(Acquired, Why),
    /// It is over already: whatever the service does with it is to be broken off, and nothing touched.
    Lost(Acquired),
}
