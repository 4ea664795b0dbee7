//! Real nodes, with everything around them played by the tests.

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
