//! Recovery of the state from less than a majority: from a surviving directory, or from a file.
//!
//! Entries may be lost that nodes have acted upon, so this state is not trusted until they have reported (PROTOCOL
//! rules 60 to 62). [`begin_generation`] creates the new state; nodes register with it, set all their replicas aside
//! and report the end of the log of each; [`doubts()`] lists the obstacles; `settled` selects the replicas of a
//! partition that count then.
//!
//! | file | holds |
//! |---|---|
//! | `begin` | the initial state of a new generation |
//! | `directory` | detection of older copies of data directories |
//! | `doubts` | facts that are not known yet, and those that cannot be known |
//! | `takeover` | the moment from which a generation takes members from the former coordinators |
//! | `settled` | the replicas that count, and the one from which the partition continues |

mod begin;
mod directory;
pub(crate) mod doubts;
pub(crate) mod reports;
mod settled;
mod takeover;

pub use begin::{RecoveryError, begin_generation};
pub use doubts::{Doubt, doubts};
pub(crate) use settled::{Choice, choose};
pub use takeover::{FormerAnswer, FormerFacts, FormerRound, Takeover, TakeoverStep};
