//! Metrics and health of a member.
//!
//! A metric is *defined* once, beside the code that counts it ([`metrics!`]): name, help, labels. Hot paths update
//! relaxed atomics ([`Metric`], [`Histogram`]); other values are read at scrape time. Only [`render`] produces text
//! from them, and one [`MetricsServer`] serves it, on its own port and apart from the threads that serve the cluster.

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

pub use archon_types::{Definition, Kind, Label};
pub use disk::DiskReadings;
pub use exposition::{Format, render};
pub use family::{Family, LabelledValues, Reading, Sample, Series, Value, flat};
pub use histogram::{BOUNDS_MICROS, Distribution, Histogram};
pub use log::LogReadings;
pub use metric::{Metric, TimeCounter};
pub use per_thread::PerThread;
pub use process::ProcessReadings;
pub use server::{CLOSE_DEADLINE, CONNECTIONS_MAX, HEADER_BYTES_MAX, MetricsServer, TIMEOUT};
pub use source::{AskReady, Source};
pub use transport::TransportReadings;
