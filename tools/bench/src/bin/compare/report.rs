//! Report of a comparison: a table, ratios, plots.

use crate::disk::Syncs;
use crate::measure::Point;
use crate::plot::{Series, plot};
use serde::Serialize;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

/// Archon with a table of two copies, by one client of the library on one thread: maximum speed.
pub(crate) const ARCHON: &str = "Archon, R = 2";
/// The same in a program of several threads.
pub(crate) const ARCHON_LIBRARY: &str = "Archon, R = 2, library";
/// The same table through the Redis listeners of the nodes: the Rust library of Redis in a program of several threads, and
/// maximum speed.
pub(crate) const ARCHON_REDIS: [&str; 2] = ["Archon, R = 2, redis-rs", "Archon, R = 2, Redis protocol, pipelined"];
/// Configurations of Redis: its Rust library in a program of several threads; a connection for each client, as ordinary
/// clients and `redis-benchmark` do it, in the same loop as everything else; maximum speed; and driven by
/// `redis-benchmark` itself.
pub(crate) const REDIS_SHAPES: [&str; 4] =
    ["Redis, redis-rs", "Redis, own connections", "Redis, pipelined", "Redis, redis-benchmark"];
/// Valkey through the same Rust library.
pub(crate) const VALKEY: &str = "Valkey, redis-rs";
/// Valkey at maximum speed.
pub(crate) const VALKEY_PIPELINED: &str = "Valkey, pipelined";
/// Valkey with two synced copies, as Archon's tables of two copies have: a connection for each client, and maximum speed.
pub(crate) const VALKEY_SYNCED: [&str; 2] = ["Valkey, WAITAOF, own connections", "Valkey, WAITAOF, pipelined"];

/// The machine of the comparison.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) date: String,
    pub(crate) cores: usize,
    pub(crate) processor: String,
    pub(crate) memory_gib: f64,
    pub(crate) kernel: String,
    pub(crate) file_system: String,
    pub(crate) commit: String,
    /// Runnable tasks of the last minute before it began: above a fraction of one, other programs used the machine.
    pub(crate) load_before: f64,
}

/// A system's name, version and configuration.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SystemUnderTest {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) shape: String,
}

/// The whole report.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) command: String,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    pub(crate) keys: u64,
    pub(crate) value_bytes: usize,
    /// Skew of Zipf's law for the choice of keys; `None` for uniform.
    pub(crate) zipf: Option<f64>,
    pub(crate) threads: usize,
    pub(crate) fdatasync: Syncs,
    pub(crate) systems: Vec<SystemUnderTest>,
    pub(crate) skipped: Vec<String>,
    pub(crate) points: Vec<Point>,
    pub(crate) ratios: Vec<Ratio>,
}

/// A target ratio.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Ratio {
    pub(crate) what: String,
    pub(crate) ours: f64,
    pub(crate) theirs: f64,
    pub(crate) ratio: f64,
    /// Target, such as `at least 1.2`.
    pub(crate) wanted: String,
    pub(crate) met: bool,
}

impl Machine {
    pub(crate) fn here(directory: &Path) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let line = |text: &str, key: &str| {
            let found = text.lines().find(|line| line.starts_with(key));
            found.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
        };
        let memory = line(&read("/proc/meminfo"), "MemTotal");
        let kib: f64 = memory.split_whitespace().next().and_then(|text| text.parse().ok()).unwrap_or(0.0);
        let run = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).output();
            output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
        };
        let load = read("/proc/loadavg");
        Self {
            date: date(SystemTime::now()),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            processor: line(&read("/proc/cpuinfo"), "model name"),
            memory_gib: kib / 1024.0 / 1024.0,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            file_system: run("stat", &["-f", "-c", "%T", &directory.display().to_string()]),
            commit: run("git", &["describe", "--always", "--dirty"]),
            load_before: load.split_whitespace().next().and_then(|text| text.parse().ok()).unwrap_or(0.0),
        }
    }
}

