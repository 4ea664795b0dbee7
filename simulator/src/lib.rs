//! Both planes of Archon in one deterministic world.
//!
//! The real pure code runs here: `archon-coordinator-core` (state, guarded apply, liveness, control turns, duties,
//! migrations), `archon-host` (a node's partitions), `archon-replica` (replication) and `archon-kv` (evaluation, exactly once). Around it stand simulated
//! machines with disks that forget, clocks that drift, processes that are killed and paused, a lossy network that is cut
//! here and there, a quorum with changing leaders, and clients that retry. Everything is drawn from one seed, so a run is
//! repeated exactly by its number. See `docs/SIMULATION.md`.
//!
//! | part | what it is |
//! |---|---|
//! | `scenario` | what a seed stands for |
//! | `world`, `event`, `network`, `clock`, `random` | the course of time |
//! | `coordinator/` | the quorum's log and terms; what a leading coordinator does around the core |
//! | `raft/`, `changer`, `quorum_faults` | the members' own logs and votes, who changes the members, and what goes wrong with them; only in some seeds |
//! | `host/` | a node: disk, engine, process; what drives its partitions, and its session |
//! | `worker/` | participants of a lease table: processes with the library in them, and what goes wrong with them; in a third of the seeds |
//! | `client`, `faults`, `themes`, `heal` | who uses it, what goes wrong by chance and on purpose, and the end of that |
//! | `relays` | what goes wrong with those that carry heartbeats of others, and what is asked of them in the end |
//! | `restarts` | sessions that end and begin again within one Raft term; only in some seeds |
//! | `strays`, `drops`, `operator` | what only some seeds have: leaderships that nobody granted, tables that are dropped, losses that are accepted |
//! | `check/` | what must hold, one property per file |
//! | `coverage`, `trace`, `run`, `base` | what was seen, the verdict, and where many runs begin |

mod base;
mod changer;
mod check;
mod client;
mod clock;
mod coordinator;
mod coverage;
mod doors;
mod drops;
mod event;
mod faults;
mod heal;
mod host;
mod merges;
mod mutant;
mod network;
mod operator;
mod quorum_faults;
mod raft;
mod random;
mod recovery;
mod relays;
mod restarts;
mod run;
mod scenario;
mod splits;
mod strays;
mod themes;
mod trace;
mod upgrade;
mod worker;
mod world;

pub use base::first_seed;
pub use check::Violation;
pub use coverage::Coverage;
pub use mutant::{Mutant, ShellMutant};
pub use run::{Outcome, run};
pub use scenario::{Scenario, Theme};
