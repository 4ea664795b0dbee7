//! Source of a member's metrics and health.

use crate::family::Family;

/// A member's metrics and health. Everything is evaluated on each call; implementations must not block for long.
pub trait Source: Send + Sync + 'static {
    /// Returns every metric with its current values.
    fn families(&self) -> Vec<Family>;

    /// Checks liveness: a process that fails cannot continue and must be restarted.
    ///
    /// # Errors
    /// The reason, for an operator.
    fn alive(&self) -> Result<(), String>;

    /// Checks whether the member takes part in its cluster now.
    ///
    /// # Errors
    /// The reason why not, for an operator.
    fn ready(&self) -> Result<(), String>;
}

/// Checks whether a member takes part in its cluster now; the error is the reason why not.
pub type AskReady = Box<dyn Fn() -> Result<(), String> + Send + Sync>;
