//! Agents, backups, export and import, locks, participants, and Redis clients on clusters of real processes.

mod agents;
mod agents_in_other_languages;
mod backup;
mod backup_since;
mod binary_keys;
mod envoy;
mod expiry;
mod hand_over_times;
mod kv_rows;
mod locks;
mod many_participants;
mod minimal_service;
mod owners;
mod participants;
mod recipes;
mod redis;
mod redis_client;
mod redis_keyspace;
mod redis_libraries;
mod redis_pipeline;
mod redis_replicas;
mod redis_transactions;

/// The program under test.
pub(crate) const EXE: &str = env!("CARGO_BIN_EXE_archon-under-test");
