//! Machines: disks that lose data, processes that are killed and paused, and the driver of a node's partitions.

pub(crate) mod carried;
pub(crate) mod disk;
pub(crate) mod door;
pub(crate) mod engine;
pub(crate) mod process;
pub(crate) mod relaying;
pub(crate) mod shell;

mod copying;
mod drive;
mod effect;
mod flush;
mod forms;
mod probing;
mod push;
mod rounds;
mod session;
mod start;
mod step;
pub(crate) mod yielding;

pub(crate) use drive::covers;
