//! `archon kv bench`: a closed loop, each client waiting for its answer before it asks again.

use crate::args::BenchArgs;
use crate::exit::{Exit, Failure};
use crate::output::{Column, Output};
use archon_client::Client;
use bytes::Bytes;
use hdrhistogram::Histogram;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Latencies are counted in microseconds, up to this many; a longer one counts as this.
const LATENCY_MAX_US: u64 = 600_000_000;
/// A client that fails this often in a row ends the measurement: the cluster is not there.
const FAILURES_IN_A_ROW_MAX: u32 = 10;

/// What was measured.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Report {
    seconds: f64,
    clients: u32,
    value_bytes: u32,
    keys: u32,
    get_percent: u8,
    ops: u64,
    ops_per_second: f64,
    failed: u64,
    get: Option<Latency>,
    put: Option<Latency>,
}

/// How long operations of one kind took, in microseconds.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Latency {
    ops: u64,
    mean_us: f64,
    p50_us: u64,
    p99_us: u64,
    p999_us: u64,
    max_us: u64,
}

/// What one client saw.
struct Tally {
    get: Histogram<u64>,
    put: Histogram<u64>,
    failed: u64,
    last_failure: Option<Failure>,
    gave_up: bool,
}

/// Measures and prints.
pub(crate) async fn run(args: &BenchArgs, client: &Client, output: &Output) -> Result<Exit, Failure> {
    output.talk(format!(
        "{} clients for {} s, {}% reads, values of {} bytes, {} keys under bench/",
        args.clients, args.seconds, args.mix.get_percent, args.value_bytes, args.keys
    ));
    let value = Bytes::from(vec![b'x'; args.value_bytes as usize]);
    let started = Instant::now();
    let end = started + Duration::from_secs(u64::from(args.seconds));
    let mut clients = JoinSet::new();
    for number in 0..args.clients {
        clients.spawn(drive(u64::from(number), args.clone(), client.clone(), value.clone(), end));
    }
    let mut total = Tally::new()?;
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    let mut cut_short = false;
    loop {
        tokio::select! {
            _ = &mut interrupted, if !cut_short => {
                cut_short = true;
                clients.abort_all();
            }
            joined = clients.join_next() => match joined {
                None => break,
                Some(Ok(tally)) => total.add(&tally?)?,
                Some(Err(error)) if error.is_cancelled() => {}
                Some(Err(error)) => return Err(Failure::failed(format!("a client of the measurement: {error}"))),
            }
        }
    }
    if cut_short {
        return Err(Failure::failed("interrupted; nothing was measured"));
    }
    let report = Report::new(args, started.elapsed(), &total);
    if output.is_json() {
        output.json(&report)?;
    } else {
        print(&report, output)?;
    }
    match total.last_failure {
        Some(failure) if report.ops == 0 || total.gave_up => Err(failure),
        Some(failure) => {
            Err(Failure::failed(format!("{} operations failed; the last one: {}", report.failed, failure.message)))
        }
        None => Ok(Exit::Done),
    }
}

async fn drive(number: u64, args: BenchArgs, client: Client, value: Bytes, end: Instant) -> Result<Tally, Failure> {
    let mut random = SmallRng::seed_from_u64(number);
    let mut tally = Tally::new()?;
    let mut failures_in_a_row = 0;
    while Instant::now() < end {
        let key = format!("bench/{}", random.random_range(0..args.keys));
        let read = random.random_range(0..100) < u32::from(args.mix.get_percent);
        let begun = Instant::now();
        let outcome =
            if read { client.get(&key).await.map(|_| ()) } else { client.put(&key, value.clone()).await.map(|_| ()) };
        let took_us = (begun.elapsed().as_micros() as u64).clamp(1, LATENCY_MAX_US);
        match outcome {
            Ok(()) => {
                failures_in_a_row = 0;
                if read { tally.get.saturating_record(took_us) } else { tally.put.saturating_record(took_us) }
            }
            Err(error) => {
                tally.failed += 1;
                failures_in_a_row += 1;
                tally.last_failure = Some(error.into());
                if failures_in_a_row >= FAILURES_IN_A_ROW_MAX {
                    tally.gave_up = true;
                    break;
                }
            }
        }
    }
    Ok(tally)
}

