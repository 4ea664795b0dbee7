//! Output of a measurement. The names of these fields are a contract with scripts: fields are only ever added.

use super::nodes::Cost;
use crate::exit::Failure;
use crate::output::{Column, Output, bytes_text};
use archon_load::{Distribution, Latency, Mix, Workload, WorkloadOutcome};
use serde::Serialize;

/// Results and parameters of a measurement.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Report {
    operation: &'static str,
    clients: usize,
    connections: usize,
    threads: usize,
    keys: u64,
    value_bytes: usize,
    distribution: &'static str,
    theta: Option<f64>,
    /// Share of reads, in a mix.
    get_percent: Option<u8>,
    /// Entries per scan.
    scan_limit: Option<u32>,
    /// Requested operations per second; none in a closed loop.
    rate: Option<f64>,
    warmup_seconds: f64,
    interrupted: bool,
    #[serde(flatten)]
    pub(super) measured: WorkloadOutcome,
    /// Resources used by the nodes; absent if one of them did not answer.
    #[serde(flatten)]
    cost: Option<Cost>,
}

impl Report {
    pub(super) fn new(workload: &Workload, measured: WorkloadOutcome, interrupted: bool, cost: Option<Cost>) -> Self {
        let (operation, get_percent, scan_limit) = match workload.mix {
            Mix::Load | Mix::LoadSpread | Mix::Put => ("put", None, None),
            Mix::Get | Mix::ReadBack => ("get", None, None),
            Mix::Mixed { get_percent } => ("mixed", Some(get_percent), None),
            Mix::Scan { limit } => ("scan", None, Some(limit)),
        };
        let (distribution, theta) = match workload.distribution {
            Distribution::Uniform => ("uniform", None),
            Distribution::Zipfian { theta } => ("zipfian", Some(theta)),
        };
        Self {
            operation,
            clients: workload.clients,
            connections: workload.connections,
            threads: workload.threads,
            keys: workload.keys,
            value_bytes: workload.value_bytes,
            distribution,
            theta,
            get_percent,
            scan_limit,
            rate: workload.rate,
            warmup_seconds: workload.warm_up.as_secs_f64(),
            interrupted,
            measured,
            cost,
        }
    }

    pub(super) fn print(&self, output: &Output) -> Result<(), Failure> {
        if output.is_json() {
            return output.json(self);
        }
        let seen = &self.measured;
        let how = match self.rate {
            Some(rate) => format!("at {rate} per second"),
            None => "closed loop".to_owned(),
        };
        let theta = self.theta.map(|theta| format!(" (theta {theta})")).unwrap_or_default();
        output.line(format!(
            "{:.0} operations per second: {} in {:.1} s, {} failed",
            seen.ops_per_second, seen.ops, seen.seconds, seen.failed
        ))?;
        output.line(format!(
            "{}, {} clients on {} connections and {} threads, {} keys {}{theta}, values of {} bytes",
            how, self.clients, self.connections, self.threads, self.keys, self.distribution, self.value_bytes
        ))?;
        output.line(format!(
            "read {}, written {}; CPU per operation {:.1} µs in the clients",
            bytes_text(seen.bytes_read),
            bytes_text(seen.bytes_written),
            seen.client_cpu_us_per_op
        ))?;
        if let Some(cost) = &self.cost {
            output.line(format!(
                "the nodes, all together, per operation: {:.1} µs of CPU, {:.2} context switches, {:.3} syncs and {:.0} bytes \
                 of their logs",
                cost.node_cpu_us_per_op, cost.switches_per_op, cost.fsyncs_per_op, cost.log_bytes_per_op
            ))?;
        }
        for (kind, failed) in &seen.failures {
            output.line(format!("{} failed by {kind}: {}", failed.count, failed.example))?;
        }
        let columns = [
            Column::text("OPERATION"),
            Column::number("COUNT"),
            Column::number("MEAN"),
            Column::number("P50"),
            Column::number("P90"),
            Column::number("P99"),
            Column::number("P99.9"),
            Column::number("MAX"),
        ];
        let kinds = [("get", &seen.get), ("put", &seen.put), ("scan", &seen.scan)];
        let rows = kinds.into_iter().filter_map(|(name, latency)| latency.as_ref().map(|latency| row(name, latency)));
        output.rows(&columns, rows.collect(), "no operation succeeded")
    }
}

fn row(name: &str, latency: &Latency) -> Vec<String> {
    let times =
        [latency.mean_us as u64, latency.p50_us, latency.p90_us, latency.p99_us, latency.p999_us, latency.max_us];
    [name.to_owned(), latency.ops.to_string()].into_iter().chain(times.into_iter().map(micros_text)).collect()
}

/// Formats a duration: `850 µs`, `12.3 ms`, `1.20 s`.
pub(super) fn micros_text(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{:.2} ms", micros as f64 / 1_000.0),
        _ => format!("{:.2} s", micros as f64 / 1_000_000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_formatted_for_people() {
        let found: Vec<String> = [7, 1_500, 2_340_000].into_iter().map(micros_text).collect();
        assert_eq!(found, ["7 µs", "1.50 ms", "2.34 s"]);
    }
}
