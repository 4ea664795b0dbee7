//! Simulation of a published design of leases without a coordinator, exactly as described; and, under the same faults,
//! of relayed heartbeats as in this cluster. The design is the fifth of `docs/history/seeds.md`.
//!
//! In the design every server pings another one every 10 ms, and a server without an answer stops serving until a
//! coordinator has answered it: it is in *limbo*. So does a server that pings one in limbo. A *zombie* is a server that
//! was given up and still serves.
//!
//! | Module | Content |
//! |---|---|
//! | `arguments` | arguments of the program |
//! | `pings/` | the design |
//! | `carried/` | relayed heartbeats, by the rooms of the product |
//! | `figures` | all experiments of one report |
//! | `report/` | tables and charts |
//!
//! **Points that the design leaves open, and their choice here.** *In step* all servers ping at one instant, as its
//! figures assume; *out of step* each has an instant of its own. A ping is answered at once. A missing answer is known
//! at once, unless a time-out is given. The dead server is pinged until the coordinator has answered the first server
//! that missed it; after that all know. A server that has asked the coordinator asks nothing more until it is answered,
//! and then serves until the result of its next ping.

mod arguments;
pub mod carried;
mod figures;
pub mod pings;
mod random;
mod report;

pub use arguments::Arguments;
pub use figures::{ANSWERS, CoordinatorLoad, DELAYS, Figures, HalvesResult, LimboResult};
pub use report::{WriteFailure, charts, text};
