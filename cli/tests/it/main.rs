//! The program `archon` from outside, without a cluster.

mod certificates;
mod usage;
