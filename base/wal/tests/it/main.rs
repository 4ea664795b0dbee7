//! Tests of the log on real directories, and on simulated disks that fail.

#![allow(missing_docs, clippy::unwrap_used)]

mod behaviour;
mod crash;
mod damage;
mod direct;
mod model;
mod power_loss;
mod space;
mod support;
