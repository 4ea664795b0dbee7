//! Integration tests of the client, participants and the fake coordinator.

#![allow(clippy::unwrap_used)]

mod admin;
mod created;
mod dropped;
mod elsewhere;
mod exchange;
mod fake_coordinator;
mod generations;
mod late_losses;
mod merged;
mod named;
mod participants;
mod routes;
mod service;
mod support;
mod tables;
