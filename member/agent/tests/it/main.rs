//! Tests of the agent with a coordinator that a test directs.

mod bad_input;
mod sessions;
mod support;
