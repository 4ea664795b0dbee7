//! A node's session with the leading coordinator, as far as it is decided: what follows from refusals, which answers to heartbeats
//! count and from when, and which facts are told until when. Asking, waiting and time-outs are the shell's.
//!
//! | Module | What it decides |
//! |---|---|
//! | `heartbeat` | heartbeats, and which answer belongs to which |
//! | `registering` | what a refused registration comes to |
//! | `reports` | facts on their way to the coordinator |

mod heartbeat;
mod registering;
mod reports;

pub use heartbeat::{Grant, Heartbeat, Heartbeats};
pub use registering::{Again, Registering};
pub use reports::Reports;
