//! Heartbeats and reports, sent to coordinators and relays simulated by the tests.

#![allow(missing_docs, clippy::unwrap_used)]

mod beats;
mod relay;
mod reports;
mod support;
