//! The kit of tests of all crates: waiting for a condition, directories, seeded randomness, and skipping.
//!
//! | file | holds |
//! |---|---|
//! | `wait` | polling until a condition holds, with the last state in the failure |
//! | `random` | a small generator: the same seed gives the same test |
//! | `scratch` | temporary directories in memory, for tests of processes |
//! | `processors` | idle time of the processors |
//! | `skip` | leaving out a test that this machine does not allow |

mod processors;
mod random;
mod scratch;
mod skip;
mod wait;

pub use processors::ProcessorTime;
pub use random::Random;
pub use scratch::ScratchDirectory;
pub use skip::{NO_SKIP, skipped};
pub use wait::{check, wait_for, wait_for_async, wait_for_every, wait_for_state};
