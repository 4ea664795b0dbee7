//! The same faults with heartbeats that others carry, decided by the rooms of the product: who relays and by whom a member's travel
//! (`archon_types`), what the member and its relay do (`archon_member`), and what the coordinator grants and whom it fails
//! (`archon_coordinator_core`). Only clocks, messages and the waiting for answers are played.
//!
//! | Module | |
//! |---|---|
//! | `coordinator` | the coordinator that leads |
//! | `member` | one member, with the relay that it is for others |
//! | `network` | who reaches whom |
//! | `world` | all of them, from event to event |
//! | `scenes` | what is tried, and what comes of it |

mod coordinator;
mod member;
mod network;
mod scenes;
mod world;

pub use archon_coordinator_core::state::NODES_MAX;
pub use coordinator::NotTaken;
pub use scenes::{Away, CutOff, Death, Load, Way, away, cut_off, death, load};
