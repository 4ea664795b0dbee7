//! A participant: which partitions it acquires and releases, when it has lost them, and what it tells of them (PROTOCOL rule
//! 28).
//!
//! | Module | What it decides |
//! |---|---|
//! | `participation` | what follows from duties, leases, and what the service says |
//! | `tenure` | how far one partition has come |
//! | `holdings` | what is owned at a moment |
//! | `effect`, `why` | what the service is told |

mod effect;
mod holdings;
mod participation;
#[cfg(test)]
mod participation_tests;
#[cfg(test)]
mod random_tests;
mod tenure;
mod why;

pub use effect::Effect;
pub use holdings::{Acquired, Holdings};
pub use participation::Participation;
pub use why::Why;
