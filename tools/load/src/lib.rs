//! Load generator for key-value stores. One loop drives every [`Store`], so that a comparison compares the stores and
//! not their drivers.
//!
//! Clients run on threads of their own, each thread with a runtime of its own: a client, its connection and its notes
//! never leave their thread, so that driving costs little beside the servers on the same machine.

mod archon;
pub mod attack;
mod beats;
mod failure;
mod keys;
mod pacer;
mod probers;
mod process;
mod run;
#[cfg(test)]
mod run_tests;
mod store;
mod tally;
mod wait;
pub mod watch;
mod worker;
mod workload;

pub use archon::{Archon, ArchonStore};
pub use beats::BeatStream;
pub use failure::Failure;
pub use keys::{Distribution, KEY_BYTES, KEY_PREFIX, KeyText, Values};
pub use probers::{Probers, Window};
pub use process::{children_cpu, cpu_of, own_cpu};
pub use run::{Run, WorkloadOutcome};
pub use store::{Connector, ScanResult, Store};
pub use tally::{FailureCount, Latency};
pub use wait::{CheckOutcome, TimeoutError, Wait, wait_for};
pub use workload::{End, Mix, Workload, WorkloadError};
