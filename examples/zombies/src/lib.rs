//! Leases without a coordinator, as a published design has them, played as they are written; and under the same faults heartbeats that
//! others carry, as this cluster has them. The design is the fifth of `docs/SEEDS.md`.
//!
//! In the design every server pings another one every 10 ms, and one that gets no answer stops serving until a coordinator has answered
//! it: it is in *limbo*. So does whoever pings a server in limbo. A *zombie* is a server that was given up and still serves.
//!
//! | Module | |
//! |---|---|
//! | `arguments` | what the program is told |
//! | `pings/` | the design |
//! | `carried/` | heartbeats that others carry, by the rooms of the product |
//! | `figures` | all that is tried for one report |
//! | `report/` | tables and charts |
//!
//! **What the design leaves open, and how it is played.** *In step* all servers ping at one instant, which is what its figures reckon
//! with; *out of step* each has an instant of its own. A ping is answered at once. It is known at once that nobody answers, unless a time
//! for that is said. The dead server is pinged until the coordinator has answered the first who missed it; after that everybody knows. A
//! server that has asked the coordinator asks nothing more until it is answered, and then serves until its next ping says otherwise.

mod arguments;
pub mod carried;
mod figures;
pub mod pings;
mod random;
mod report;

pub use arguments::Arguments;
pub use figures::{ANSWERS, Bears, DELAYS, Figures, HalvesOf, LimboOf};
pub use report::{NotWritten, charts, text};
