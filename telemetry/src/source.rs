//! What a member says of itself when somebody asks.

use crate::family::Family;

/// A member that is asked. Everything is looked at in the moment of the question; nothing may block for long.
pub trait Source: Send + Sync + 'static {
    /// Every metric with its values now.
    fn families(&self) -> Vec<Family>;

    /// Whether the process should be left alone. One that says no cannot go on and is to be started anew.
    ///
    /// # Errors
    /// Why not, in words for an operator.
    fn alive(&self) -> Result<(), String>;

    /// Whether the member takes part in its cluster now.
    ///
    /// # Errors
    /// Why not, in words for an operator.
    fn ready(&self) -> Result<(), String>;
}

/// Asks a member, as often as one likes, whether it takes part in its cluster now; if not, the answer says why not.
pub type AskReady = Box<dyn Fn() -> Result<(), String> + Send + Sync>;
