//! Replicas and their nodes: plans, moves, repair and removal.

mod alter;
mod dropped;
mod last_copy;
mod migration;
mod planning;
mod repair;
mod zones;
