//! The client, participants and the fake coordinator, from outside.

#![allow(clippy::unwrap_used)]

mod admin;
mod dropped;
mod elsewhere;
mod exchange;
mod fake_coordinator;
mod generations;
mod merged;
mod participants;
mod service;
mod support;
