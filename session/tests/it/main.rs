//! Heartbeats and reports, to coordinators and relays that the tests play.

#![allow(missing_docs, clippy::unwrap_used)]

mod beats;
mod relay;
mod reports;
mod support;