/// `2026-11-21`, UTC (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days).
fn date(time: SystemTime) -> String {
    let days = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400) + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    format!("{}-{month:02}-{day:02}", year + era * 400 + u64::from(month <= 2))
}

fn point<'a>(points: &'a [Point], system: &str, operation: &str, clients: usize) -> Option<&'a Point> {
    points.iter().find(|point| point.system == system && point.operation == operation && point.clients == clients)
}

fn thousands(per_second: f64) -> String {
    match per_second {
        0.0..10_000.0 => format!("{:.2} k", per_second / 1e3),
        10_000.0..100_000.0 => format!("{:.1} k", per_second / 1e3),
        _ => format!("{:.0} k", per_second / 1e3),
    }
}

fn millis(micros: u64) -> String {
    let millis = micros as f64 / 1e3;
    if millis < 10.0 { format!("{millis:.2}") } else { format!("{millis:.0}") }
}

/// Returns the target ratios for which there are figures. Those with Redis occur once for each of its configurations.
pub(crate) fn ratios(points: &[Point]) -> Vec<Ratio> {
    let mut found = Vec::new();
    let mut add = |what: String, ours: Option<f64>, theirs: Option<f64>, wanted: f64, most: bool| {
        let (Some(ours), Some(theirs)) = (ours, theirs) else { return };
        let ratio = ours / theirs;
        let met = if most { ratio <= wanted } else { ratio >= wanted };
        let wanted = format!("at {} {wanted}", if most { "most" } else { "least" });
        found.push(Ratio { what, ours, theirs, ratio, wanted, met });
    };
    let speed = |system: &str, operation: &str, clients: usize| {
        point(points, system, operation, clients).map(|point| point.ops_per_second)
    };
    let p50 = |system: &str, operation: &str| point(points, system, operation, 1).map(|point| point.p50_us as f64);
    // The comparison by library, as users see it, comes first.
    for theirs in [REDIS_SHAPES[0], VALKEY] {
        for (operation, wanted) in [("put", 1.0), ("get", 1.2)] {
            for clients in [64, 256] {
                let what = format!("{operation}s per second, {clients} clients: {ARCHON_LIBRARY} / {theirs}");
                add(what, speed(ARCHON_LIBRARY, operation, clients), speed(theirs, operation, clients), wanted, false);
            }
            let what = format!("{operation} p50 of one client, µs: {ARCHON_LIBRARY} / {theirs}");
            add(what, p50(ARCHON_LIBRARY, operation), p50(theirs, operation), 1.1, true);
        }
    }
    // The same program against either.
    for (ours, theirs) in ARCHON_REDIS.into_iter().zip([REDIS_SHAPES[0], REDIS_SHAPES[2]]) {
        for operation in ["put", "get"] {
            let what = format!("{operation}s per second, 256 clients: {ours} / {theirs}");
            add(what, speed(ours, operation, 256), speed(theirs, operation, 256), 1.0, false);
        }
    }
    for (ours, theirs) in [(ARCHON_LIBRARY, VALKEY_SYNCED[0]), (ARCHON, VALKEY_SYNCED[1])] {
        for clients in [64, 256] {
            let what = format!("puts per second, {clients} clients: {ours} / {theirs}");
            add(what, speed(ours, "put", clients), speed(theirs, "put", clients), 3.0, false);
        }
    }
    for theirs in REDIS_SHAPES.into_iter().skip(1).chain([VALKEY_PIPELINED]) {
        for (operation, wanted) in [("put", 1.2), ("get", 2.0)] {
            let what = format!("{operation}s per second, 256 clients: {ARCHON} / {theirs}");
            add(what, speed(ARCHON, operation, 256), speed(theirs, operation, 256), wanted, false);
        }
        let what = format!("put p50 of one client, µs: {ARCHON} / {theirs}");
        add(what, p50(ARCHON, "put"), p50(theirs, "put"), 1.5, true);
    }
    for (operation, wanted) in [("put", 10.0), ("get", 40.0)] {
        let what = format!("{operation}s per second, 256 clients: {ARCHON} / etcd");
        add(what, speed(ARCHON, operation, 256), speed("etcd", operation, 256), wanted, false);
    }
    found
}

