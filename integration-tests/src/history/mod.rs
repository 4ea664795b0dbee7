//! Histories of client operations per key, and their linearizability check.
//!
//! Every operation is recorded with the moments of its call and its return. An operation with unknown outcome stays
//! open: it may have taken effect at any moment after its call, or never. [`check`] then judges each key separately:
//! linearizability is local (Herlihy and Wing, 1990), so that is enough.

mod checker;
mod notes;
mod operation;
mod pair;
mod register;
mod store;
#[cfg(test)]
mod store_tests;
#[cfg(test)]
mod tests;
mod violation;
mod worker;
mod workload;

pub use checker::{Verdict, check};
pub use operation::{Outcome, Record, Request};
pub use register::Register;
pub use violation::Violation;
pub use workload::{LatestKeys, Workload, WorkloadOptions, WorkloadReport};
