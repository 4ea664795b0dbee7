//! Tests of the program `archon` as a black box, without a cluster.

mod certificates;
mod program;
mod texts;
mod usage;
