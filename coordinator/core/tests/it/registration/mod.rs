//! Registration of nodes: identity, incarnations and removal.

mod lives;
mod membership;
mod names;
mod removed;
