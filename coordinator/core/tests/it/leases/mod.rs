//! Lease tables: owners of the partitions of other services.

mod lives;
pub(crate) mod mutants;
mod orders;
mod owners;
mod polls;
mod tables;