impl Report {
    fn rungs(&self) -> Vec<usize> {
        let mut clients: Vec<usize> = self.points.iter().map(|point| point.clients).collect();
        clients.sort_unstable();
        clients.dedup();
        clients
    }

    fn table(&self, operation: &str, cell: impl Fn(&Point) -> String) -> String {
        let seen = |used: &&SystemUnderTest| {
            self.points.iter().any(|point| point.operation == operation && point.system == used.name)
        };
        let names: Vec<&str> = self.systems.iter().filter(seen).map(|used| used.name.as_str()).collect();
        let mut text = format!("| clients | {} |\n|---:|{}\n", names.join(" | "), "---:|".repeat(names.len()));
        for clients in self.rungs() {
            let cells = names
                .iter()
                .map(|name| point(&self.points, name, operation, clients).map_or_else(|| "–".to_owned(), &cell));
            text += &format!("| {clients} | {} |\n", cells.collect::<Vec<_>>().join(" | "));
        }
        text
    }

    fn scans(&self, text: &mut String) {
        if !self.points.iter().any(|point| point.operation == "scan") {
            return;
        }
        *text += "**Scans** of keys in order, each from a random key: MB/s · p50 ms · p99 ms\n\n";
        let cell = |point: &Point| {
            let (p50, p99) = (millis(point.p50_us), millis(point.p99_us));
            format!("{:.0} · {p50} · {p99}", point.megabytes_read_per_second)
        };
        *text += &self.table("scan", cell);
        text.push('\n');
    }

    /// Returns the report as a Markdown page whose pictures are in the same directory.
    pub(crate) fn markdown(&self) -> String {
        let mut text = self.summary();
        self.tables(&mut text);
        text
    }

    /// Returns conditions and ratios as Markdown.
    pub(crate) fn summary(&self) -> String {
        let machine = &self.machine;
        let mut text = format!(
            "Measured on {} at commit `{}`: {} cores ({}), {:.0} GiB, Linux {}, {}; one `fdatasync` of 4 KiB took {:.2} ms \
             (p50; p99 {:.2} ms) in the same run. {} of {} s per figure, the systems in turn, median round; \
             {} keys{}, values of {} bytes, {} driving thread{}. Load average before the run: {:.2}.\n\n```text\n{}\n```\n\n",
            machine.date,
            machine.commit,
            machine.cores,
            machine.processor,
            machine.memory_gib,
            machine.kernel,
            machine.file_system,
            self.fdatasync.p50_us / 1e3,
            self.fdatasync.p99_us / 1e3,
            match self.rounds {
                1 => "One round".to_owned(),
                rounds => format!("{rounds} rounds"),
            },
            self.seconds,
            self.keys,
            self.zipf.map_or_else(String::new, |theta| format!(" chosen by Zipf's law with a skew of {theta}")),
            self.value_bytes,
            self.threads,
            if self.threads == 1 { "" } else { "s" },
            machine.load_before,
            self.command
        );
        if !self.ratios.is_empty() {
            text += "| ratio | Archon | other | measured | aim | |\n|---|---:|---:|---:|---|---|\n";
            for ratio in &self.ratios {
                let met = if ratio.met { "met" } else { "**not met**" };
                text += &format!(
                    "| {} | {:.0} | {:.0} | {:.2} | {} | {met} |\n",
                    ratio.what, ratio.ours, ratio.theirs, ratio.ratio, ratio.wanted
                );
            }
            text.push('\n');
        }
        text
    }

