//! A leading coordinator and the nodes: heartbeats, pushes and updates.

mod access;
pub(crate) mod news;
mod pushes;
mod term;
