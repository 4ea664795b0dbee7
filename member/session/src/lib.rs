//! Connection of a member (node or participant) to the leading coordinator: leader discovery, calls, heartbeat
//! streams and the lease clock. `archon-member` decides the content of messages and their consequences.
//!
//! | Module | Contents |
//! |---|---|
//! | `beats/` | heartbeat streams and pending answers |
//! | `clock` | time that includes suspend |
//! | `coordinators` | the leader, and calls that follow it |
//! | `link` | channels |
//! | `registration` | registration and leaving |
//! | `relay/` | heartbeats carried for other members |
//! | `relay_ways` | the relays of a member, in order of preference |
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
mod relay_ways;
mod report;
mod revocations;

pub use beats::{BeatOutcome, BeatStreams, MessageReceiver, Recipient};
pub use clock::{BootClock, Clock};
pub use coordinators::{BeatFailure, Coordinators};
pub use learned::LearnedCoordinators;
pub use link::{Links, connect};
pub use registration::{leave, register};
pub use relay::{RelayCounts, RelayStreams};
pub use relay_ways::RelayWays;
pub use report::{Facts, NoRelays, ReportRelays, reports};
pub use revocations::follow_revocations;
