//! The coordinator's decisions, from outside. One binary for all of it: the core is compiled with optimisation for its
//! tests, and each binary would do so again.

mod alter;
mod automatic_merges;
mod automatic_splits;
mod bed;
mod commands;
mod configure;
mod controls;
mod dropped;
mod failover;
mod forced;
mod isolated_leaders;
mod last_copy;
mod lease_lives;
mod lease_orders;
mod lease_tables;
mod leases;
mod lives;
mod membership;
mod merges;
mod migration;
mod mutants;
mod names;
mod operate;
mod ordered;
mod planning;
mod pushes;
mod random;
mod removed;
mod repair;
mod split_copying;
mod splits;
mod term;
mod unserved;
mod world;
mod zones;
