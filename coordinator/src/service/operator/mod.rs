//! Changes by operators.

mod access;
mod configure;
pub(super) mod operate;
pub(super) mod orders;
mod plans;
pub(super) mod quorum;
pub(crate) mod rebalance;
pub(super) mod tables;
pub(super) mod upgrade;
