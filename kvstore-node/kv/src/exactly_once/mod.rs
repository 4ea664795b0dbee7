//! Exactly-once: applied operations, and the clients that a partition remembers.

pub(crate) mod client_index;
pub(crate) mod dedup;
pub(crate) mod window;
