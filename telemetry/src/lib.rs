//! What a member tells of itself: numbers for those who scrape, and whether it is alive and ready.
//!
//! A metric is *defined* once, beside what counts it ([`metrics!`]): name, help, labels. Hot paths change relaxed atomics
//! ([`Metric`], [`Histogram`]) and know nothing of who reads them; everything else is read when somebody asks. The words that
//! leave the process are made here alone ([`render`]), and one [`MetricsServer`] gives them to whoever comes, apart from the
//! port of the cluster and from the threads that serve it.

mod disk;
mod exposition;
mod family;
mod histogram;
mod log;
mod metric;
mod per_thread;
mod process;
mod server;
mod source;
mod transport;

pub use archon_types::metric::{Definition, Kind, Label};
pub use disk::DiskReadings;
pub use exposition::{Format, render};
pub use family::{Family, Flat, Labelled, Reading, Series, Value, flat};
pub use histogram::{BOUNDS_MICROS, Distribution, Histogram};
pub use log::LogReadings;
pub use metric::{Elapsed, Metric};
pub use per_thread::PerThread;
pub use process::ProcessReadings;
pub use server::{CLOSE_DEADLINE, CONNECTIONS_MAX, HEADER_BYTES_MAX, MetricsServer, TIMEOUT};
pub use source::{AskReady, Source};
pub use transport::TransportReadings;
