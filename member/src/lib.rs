//! Decisions of a member's session with the leading coordinator: consequences of refusals, validity of answers, scope
//! of leases, and reports. The shell does requests, waiting and time-outs.
//!
//! A member is a node of the key-value store or a participant, which owns partitions for another service. Both drive
//! this session, and so do the machines of the simulator. A [`DisabledRule`] disables one of the rules in `mutant.rs`,
//! in tests only.
//!
//! | Module | Contents |
//! |---|---|
//! | `attempts` | recipients of a heartbeat, in order |
//! | `doors` | results of probes of other nodes' client listeners |
//! | `grants` | the lease, its scope and its end |
//! | `heartbeat` | heartbeats and their matching answers |
//! | `heartbeat_driver` | times, recipients and deadlines of heartbeats |
//! | `node_rows` | rows of nodes: relays, probe targets, fenced incarnations |
//! | `participant/` | partitions that a participant acquires, releases and loses |
//! | `prober` | times, targets and deadlines of probes |
//! | `relay/` | heartbeats carried for other members |
//! | `registering` | consequences of a refused registration |
//! | `reports` | reports to the coordinator |
//! | `ways` | choice of relays for heartbeats |

mod attempts;
mod grants;
mod heartbeat;
mod heartbeat_driver;
mod mutant;
mod node_rows;
mod participant;
mod probed_nodes;
mod prober;
mod registration_attempts;
mod relay;
mod relay_preference;
mod reports;

pub use attempts::{ASKS_FOR_ITSELF, AttemptFailure, AttemptTarget, Step};
pub use grants::{GrantOutcome, Grants};
pub use heartbeat::{Heartbeat, Heartbeats, LeaseAnswer};
pub use heartbeat_driver::{AnsweredRound, HeartbeatDriver, HeartbeatPace};
pub use mutant::DisabledRule;
#[cfg(any(test, feature = "mutants"))]
pub use mutant::Mutant;
pub use node_rows::NodeRows;
pub use participant::{Acquisition, Effect, Holdings, Participation, ReleaseCause};
pub use prober::{Probe, Prober};
pub use registration_attempts::{RegistrationAttempts, RetryDecision};
pub use relay::{BatchRecipients, Relay, RelayEffect, RelayOutcome, RelayedHeartbeat, ReturnAddress, Rows};
pub use reports::Reports;
