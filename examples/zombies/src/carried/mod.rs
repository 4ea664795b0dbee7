//! Simulates the same faults with relayed heartbeats, decided by the rooms of the product: choice of relays and paths
//! (`archon_types`), actions of members and relays (`archon_member`), and grants and failures by the coordinator
//! (`archon_coordinator_core`). Only clocks, messages and time-outs are simulated.
//!
//! | Module | Content |
//! |---|---|
//! | `coordinator` | the leading coordinator |
//! | `member` | one member, which is also a relay |
//! | `network` | reachability and delays |
//! | `world` | all of them, from event to event |
//! | `scenes` | experiments and their results |

mod coordinator;
mod member;
mod network;
mod scenes;
mod world;

pub use archon_coordinator_core::NODES_MAX;
pub use coordinator::CommandRefusal;
pub use scenes::{CutOffResult, Death, HeartbeatPath, Load, OutageResult, away, cut_off, death, load};
