//! Measures every system in turn at every number of clients, over several rounds.

use crate::disk::{self, Syncs};
use crate::system::{STOP, System};
use anyhow::Context;
use archon_load::{Distribution, End, Mix, Workload, cpu_of};
use serde::Serialize;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Servers are idle once all of them together have used less than this part of a core for the quiet time. Three idle
/// nodes and three idle coordinators use 0.3, the others less than 0.1.
const QUIET_SHARE: f64 = 0.5;
/// Longer than writes are collected before they go to an engine.
const QUIET: Duration = Duration::from_secs(16);
const SETTLE_LIMIT: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(500);

/// Size of the measurement.
#[derive(Clone, Debug)]
pub(crate) struct Ladder {
    pub(crate) clients: Vec<usize>,
    pub(crate) mixes: Vec<Mix>,
    pub(crate) rounds: usize,
    pub(crate) length: Duration,
    pub(crate) warm_up: Duration,
    pub(crate) keys: u64,
    pub(crate) value_bytes: usize,
    pub(crate) distribution: Distribution,
    pub(crate) threads: usize,
}

/// Result of one system with one number of clients: the median round, by operations per second.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Point {
    pub(crate) system: String,
    pub(crate) operation: &'static str,
    pub(crate) clients: usize,
    pub(crate) ops_per_second: f64,
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    /// Keys and values read, in megabytes (10^6).
    pub(crate) megabytes_read_per_second: f64,
    /// CPU time of all servers per operation.
    pub(crate) server_cpu_us: f64,
    /// CPU time of the driving program.
    pub(crate) client_cpu_us: f64,
    /// Operations per second of every round.
    pub(crate) rounds: Vec<f64>,
}

pub(crate) fn name(mix: Mix) -> &'static str {
    match mix {
        Mix::Get => "get",
        Mix::Scan { .. } => "scan",
        _ => "put",
    }
}

impl Ladder {
    fn workload(&self, mix: Mix, clients: usize, system: &dyn System) -> Workload {
        let threads = system.threads(self.threads);
        let connections = system.connections(clients).max(threads).min(clients);
        Workload {
            mix,
            keys: self.keys,
            value_bytes: self.value_bytes,
            distribution: self.distribution,
            connections,
            threads: threads.min(connections),
            warm_up: self.warm_up,
            end: End::After(self.length),
            ..Workload::puts(clients)
        }
    }

    /// Writes every key into every system.
    pub(crate) fn load(&self, systems: &[Box<dyn System>]) -> anyhow::Result<()> {
        for system in systems.iter().filter(|system| system.has_own_keys()) {
            if !self.mixes.iter().any(|mix| system.does(*mix)) {
                continue;
            }
            let clients = 256;
            let mut workload = self.workload(Mix::Put, clients, system.as_ref());
            workload = workload.each_key_once(Mix::Load, clients);
            let seen = system.run(&workload).with_context(|| system.name().to_owned())?;
            let written = seen.ops_with_warm_up;
            eprintln!("{}: {written} times a key was written, {:.0} per second", system.name(), seen.ops_per_second);
        }
        settle(systems)
    }

