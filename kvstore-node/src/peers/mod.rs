//! Messages to other nodes, and their format.

pub(crate) mod peer;
pub(crate) mod wire;
