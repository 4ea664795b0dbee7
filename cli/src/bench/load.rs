//! Background load: readers and writers of many keys beside a measurement.

use super::report::micros_text;
use super::{LOADERS, archon, over, watched};
use crate::args::Connection;
use crate::exit::Failure;
use crate::output::{Column, Output};
use archon_load::{Archon, End, KEY_BYTES, Mix, Run, Workload, WorkloadOutcome};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// Time limit of the load, if it is not stopped.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Results of the load.
#[derive(Debug, Serialize)]
pub(super) struct LoadResults {
    pub(super) get: WorkloadOutcome,
    pub(super) put: WorkloadOutcome,
}

/// Readers and writers of many keys.
pub(super) struct Load {
    archon: Arc<Archon>,
    pub(super) workload: Workload,
}

/// Running readers and writers.
pub(super) struct LoadTasks {
    gets: Run,
    puts: Run,
}

impl Load {
    /// Creates a load on `keys` keys, with a number of readers and as many writers.
    pub(super) fn new(
        keys: u64,
        value_bytes: u32,
        clients: u32,
        table: &str,
        connection: &Connection,
    ) -> Result<Self, Failure> {
        let archon = archon(table, connection)?;
        let workload = Workload {
            keys,
            value_bytes: value_bytes as usize,
            warm_up: Duration::ZERO,
            end: End::After(LONGEST),
            ..Workload::puts(clients as usize)
        };
        Ok(Self { archon: Arc::new(archon), workload })
    }

    /// Returns the load with a rate: operations begun per second by the readers, and as many by the writers.
    pub(super) fn at_rate(mut self, rate: Option<u32>) -> Self {
        self.workload.rate = rate.map(f64::from);
        self
    }

    /// Returns true if there are readers and writers.
    pub(super) const fn has_clients(&self) -> bool {
        self.workload.clients > 0
    }

    /// Returns the table of the load.
    pub(super) const fn archon(&self) -> &Arc<Archon> {
        &self.archon
    }

    /// Starts the readers and writers.
    pub(super) fn begin(&self) -> Result<LoadTasks, Failure> {
        let run = |mix| Run::start(&self.archon, &Workload { mix, ..self.workload.clone() });
        Ok(LoadTasks { gets: run(Mix::Get)?, puts: run(Mix::Put)? })
    }

    /// Writes every key once, or reads it back.
    pub(super) async fn every_key(&self, mix: Mix, what: &str, output: &Output) -> Result<WorkloadOutcome, Failure> {
        match watched(what, &self.archon, &self.workload.each_key_once(mix, LOADERS), output).await? {
            (_, true) => Err(Failure::failed(format!("interrupted while {what}"))),
            (measured, false) => Ok(measured),
        }
    }

    /// Returns the bytes of a key and its value.
    pub(super) const fn bytes_each(&self) -> u64 {
        (KEY_BYTES + self.workload.value_bytes) as u64
    }
}

impl LoadTasks {
    /// Stops the readers and writers, and returns their results.
    pub(super) async fn end(self) -> Result<LoadResults, Failure> {
        self.gets.stop();
        self.puts.stop();
        Ok(LoadResults { get: over(self.gets).await?, put: over(self.puts).await? })
    }
}

/// Prints the results by window, a line for each operation.
pub(super) fn print_seen(windows: &[(&str, &LoadResults)], output: &Output) -> Result<(), Failure> {
    let columns = [
        Column::text("WHEN"),
        Column::text("OPERATION"),
        Column::number("PER SECOND"),
        Column::number("P50"),
        Column::number("P99"),
        Column::number("LONGEST"),
        Column::number("FAILED"),
    ];
    let mut rows = Vec::new();
    for (when, seen) in windows {
        for (name, measured, latency) in [("put", &seen.put, &seen.put.put), ("get", &seen.get, &seen.get.get)] {
            let Some(latency) = latency else { continue };
            let times = [latency.p50_us, latency.p99_us, latency.max_us].map(micros_text);
            let mut row = vec![(*when).to_owned(), name.to_owned(), format!("{:.0}", measured.ops_per_second)];
            row.extend(times);
            row.push(measured.failed.to_string());
            rows.push(row);
        }
    }
    output.rows(&columns, rows, "")
}
