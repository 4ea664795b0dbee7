//! Connection of a member (node or participant) to the leading coordinator: leader discovery, calls, heartbeat
//! streams and the lease clock. `archon-member` decides the content of messages and their consequences.
//!
//! | Module | Contents |
//! |---|---|
//! | `beats/` | the sender of heartbeats, and its streams |
//! | `clock` | time that includes suspend |
//! | `coordinators` | the leader, and calls that follow it |
//! | `link` | channels |
//! | `registration` | registration and leaving |
//! | `relay/` | heartbeats carried for other members |
//! | `learned` | addresses of coordinators that answers name |
//! | `report` | reports, repeated until they are answered |
//! | `revocations` | revoked certificates, for processes that are sent no pushes |

mod beats;
mod clock;
mod coordinators;
mod learned;
mod link;
mod registration;
mod relay;
mod report;
mod revocations;

pub use beats::{BeatingMember, send_heartbeats};
pub use clock::{BootClock, Clock};
pub use coordinators::Coordinators;
pub use learned::LearnedCoordinators;
pub use link::{Links, connect};
pub use registration::{leave, register};
pub use relay::{RelayCounts, RelayStreams};
pub use report::{Facts, NoRelays, ReportRelays, reports};
pub use revocations::follow_revocations;
