//! The next step of a split or merge.

use crate::command::Command;
use archon_types::Millis;

/// Next step of one split or merge.
pub(crate) enum Step {
    /// No step before that time, unless something changes.
    Wait(Millis),
    /// Commit this now.
    Change(Command),
}
