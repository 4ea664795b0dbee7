//! The Raft log on disk: vote and entries, their encoding, admission by space, and trimming.

pub(super) mod codec;
pub(super) mod entries;
#[cfg(test)]
mod full_disk_tests;
pub(super) mod log_space;
pub(super) mod low_space;
mod msgpack;
#[cfg(test)]
mod power_loss_tests;
pub(super) mod short;
pub(super) mod store;
#[cfg(test)]
mod store_tests;
pub(super) mod trim;
