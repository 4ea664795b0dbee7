//! Every decoder, by room.

mod checked_in_place;
mod command_line;
mod coordinator;
mod documents;
mod frames;
mod heartbeats;
mod log;
mod node;
mod operations;
mod redis;
mod replica;
mod wire;

use crate::target::Target;

pub use checked_in_place::CHECKED_IN_PLACE;

/// Returns all targets, in a fixed order.
pub fn all() -> Vec<Target> {
    [
        frames::targets(),
        redis::targets(),
        wire::targets(),
        operations::targets(),
        documents::targets(),
        heartbeats::targets(),
        node::targets(),
        coordinator::targets(),
        log::targets(),
        replica::targets(),
        command_line::targets(),
    ]
    .concat()
}
