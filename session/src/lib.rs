//! How a member, be it a node or a participant, reaches the leading coordinator: which one that is, how it is called, and the
//! clock on which leases count. What is said to it, and what follows, is decided by `archon-member`.
//!
//! | Module | |
//! |---|---|
//! | `beats/` | heartbeats on their way, and who waits for which answer |
//! | `clock` | time that includes suspend |
//! | `coordinators` | who leads, and calls that follow it |
//! | `link` | channels |
//! | `registration` | registering and leaving |
//! | `relay/` | heartbeats carried for others |
//! | `relay_ways` | the relays of a member, and which of them is tried first |
//! | `report` | facts, told until they are answered |

mod beats;
mod clock;
mod coordinators;
mod link;
mod registration;
mod relay;
mod relay_ways;
mod report;

pub use beats::{Answered, BeatStreams, Heard, Recipient};
pub use clock::{BootClock, Clock};
pub use coordinators::{Coordinators, NotGranted};
pub use link::{Links, connect};
pub use registration::{leave, register};
pub use relay::{RelayCounts, RelayStreams};
pub use relay_ways::RelayWays;
pub use report::{Facts, NoRelays, ReportRelays, reports};
