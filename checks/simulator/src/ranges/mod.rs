//! Splits and merges that an operator orders during a run.

mod merges;
pub(crate) mod splits;