impl Tally {
    fn new() -> Result<Self, Failure> {
        let histogram = || {
            Histogram::new_with_bounds(1, LATENCY_MAX_US, 3)
                .map_err(|error| Failure::failed(format!("making a histogram: {error}")))
        };
        Ok(Self { get: histogram()?, put: histogram()?, failed: 0, last_failure: None, gave_up: false })
    }

    fn add(&mut self, other: &Self) -> Result<(), Failure> {
        let wrong = |error| Failure::failed(format!("adding histograms: {error}"));
        self.get.add(&other.get).map_err(wrong)?;
        self.put.add(&other.put).map_err(wrong)?;
        self.failed += other.failed;
        self.gave_up |= other.gave_up;
        if other.last_failure.is_some() {
            self.last_failure.clone_from(&other.last_failure);
        }
        Ok(())
    }
}

impl Report {
    fn new(args: &BenchArgs, elapsed: Duration, total: &Tally) -> Self {
        let ops = total.get.len() + total.put.len();
        let seconds = elapsed.as_secs_f64();
        Self {
            seconds,
            clients: args.clients,
            value_bytes: args.value_bytes,
            keys: args.keys,
            get_percent: args.mix.get_percent,
            ops,
            ops_per_second: if seconds > 0.0 { ops as f64 / seconds } else { 0.0 },
            failed: total.failed,
            get: Latency::of(&total.get),
            put: Latency::of(&total.put),
        }
    }
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Option<Self> {
        (!histogram.is_empty()).then(|| Self {
            ops: histogram.len(),
            mean_us: histogram.mean(),
            p50_us: histogram.value_at_quantile(0.50),
            p99_us: histogram.value_at_quantile(0.99),
            p999_us: histogram.value_at_quantile(0.999),
            max_us: histogram.max(),
        })
    }
}

fn print(report: &Report, output: &Output) -> Result<(), Failure> {
    output.line(format!(
        "{:.0} operations per second: {} in {:.1} s, {} failed",
        report.ops_per_second, report.ops, report.seconds, report.failed
    ))?;
    let columns = [
        Column::text("OPERATION"),
        Column::number("COUNT"),
        Column::number("MEAN"),
        Column::number("P50"),
        Column::number("P99"),
        Column::number("P99.9"),
        Column::number("MAX"),
    ];
    let kinds = [("get", &report.get), ("put", &report.put)];
    let rows = kinds.into_iter().filter_map(|(name, latency)| {
        latency.as_ref().map(|latency| {
            vec![
                name.to_owned(),
                latency.ops.to_string(),
                micros_text(latency.mean_us as u64),
                micros_text(latency.p50_us),
                micros_text(latency.p99_us),
                micros_text(latency.p999_us),
                micros_text(latency.max_us),
            ]
        })
    });
    output.rows(&columns, rows.collect(), "")
}

/// `850 µs`, `12.3 ms`, `1.20 s`.
fn micros_text(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{:.1} ms", micros as f64 / 1_000.0),
        _ => format!("{:.2} s", micros as f64 / 1_000_000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Mix;

    #[test]
    fn a_report_adds_up() {
        let mut total = Tally::new().unwrap();
        let mut one = Tally::new().unwrap();
        (1..=100).for_each(|us| one.get.saturating_record(us));
        one.failed = 2;
        total.add(&one).unwrap();
        total.add(&one).unwrap();
        let args = BenchArgs { seconds: 1, clients: 2, value_bytes: 3, keys: 4, mix: Mix { get_percent: 100 } };
        let report = Report::new(&args, Duration::from_secs(2), &total);
        assert_eq!((report.ops, report.failed, report.ops_per_second), (200, 4, 100.0));
        let latency = report.get.unwrap();
        assert_eq!((latency.p50_us, latency.p99_us, latency.max_us), (50, 99, 100));
        assert_eq!(report.put, None);
    }

    #[test]
    fn latencies_for_people() {
        let found: Vec<String> = [7, 1_500, 2_340_000].into_iter().map(micros_text).collect();
        assert_eq!(found, ["7 µs", "1.5 ms", "2.34 s"]);
    }
}