    fn tables(&self, text: &mut String) {
        self.scans(text);
        for (operation, title) in [("put", "Puts"), ("get", "Gets")] {
            if !self.points.iter().any(|point| point.operation == operation) {
                continue;
            }
            *text += &format!("**{title}**: per second · p50 ms · p99 ms\n\n");
            let speed = |point: &Point| {
                let (speed, p50, p99) = (thousands(point.ops_per_second), millis(point.p50_us), millis(point.p99_us));
                format!("{speed} · {p50} · {p99}")
            };
            *text += &self.table(operation, speed);
            *text += &format!("\n**{title}**: µs of CPU per operation, all servers + driving program\n\n");
            *text += &self.table(operation, |point| format!("{:.1} + {:.1}", point.server_cpu_us, point.client_cpu_us));
            *text += &format!(
                "\n![{title} per second over clients](./{operation}-throughput.svg)\n\
                 ![p99 of {operation}s over clients](./{operation}-p99.svg)\n\n"
            );
        }
        for used in &self.systems {
            *text += &format!("- **{}** ({}): {}.\n", used.name, used.version, used.shape);
        }
        for skipped in &self.skipped {
            *text += &format!("- {skipped}\n");
        }
    }

    /// Returns the plots: file name and text.
    pub(crate) fn plots(&self) -> Vec<(String, String)> {
        let mut plots = Vec::new();
        for (operation, title) in [("put", "Puts"), ("get", "Gets")] {
            let series = |value: fn(&Point) -> f64| -> Vec<Series> {
                let of = |name: &str| {
                    let of = self.points.iter().filter(|point| point.operation == operation && point.system == name);
                    Series {
                        name: name.to_owned(),
                        points: of.map(|point| (point.clients as f64, value(point))).collect(),
                    }
                };
                self.systems.iter().map(|used| of(&used.name)).filter(|series| !series.points.is_empty()).collect()
            };
            let speeds = series(|point| point.ops_per_second);
            if speeds.is_empty() {
                continue;
            }
            let picture = plot(&format!("{title} per second"), "clients", "per second", &speeds);
            plots.push((format!("{operation}-throughput.svg"), picture));
            let slow = series(|point| point.p99_us as f64 / 1e3);
            let picture = plot(&format!("{title}: 99th percentile of latency"), "clients", "milliseconds", &slow);
            plots.push((format!("{operation}-p99.svg"), picture));
        }
        plots
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn point(system: &str, operation: &'static str, clients: usize, ops_per_second: f64, p50_us: u64) -> Point {
        let (system, rounds) = (system.to_owned(), vec![]);
        let (p99_us, server_cpu_us, client_cpu_us) = (p50_us * 2, 1.0, 1.0);
        let megabytes_read_per_second = 0.0;
        Point {
            system,
            operation,
            clients,
            ops_per_second,
            p50_us,
            p99_us,
            megabytes_read_per_second,
            server_cpu_us,
            client_cpu_us,
            rounds,
        }
    }

    #[test]
    fn redis_is_compared_in_every_configuration() {
        let points = [
            point("Archon, R = 2", "put", 256, 120.0, 1),
            point("Redis, own connections", "put", 256, 50.0, 1),
            point("Redis, pipelined", "put", 256, 100.0, 1),
            point("Archon, R = 2", "put", 1, 1.0, 320),
            point("Redis, own connections", "put", 1, 1.0, 200),
            point("Redis, pipelined", "put", 1, 1.1, 210),
            point("Archon, R = 2, library", "get", 64, 30.0, 1),
            point("Redis, redis-rs", "get", 64, 20.0, 1),
            point("Archon, R = 2, library", "put", 64, 30.0, 1),
            point("Valkey, WAITAOF, own connections", "put", 64, 12.0, 1),
        ];
        let found = ratios(&points);
        let found: Vec<(f64, bool)> = found.iter().map(|ratio| ((ratio.ratio * 100.0).round(), ratio.met)).collect();
        assert_eq!(
            found,
            [(150.0, true), (250.0, false), (240.0, true), (160.0, false), (120.0, true), (152.0, false)]
        );
    }

    #[test]
    fn dates_are_formatted() {
        let at = |days: u64| date(SystemTime::UNIX_EPOCH + Duration::from_secs(days * 86_400));
        assert_eq!(
            (at(0), at(59), at(11_016), at(20_778)),
            ("1970-01-01".into(), "1970-03-01".into(), "2000-02-29".into(), "2026-11-21".into())
        );
    }
}
