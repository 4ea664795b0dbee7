//! Operations: from a view of a partition to an effect and an answer.

pub mod effect;
pub(crate) mod evaluate;
pub(crate) mod leadership;
pub(crate) mod log_time;
pub(crate) mod transaction;
pub(crate) mod trend;
