//! Machines: disks that forget, processes that are killed and paused, and the shell around the replicas.

pub(crate) mod disk;
pub(crate) mod engine;
pub(crate) mod process;
pub(crate) mod slot;

mod carry;
mod copying;
mod duty;
mod flush;
mod operate;
mod session;
mod start;
mod step;

pub(crate) use carry::covers;
