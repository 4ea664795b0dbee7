//! A cluster of real processes on this machine: three coordinators and three nodes on free ports of loopback, in a
//! temporary directory. Its processes end with their owner, however that ends; the directory goes when the [`Cluster`] is dropped,
//! unless it is kept.

mod child;
mod cluster;
mod error;
mod wait;

pub use child::PARENT_PID;
pub use cluster::{COORDINATORS, COPIES, Cluster, FIRST_NODES, LATE_NODE, PARTITIONS, PATIENCE, REQUEST_LIMIT};
pub use error::Error;
pub use wait::{Look, wait_for};
