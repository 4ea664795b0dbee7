//! Services that own partitions, as processes beside a cluster: instances of the counter example, users who increment
//! through them, and the ownership checker.

mod checker;
mod service;
mod users;

pub use checker::{Violation, used_after_loss, violations};
pub use service::{Service, ServiceOptions};
pub use users::{RequestCounts, Users};
