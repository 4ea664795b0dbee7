//! Integration tests of real nodes in an environment that the tests play.

#![allow(clippy::unwrap_used)]

mod calls;
mod copies;
mod dropped;
mod followers;
mod forward;
mod loaders;
mod node;
mod over;
mod pings;
mod strangers;
mod support;
