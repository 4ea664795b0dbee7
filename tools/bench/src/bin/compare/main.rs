//! Comparison of Archon with etcd, Redis Cluster, Valkey and ZooKeeper, each configured to keep acknowledged writes, on one
//! machine, driven by one program with one workload.
//!
//! ```text
//! cargo run --release -p archon-bench --bin compare -- [--out DIR] [--document FILE]
//! ```
//!
//! Systems that are not installed are skipped with a message. Every value that is read is checked.

mod archon;
mod disk;
mod etcd;
mod measure;
mod pipe;
mod plot;
mod redis;
mod redis_benchmark;
mod redis_rs;
mod report;
mod resp;
mod system;
mod zookeeper;

use anyhow::Context;
use archon_load::{Distribution, Mix};
use clap::{Parser, ValueEnum};
use measure::Ladder;
use redis::Flavor;
use report::{Machine, Report, SystemUnderTest};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;
use system::{STOP, System};

/// Allocator of `archon` itself: its processes are this program in another role.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// First line of the section of a document that is replaced.
const BEGIN: &str = "<!-- comparison begins; written by the tool -->";
const END: &str = "<!-- comparison ends -->";

/// A system to compare.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum SystemChoice {
    Archon,
    Redis,
    Valkey,
    Etcd,
    Zookeeper,
}

/// An operation to compare.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Operation {
    Put,
    Get,
    /// Pages of keys in order; of systems that can do that.
    Scan,
}

impl Operation {
    const fn mix(self, limit: u32) -> Mix {
        match self {
            Self::Put => Mix::Put,
            Self::Get => Mix::Get,
            Self::Scan => Mix::Scan { limit },
        }
    }
}

/// Compares Archon with etcd, Redis Cluster, Valkey and ZooKeeper on this machine.
#[derive(Parser, Clone, Debug)]
struct Args {
    /// What is compared.
    #[arg(long, value_delimiter = ',', default_value = "archon,redis,valkey,etcd,zookeeper")]
    systems: Vec<SystemChoice>,
    /// What is measured.
    #[arg(long, value_delimiter = ',', default_value = "put,get")]
    operations: Vec<Operation>,
    /// Numbers of clients.
    #[arg(long, value_delimiter = ',', default_value = "1,4,16,64,256,1024")]
    clients: Vec<u32>,
    /// Rounds; the median of each figure counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seconds per figure and round.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Seconds before each that are not counted.
    #[arg(long, default_value_t = 0.5)]
    warmup: f64,
    /// How many keys.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    keys: u64,
    /// Bytes of each value.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    value_bytes: u32,
    /// Choose keys by Zipf's law with this skew, as YCSB does with 0.99, instead of all alike.
    #[arg(long, value_name = "THETA")]
    zipf: Option<f64>,
    /// Entries per scan.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    scan_limit: u32,
    /// Threads that drive the clients.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    /// Run this `archon` instead of the one built into the tool.
    #[arg(long)]
    program: Option<String>,
    /// Write `comparison.json`, `comparison.md` and the plots into this directory.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Put conditions and ratios into this document, between its two marks.
    #[arg(long)]
    document: Option<PathBuf>,
    /// Print JSON instead of the tables.
    #[arg(long)]
    json: bool,
}

/// Acts as `archon` if the first argument is one of its verbs: the cluster's processes are this program in another
/// role.
fn become_archon() -> Option<ExitCode> {
    let first = std::env::args().nth(1)?;
    let verbs = ["coordinator", "node", "status", "table", "partition", "rebalance", "kv"];
    verbs.contains(&first.as_str()).then(|| archon_cli::main_with(std::env::args_os()))
}

fn main() -> anyhow::Result<ExitCode> {
    if let Some(code) = become_archon() {
        return Ok(code);
    }
    let args = Args::parse();
    anyhow::ensure!(args.seconds >= 0.1 && args.seconds <= 3_600.0, "--seconds must be between 0.1 and 3600");
    anyhow::ensure!(args.warmup >= 0.0 && args.warmup <= 3_600.0, "--warmup must be between 0 and 3600");
    anyhow::ensure!(args.clients.iter().all(|clients| (1..=10_000).contains(clients)), "--clients must be 1 to 10000");
    anyhow::ensure!(args.zipf.is_none_or(|theta| theta > 0.0 && theta < 1.0), "--zipf must be between 0 and 1");
    raise_limit()?;
    // The servers end with the comparison in every case: it runs on a thread of its own and checks STOP, so that
    // everything is dropped in order.
    let comparing = args.clone();
    let thread = std::thread::Builder::new().name("compare".into()).spawn(move || compare(&comparing))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        use tokio::signal::unix::{SignalKind, signal};
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        while !thread.is_finished() {
            tokio::select! {
                _ = interrupt.recv() => STOP.store(true, Ordering::Relaxed),
                _ = terminate.recv() => STOP.store(true, Ordering::Relaxed),
                () = tokio::time::sleep(Duration::from_millis(100)) => {}
            }
        }
        Ok::<_, std::io::Error>(())
    })?;
    let report = thread.join().map_err(|_| anyhow::anyhow!("the comparison panicked"))??;
    publish(&args, &report)?;
    Ok(ExitCode::SUCCESS)
}

