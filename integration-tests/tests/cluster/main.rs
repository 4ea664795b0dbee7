//! Tables, partitions and their replicas on clusters of real processes, with some faults.

mod any_node;
mod automatic_merge;
mod bad_input;
mod dropped_table;
mod fixed_partitions;
mod given_up;
mod growth;
mod lives_over;
mod memory;
mod merges;
mod node_failures;
mod ranges;
mod rebalance_failures;
mod relayed;
mod relays;
mod replicated;
mod retained_log;
mod splits;
mod stale_reads;

/// The program under test.
pub(crate) const EXE: &str = env!("CARGO_BIN_EXE_archon-under-test");
