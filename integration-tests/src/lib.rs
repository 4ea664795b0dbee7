//! What the tests on real processes share: clusters of child processes, load with a memory, faults and waiting.
//!
//! One cluster runs at a time on a machine (see [`cluster::Cluster`]), because the bounds under test are lease and
//! failure time-outs, and two clusters on two cores would make each other late.

pub mod cluster;
pub mod load;
pub mod ports;
pub mod process;
pub mod wait;

pub use cluster::{Cluster, Options};
pub use load::{Load, LoadReport};
pub use process::Process;
pub use wait::wait_for;
