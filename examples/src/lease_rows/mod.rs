//! Leases as rows of any store with compare-and-set: a service distributes its partitions without a coordinator of its
//! own. `lease_rows.rs` compares it with Archon's own participants, which do the same with a heartbeat per process in
//! place of a write per partition.
//!
//! Each partition is a row. Its last writer holds the lease and rewrites the row repeatedly; a row that does not change
//! for long enough is free. Every server reads all rows at intervals and takes free ones, up to its maximum. Servers
//! coordinate only through the ETag of a row, here its revision, which a write must match: none of them looks at
//! another's clock.
//!
//! | Module | Content |
//! |---|---|
//! | `timing` | intervals and time-outs, and their safety condition |
//! | `row` | a lease, as stored |
//! | `partitioning`, `held` | decisions of a server: no clock, no randomness, no store |
//! | `store` | interface of a store; `memory` and `kv` implement it |
//! | `service` | a service's reaction to its partitions, from either source |
//! | `runs` | a running server: the clock, the store and the callbacks around the decisions |
//! | `world` | many servers in virtual time, with clock drift, late or lost messages, pauses and deaths |

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

pub use held::{Lease, ReleaseReason};
pub use kv::KvRows;
pub use memory::MemoryRows;
pub use partitioning::{Config, Effect, Partitioning};
pub use row::{Etag, ListedRow, Row};
pub use runs::LeaseRows;
pub use service::{ByParticipant, Ownership, Service};
pub use store::{Put, Rows, StoreError};
pub use timing::{Timing, max_count};
pub use world::{Conditions, Counts, Fault, World};