/// Raises the limit of open files: each client needs a connection per server.
fn raise_limit() -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .context("raising the limit of open files")
}

fn compare(args: &Args) -> anyhow::Result<Report> {
    let directory = tempfile::Builder::new().prefix("archon-compare-").tempdir()?;
    let machine = Machine::here(directory.path());
    let (mut systems, mut used, mut skipped) = (Vec::new(), Vec::new(), Vec::new());
    for which in
        [SystemChoice::Archon, SystemChoice::Redis, SystemChoice::Valkey, SystemChoice::Etcd, SystemChoice::Zookeeper]
    {
        if !args.systems.contains(&which) {
            continue;
        }
        match start(which, args, directory.path())? {
            Some((version, started)) => {
                let name = |system: &dyn System| system.name().to_owned();
                used.extend(started.iter().map(|system| SystemUnderTest {
                    name: name(system.as_ref()),
                    version: version.clone(),
                    shape: system.shape(),
                }));
                systems.extend(started);
            }
            None => skipped.push(format!("{which:?} is not installed here and was left out")),
        }
    }
    skipped.iter().for_each(|line| eprintln!("{line}"));
    anyhow::ensure!(!systems.is_empty(), "none of the systems is installed");
    let ladder = Ladder {
        clients: args.clients.iter().map(|clients| *clients as usize).collect(),
        mixes: args.operations.iter().map(|operation| operation.mix(args.scan_limit)).collect(),
        rounds: args.rounds as usize,
        length: Duration::from_secs_f64(args.seconds),
        warm_up: Duration::from_secs_f64(args.warmup),
        keys: args.keys,
        value_bytes: args.value_bytes as usize,
        distribution: args.zipf.map_or(Distribution::Uniform, |theta| Distribution::Zipfian { theta }),
        threads: args.threads as usize,
    };
    ladder.load(&systems)?;
    let (points, fdatasync) = ladder.climb(&systems, directory.path())?;
    let command: Vec<String> = std::env::args().skip(1).collect();
    let ratios = report::ratios(&points);
    Ok(Report {
        machine,
        command: format!("cargo run --release -p archon-bench --bin compare -- {}", command.join(" ")),
        rounds: ladder.rounds,
        seconds: args.seconds,
        keys: args.keys,
        value_bytes: ladder.value_bytes,
        zipf: args.zipf,
        threads: ladder.threads,
        fdatasync,
        systems: used,
        skipped,
        points,
        ratios,
    })
}

/// Version, and the configurations to measure; `None` if not installed.
type ComparedSystem = Option<(String, Vec<Box<dyn System>>)>;

fn start(which: SystemChoice, args: &Args, directory: &Path) -> anyhow::Result<ComparedSystem> {
    match which {
        SystemChoice::Archon => {
            let version = format!("archon {}", env!("CARGO_PKG_VERSION"));
            Ok(Some((version, archon::start(args.program.as_deref(), args.keys)?)))
        }
        SystemChoice::Redis => redis::start(Flavor::Redis, directory).context("starting Redis Cluster"),
        SystemChoice::Valkey => redis::start(Flavor::Valkey, directory).context("starting Valkey"),
        SystemChoice::Etcd => etcd::start(directory).context("starting etcd"),
        SystemChoice::Zookeeper => zookeeper::start(directory).context("starting ZooKeeper"),
    }
}

fn publish(args: &Args, report: &Report) -> anyhow::Result<()> {
    let json = serde_json::to_string_pretty(report)?;
    let markdown = report.markdown();
    if let Some(out) = &args.out {
        std::fs::create_dir_all(out).with_context(|| format!("making {}", out.display()))?;
        std::fs::write(out.join("comparison.json"), &json)?;
        std::fs::write(out.join("comparison.md"), &markdown)?;
        for (name, text) in report.plots() {
            std::fs::write(out.join(name), text)?;
        }
    }
    if let Some(document) = &args.document {
        let text = std::fs::read_to_string(document).with_context(|| format!("reading {}", document.display()))?;
        std::fs::write(document, replaced(&text, &report.summary())?)?;
    }
    println!("{}", if args.json { &json } else { &markdown });
    Ok(())
}

/// Returns the document with the new text between its marks.
fn replaced(document: &str, section: &str) -> anyhow::Result<String> {
    let missing = || format!("the document needs the lines {BEGIN:?} and {END:?}");
    let (before, rest) = document.split_once(BEGIN).with_context(missing)?;
    let (_, after) = rest.split_once(END).with_context(missing)?;
    Ok(format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", section.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_replaced_between_the_marks() {
        let document = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let once = replaced(&document, "new\n").unwrap();
        assert_eq!(once, format!("before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"));
        assert_eq!(replaced(&once, "new\n").unwrap(), once);
        assert!(replaced("nothing", "new").is_err());
    }
}
