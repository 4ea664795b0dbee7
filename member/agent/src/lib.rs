//! The agent beside a service in any language: a participant of the cluster that holds session, heartbeats and leases,
//! and informs the service over HTTP which partitions it owns (`docs/reference/agent.md`).
//!
//! | module | what it provides |
//! |---|---|
//! | [`protocol`] | documents of the protocol |
//! | `service_session` | state machine of one session with a service (pure) |
//! | `event_queue` | events that the service has not received (pure) |
//! | `live_session` | the state machine behind a lock, as callbacks of the participant |
//! | `agent` | sessions one after the other, each with a participant |
//! | `shared` | state shared by sessions and connections |
//! | `program` | a service as a child process, over JSON lines |
//! | `http` | requests of the service and of callers on this machine |
//! | `config` | configuration, and the reasons for an end |
//! | `routes` | owners of partitions, for callers |
//! | `map_file` | file with the owners of a table, for proxies |
//! | `agent_metrics` | metrics of the agent |
//! | `library_metrics` | recorder of the metrics of the client library |

mod agent;
mod agent_metrics;
mod config;
mod event_queue;
mod http;
mod library_metrics;
mod live_session;
mod map_file;
mod program;
pub mod protocol;
mod routes;
#[cfg(test)]
mod schema_tests;
mod service_session;
mod state;

pub use agent::{Agent, FAREWELL};
pub use config::{AgentConfig, AgentError, ListenAddress, SERVICE_LEASE, SERVICE_LEASES, STOP_LIMIT};
pub use event_queue::EVENTS_MAX;
pub use map_file::{MapFile, MapFormat};

/// Returns the definitions of the agent's own metrics. `GET /metrics` has those of the client library as well.
pub fn metric_definitions() -> impl Iterator<Item = &'static archon_telemetry::Definition> {
    agent_metrics::AgentReadings::DEFINITIONS.iter()
}
pub use program::{START_LIMIT, run_program};