    /// Measures everything.
    pub(crate) fn climb(&self, systems: &[Box<dyn System>], directory: &Path) -> anyhow::Result<(Vec<Point>, Syncs)> {
        let mut seen: Vec<(usize, Mix, usize, Vec<Point>)> = Vec::new();
        for &mix in &self.mixes {
            for &clients in &self.clients {
                let asked = systems.iter().enumerate().filter(|(_, system)| system.does(mix));
                seen.extend(asked.map(|(system, _)| (system, mix, clients, Vec::new())));
            }
        }
        let mut syncs = Vec::new();
        for round in 1..=self.rounds {
            syncs.push(disk::probe(directory, Duration::from_secs(1))?);
            for (system, mix, clients, points) in &mut seen {
                anyhow::ensure!(!STOP.load(Ordering::Relaxed), "interrupted");
                let point = self.once(systems[*system].as_ref(), *mix, *clients)?;
                eprintln!(
                    "round {round}: {} {:>4} clients {:<24} {:>8.0}/s, p50 {:>6} µs, p99 {:>6} µs, CPU {:.1} + {:.1} µs",
                    point.operation,
                    clients,
                    point.system,
                    point.ops_per_second,
                    point.p50_us,
                    point.p99_us,
                    point.server_cpu_us,
                    point.client_cpu_us
                );
                points.push(point);
            }
        }
        let middle = |points: Vec<Point>| median(points);
        let points = seen.into_iter().filter_map(|(.., points)| middle(points)).collect();
        syncs.sort_by(|a, b| a.p50_us.total_cmp(&b.p50_us));
        Ok((points, syncs[syncs.len() / 2]))
    }

    fn once(&self, system: &dyn System, mix: Mix, clients: usize) -> anyhow::Result<Point> {
        let before = cpu(&[system]);
        let seen = system.run(&self.workload(mix, clients, system)).with_context(|| system.name().to_owned())?;
        let server_cpu = cpu(&[system]).saturating_sub(before);
        Ok(Point {
            system: system.name().to_owned(),
            operation: name(mix),
            clients,
            ops_per_second: seen.ops_per_second,
            p50_us: seen.p50_us,
            p99_us: seen.p99_us,
            megabytes_read_per_second: seen.bytes_read_per_second / 1e6,
            server_cpu_us: server_cpu.as_secs_f64() * 1e6 / seen.ops_with_warm_up.max(1) as f64,
            client_cpu_us: seen.client_cpu_us,
            rounds: vec![seen.ops_per_second],
        })
    }
}

/// Returns the CPU time of all servers of these systems.
fn cpu(systems: &[&dyn System]) -> Duration {
    systems.iter().flat_map(|system| system.pids()).map(cpu_of).sum()
}

/// Waits for background work after loading, which would otherwise be charged to the first measurement.
fn settle(systems: &[Box<dyn System>]) -> anyhow::Result<()> {
    let systems: Vec<&dyn System> = systems.iter().map(AsRef::as_ref).collect();
    let began = Instant::now();
    let mut quiet_since = began;
    while quiet_since.elapsed() < QUIET && began.elapsed() < SETTLE_LIMIT {
        anyhow::ensure!(!STOP.load(Ordering::Relaxed), "interrupted");
        let before = cpu(&systems);
        std::thread::sleep(LOOK);
        if cpu(&systems).saturating_sub(before) > LOOK.mul_f64(QUIET_SHARE) {
            quiet_since = Instant::now();
        }
    }
    eprintln!("the servers were left alone for {:.0} s after that", began.elapsed().as_secs_f64());
    Ok(())
}

/// Returns the median point by throughput, with the throughput of all rounds.
fn median(mut points: Vec<Point>) -> Option<Point> {
    points.sort_by(|a, b| a.ops_per_second.total_cmp(&b.ops_per_second));
    let rounds = points.iter().map(|point| point.ops_per_second).collect();
    let middle = points.len().checked_sub(1)? / 2;
    Some(Point { rounds, ..points.swap_remove(middle) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_round_is_reported() {
        let point = |ops_per_second: f64| Point {
            system: "a".into(),
            operation: "put",
            clients: 1,
            ops_per_second,
            p50_us: ops_per_second as u64,
            p99_us: 0,
            megabytes_read_per_second: 0.0,
            server_cpu_us: 0.0,
            client_cpu_us: 0.0,
            rounds: vec![],
        };
        let found = median(vec![point(9.0), point(1.0), point(5.0)]).unwrap();
        assert_eq!((found.ops_per_second, found.p50_us, found.rounds), (5.0, 5, vec![1.0, 5.0, 9.0]));
        assert_eq!(median(vec![]), None);
    }
}
