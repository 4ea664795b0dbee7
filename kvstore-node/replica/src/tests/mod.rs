//! Tests of whole conversations, comparing lists of outputs, and random runs of several replicas.

mod confirm;
mod coordinator;
mod disk;
mod follow;
mod heal;
mod lead;
mod live_set;
mod load;
mod log_model;
mod mutants;
mod random;
mod script;
mod shell;
mod simulation;
mod takeover;
mod world;
