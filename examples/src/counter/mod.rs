//! A service of several processes that keeps counters, each in one process at a time: what `counter.rs` shows and tests put to
//! the proof. A user's request counts once, however often it is sent, and whoever owns the counter.
//!
//! Counters are cut into the partitions of a lease table. The instance that owns a partition keeps its counters in memory, so it
//! answers without asking anybody; what it counts is in the key-value store before it answers.
//!
//! | Module | What it is |
//! |---|---|
//! | `serve` | an instance: listens, takes part, ends in order |
//! | `service` | what an instance does when it is given partitions and loses them, and with requests |
//! | `owned` | one partition while it is owned: memory in front of the store |
//! | `stored` | what the store holds of a partition |
//! | `protocol` | what is asked and answered: lines of JSON |
//! | `front_end` | finds the instance that owns a counter, and asks until it is answered |
//! | `log`, `uses` | who owned what and when, written by each instance, read by whoever wants to know |

mod front_end;
mod log;
mod owned;
mod protocol;
mod serve;
mod service;
mod stored;
mod uses;

pub use front_end::FrontEnd;
pub use log::{Line, OwnerLog, boot_clock_ns, read_lines};
pub use protocol::{Answer, Request};
pub use serve::{Serve, serve};
pub use stored::{Counter, Stored};
pub use uses::{Instance, Use, Uses};
