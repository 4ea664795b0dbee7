//! Leases as rows of any store that can compare and set: a service shares its partitions out without a coordinator of its own.
//! What `lease_rows.rs` shows beside Archon's own participants, which do the same with a heartbeat per process in place of a
//! write per partition.
//!
//! Each partition is a row. Whoever wrote it last holds the lease and writes it again and again; a row that does not change for
//! long enough is anybody's. Every server reads all rows every now and then and takes what it finds, up to a number of its own.
//! That a write needs the row's ETag, here its revision, is all that servers agree by: none of them looks at another's clock.
//!
//! | Module | What it is |
//! |---|---|
//! | `timing` | how often and how long, and what makes it safe |
//! | `row` | a lease, as the store holds it |
//! | `partitioning`, `held` | what a server decides: no clock, no chance, no store |
//! | `store` | what is asked of a store; `memory` and `kv` are two |
//! | `service` | what a service does when it is given partitions, whoever gives them |
//! | `runs` | a server at work: the clock, the store and the callbacks around what is decided |
//! | `world` | many servers in virtual time, with clocks that drift, messages that are late or lost, pauses and deaths |

mod held;
mod kv;
mod memory;
mod partitioning;
#[cfg(test)]
mod partitioning_tests;
mod row;
mod runs;
mod service;
mod store;
mod timing;
mod world;
#[cfg(test)]
mod world_tests;

pub use held::{Lease, Why};
pub use kv::KvRows;
pub use memory::MemoryRows;
pub use partitioning::{Config, Effect, Partitioning};
pub use row::{Etag, Listed, Row};
pub use runs::LeaseRows;
pub use service::{ByParticipant, Held, Service};
pub use store::{Put, Rows, StoreError};
pub use timing::{Timing, max_count};
pub use world::{Conditions, Counts, Fault, World};
