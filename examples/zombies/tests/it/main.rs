//! Tests of the model and its program from outside.

mod figures;
mod usage;
