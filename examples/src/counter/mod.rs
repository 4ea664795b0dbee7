//! A service of several processes that keeps counters, each in one process at a time: the subject of `counter.rs`, and
//! of tests. A user's request counts once, under any number of retries and changes of owner.
//!
//! Counters are distributed over the partitions of a lease table. The instance that owns a partition keeps its counters
//! in memory, so it reads without another request; every count is in the key-value store before its answer.
//!
//! | Module | Content |
//! |---|---|
//! | `serve` | an instance: listens, takes part, stops cleanly |
//! | `service` | an instance's reaction to gains and losses of partitions, and to requests |
//! | `owned` | one partition while it is owned: memory in front of the store |
//! | `stored` | stored state of a partition |
//! | `protocol` | requests and answers: lines of JSON |
//! | `front_end` | finds the instance that owns a counter, and retries until it is answered |
//! | `log`, `uses` | record of ownership, written by each instance, and its reader |

mod front_end;
mod log;
mod owned_counters;
mod protocol;
mod serve;
mod service;
mod stored_counters;
mod uses;

pub use front_end::FrontEnd;
pub use log::{Line, OwnerLog, boot_clock_ns, read_lines};
pub use protocol::{Answer, Request};
pub use serve::{Serve, serve};
pub use stored_counters::{Counter, StoredCounters};
pub use uses::{Instance, Use, Uses};
