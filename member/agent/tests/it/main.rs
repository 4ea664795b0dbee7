//! Tests of the agent with a coordinator that a test directs.

#![allow(clippy::unwrap_used)]

mod bad_input;
mod metrics;
mod program;
mod sessions;
mod support;
