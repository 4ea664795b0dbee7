//! Tests of the coordinator's decisions, from outside. One binary for all of them: the core is compiled with
//! optimisation for its tests, and each binary would repeat that.

mod bed;
mod commands;
mod leader;
mod leases;
mod liveness;
mod mutants;
mod operator;
mod placement;
mod protocol_1;
mod quorum;
mod random;
mod ranges;
mod registration;
mod world;
