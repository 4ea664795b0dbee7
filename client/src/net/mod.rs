//! Connections to nodes and coordinators, and the pauses between attempts.

pub(crate) mod connection;
pub(crate) mod link;
pub(crate) mod retry;
