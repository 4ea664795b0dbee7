//! Clusters of real processes on this machine, on free loopback ports. [`Cluster`] serves the demonstration, `archon
//! bench --local` and the examples; tests add networks and disks of their own around its [`Member`]s. Processes end
//! with the thread that started them, however it ends.

mod cluster;
mod error;
mod idle_service;
mod issuer;
mod member;
mod parent_death;
mod ports;
mod process;

pub use cluster::{Cluster, FIRST_NODES, LATE_NODE, REQUEST_LIMIT, SMALL, TIMEOUT, YOU};
pub use error::Error;
pub use idle_service::IdleService;
pub use issuer::Issuer;
pub use member::{Layout, Member, Place, newcomer_arguments, node_arguments};
pub use parent_death::end_with_parent;
pub use ports::free_addresses;
pub use process::{PARENT_PID, Process};
