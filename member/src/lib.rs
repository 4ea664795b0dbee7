//! A member's session with the leading coordinator, as far as it is decided: what follows from refusals, which answers to
//! heartbeats count and from when, what the lease covers, and which facts are told until when. Asking, waiting and time-outs
//! are the shell's.
//!
//! A member is a node of the key-value store or a participant, which owns partitions for a service of its own. Both drive
//! the same session, and so do the simulator's machines. A [`Broken`] takes one of the rules in `mutant.rs` away, in tests
//! alone.
//!
//! | Module | What it decides |
//! |---|---|
//! | `attempts` | whom a heartbeat is sent to, one after the other |
//! | `doors` | what is found at the doors of other nodes, and said of them |
//! | `grants` | what the lease covers, and which word ends it |
//! | `heartbeat` | heartbeats, and which answer belongs to which |
//! | `participant/` | which partitions a participant acquires, releases and has lost |
//! | `relay/` | heartbeats that are carried for others |
//! | `registering` | what follows from a refused registration |
//! | `reports` | facts on their way to the coordinator |
//! | `ways` | by which relays heartbeats travel |

mod attempts;
mod doors;
mod grants;
mod heartbeat;
mod mutant;
mod participant;
mod registering;
mod relay;
mod reports;
mod ways;

pub use attempts::{Attempts, Step, Unanswered, Way};
pub use doors::{Doors, Knock};
pub use grants::{Grants, Taken};
pub use heartbeat::{Heartbeat, Heartbeats, LeaseAnswer};
pub use mutant::Broken;
#[cfg(any(test, feature = "mutants"))]
pub use mutant::Mutant;
pub use participant::{Acquired, Effect, Holdings, Participation, Why};
pub use registering::{Again, Registering};
pub use relay::{Carried, Relay, RelayEffect, ReturnAddress, Rows, Took, Towards};
pub use reports::Reports;
pub use ways::{COORDINATOR_ANSWER_MS, RELAY_ANSWER_MS, Ways, next_by_relay};
