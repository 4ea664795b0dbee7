//! The published design as described: every server pings a random other one in each interval. A server without an
//! answer, or one that hears that the other is in limbo, goes into limbo itself, where it serves no client until a
//! coordinator has answered it.
//!
//! | Module | Content |
//! |---|---|
//! | `halves` | half of the cluster is cut off: servers that still serve there after each round |
//! | `limbo` | one server dies: spread of limbo against the coordinator's answers |

mod halves;
mod limbo;

pub use halves::{Halves, Pace, ROUNDS, halves, recurrence};
pub use limbo::{Limbo, LimboCase, computed_share, limbo};

/// Parts of an interval between pings, the unit of time.
const INTERVAL: u32 = 1 << 20;

/// Converts intervals to parts.
fn parts(intervals: f64) -> u32 {
    (intervals * f64::from(INTERVAL)) as u32
}
