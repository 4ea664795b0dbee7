//! The published design as written: every server pings another one in each interval, drawn anew each time. Whoever gets no answer, or
//! hears that the other one is in limbo, goes into limbo itself, where it serves nobody until a coordinator has answered it.
//!
//! | Module | |
//! |---|---|
//! | `halves` | half of the cluster is cut off: who still serves there after so many rounds |
//! | `limbo` | one server dies: whether limbo spreads faster than the coordinator ends it |

mod halves;
mod limbo;

pub use halves::{Halves, Pace, ROUNDS, halves, recurrence};
pub use limbo::{Limbo, LimboCase, computed_share, limbo};

/// Time is counted in these parts of an interval between pings.
const INTERVAL: u32 = 1 << 20;

/// So many intervals as parts of one.
fn parts(intervals: f64) -> u32 {
    (intervals * f64::from(INTERVAL)) as u32
}
