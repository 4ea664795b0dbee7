//! Both planes of Archon in one deterministic world.
//!
//! The real pure code runs here: `archon-coordinator-core` (state, guarded apply, liveness, control turns, duties,
//! migrations), `archon-host` (a node's partitions), `archon-replica` (replication) and `archon-kv` (evaluation,
//! exactly once). Around it are simulated machines with disks that lose data, clocks that drift, processes that are
//! killed and paused, a lossy network with cuts, a quorum with changing leaders, and clients that retry. Everything is
//! drawn from one seed, so a run is repeated exactly by its number. See `docs/design/simulation.md`.
//!
//! | part | content |
//! |---|---|
//! | `scenario` | parameters of a seed |
//! | `world`, `event`, `network`, `clock`, `random` | the course of time |
//! | `coordinator/` | the quorum's log and terms; the work of a leading coordinator around the core |
//! | `raft/`, `changer`, `quorum_faults` | the members' own logs and votes, membership changes, and their faults; only in some seeds |
//! | `host/` | a node: disk, engine, process; the driver of its partitions, and its session |
//! | `worker/` | participants of a lease table: processes with the library, and their faults; in a third of the seeds |
//! | `client`, `faults`, `themes`, `heal` | clients, faults by chance and on purpose, and their end |
//! | `relays` | faults of relays, and the final checks of them |
//! | `restarts` | sessions that end and begin again within one Raft term; only in some seeds |
//! | `engines` | engines that refuse accesses until they are opened again; only in some seeds |
//! | `strays`, `drops`, `operator` | features of some seeds: stray leaderships, dropped tables, accepted losses |
//! | `check/` | properties that must hold, one per file |
//! | `coverage`, `trace`, `run`, `base` | coverage, the verdict, and the first seeds of long runs |

mod base;
mod check;
mod client;
mod clock;
mod coordinator;
mod coverage;
mod event;
mod event_receiver;
mod faults;
mod heal;
mod host;
mod mutant;
mod network;
mod operators;
mod raft;
mod random;
mod ranges;
mod run;
mod scenario;
mod trace;
mod worker;
mod world;

pub use base::first_seed;
pub use check::violation::Violation;
pub use coverage::Coverage;
pub use mutant::{Mutant, ShellMutant};
pub use run::{Outcome, run};
pub use scenario::{Scenario, Theme};
