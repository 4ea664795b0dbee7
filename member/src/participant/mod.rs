//! Participants: acquisition, release and loss of partitions, and reports on them (PROTOCOL rule 28).
//!
//! | Module | Contents |
//! |---|---|
//! | `participation` | consequences of duties, leases and the service's answers |
//! | `tenure` | state of one partition |
//! | `holdings` | owned partitions at one moment |
//! | `effect`, `why` | requests to the service |

mod effect;
mod holdings;
mod participation;
#[cfg(test)]
mod participation_tests;
#[cfg(test)]
mod random_tests;
mod release_cause;
mod tenure;

pub use effect::Effect;
pub use holdings::{Acquisition, Holdings};
pub use participation::Participation;
pub use release_cause::ReleaseCause;
