//! Shared parts of the tests on real processes: clusters of child processes, load that remembers acknowledged writes,
//! faults, and disks that lose power.
//!
//! Tests run their clusters side by side, a bounded number at once; a test that loads the machine takes all of it
//! ([`options::Options::room`]).

pub mod attempt;
pub mod browser;
pub mod cluster;
pub mod contract;
pub mod counter_load;
pub mod disk;
pub mod history;
pub mod http;
pub mod image;
pub mod load;
pub mod network;
pub mod notified_member;
pub mod options;
pub mod participants;
pub mod ports;
pub mod power;
pub mod process;
pub mod recovering;
pub mod redis_driver;
pub mod relaying;
pub mod release;
pub mod reshape_operator;
pub mod rolling;
pub mod rows;
pub mod scene;
pub mod scrape;
pub mod strike;

pub use archon_local_cluster::Process;
pub use attempt::{Attempt, Reshape};
pub use cluster::{Cluster, Room};
pub use counter_load::{COUNTERS, CounterLoad, CounterResult, counter_key};
pub use history::{Workload, WorkloadOptions, WorkloadReport};
pub use load::{Load, LoadReport};
pub use network::{CLIENTS, Network};
pub use notified_member::NotifiedMember;
pub use options::Options;
pub use process::{ProcessExt, spawn};
pub use redis_driver::{Driver, Library};
pub use release::Release;
pub use reshape_operator::ReshapeResults;
pub use rows::Rows;
pub use scene::Scene;
pub use scrape::Scrape;
