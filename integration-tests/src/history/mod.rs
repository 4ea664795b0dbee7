//! What clients saw of each key, and whether one copy of the data could have shown it to them.
//!
//! Every operation is recorded with the moments of its call and its return. An operation whose outcome its client could
//! not learn stays open: it may have taken effect at any moment after its call, or never. [`check`] then judges each key
//! on its own: linearizability is local (Herlihy and Wing, 1990), so that is enough.

mod checker;
mod notes;
mod operation;
mod register;
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
