//! Tests of the console without a running cluster.

#![allow(missing_docs, clippy::unwrap_used)]

mod no_leader;
mod places;
