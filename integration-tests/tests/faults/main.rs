//! The fault catalogue (`docs/design/faults.md`) on clusters of real processes: processes, disks, networks, operators and
//! overload.

mod disk_damage;
mod disk_faults;
mod doors;
mod faults_disks;
mod faults_greedy;
mod faults_moves;
mod faults_network;
mod faults_operator;
mod faults_overload;
mod faults_processes;
mod faults_proxy;
mod faults_quorum;
mod faults_ranges;
mod faults_redis;
mod power_loss;
mod replica_damage;

/// The program under test.
pub(crate) const EXE: &str = env!("CARGO_BIN_EXE_archon-under-test");
