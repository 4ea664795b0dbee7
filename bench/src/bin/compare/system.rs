//! A system that is compared: how it is started, and how load is put on it.

use anyhow::Context;
use archon_load::{Connect, Mix, Run, Workload};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Set when the reader wants the comparison to end.
pub(crate) static STOP: AtomicBool = AtomicBool::new(false);

/// How a program holds a client library: a few clients, which all its tasks share.
pub(crate) const LIBRARY_CLIENTS: usize = 4;
/// And the threads that they are on.
pub(crate) const LIBRARY_THREADS: usize = 2;

/// How long a system may take to start.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(90);
/// How much longer than asked for a run may take.
const OVERTIME: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(20);

/// One way of using a running system. Its processes end when it is dropped.
pub(crate) trait System {
    /// Its name in the report.
    fn name(&self) -> &str;

    /// How it is used, and what its answers promise.
    fn shape(&self) -> String;

    /// Its servers.
    fn pids(&self) -> Vec<u32>;

    /// Connections that so many clients share.
    fn connections(&self, clients: usize) -> usize;

    /// Threads that drive it, of so many that were asked for.
    fn threads(&self, asked: usize) -> usize {
        asked
    }

    /// Whether it is to be measured by these operations.
    fn does(&self, mix: Mix) -> bool {
        !matches!(mix, Mix::Scan { .. })
    }

    /// Puts load on it.
    ///
    /// # Errors
    /// If one operation failed: a figure with failures in it is none.
    fn run(&self, workload: &Workload) -> anyhow::Result<Seen>;
}

/// The outcome of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Seen {
    pub(crate) ops_per_second: f64,
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    /// Bytes of keys and values read per second.
    pub(crate) bytes_read_per_second: f64,
    /// What the CPU time of the servers is to be divided by.
    pub(crate) ops_with_warm_up: u64,
    /// CPU time of the driving program per operation, in microseconds.
    pub(crate) client_cpu_us: f64,
}

/// Runs a workload to its end, or until the reader has enough.
pub(crate) fn drive<C: Connect>(connect: &Arc<C>, workload: &Workload) -> anyhow::Result<Seen> {
    let began = Instant::now();
    let limit = OVERTIME + workload.warm_up + length(workload);
    let run = Run::start(connect, workload)?;
    while !run.is_over() {
        if STOP.load(Ordering::Relaxed) {
            run.stop();
            anyhow::bail!("interrupted");
        }
        if began.elapsed() > limit {
            run.stop();
            anyhow::bail!("the run was not over after {limit:?}");
        }
        std::thread::sleep(POLL);
    }
    let measured = run.wait()?;
    anyhow::ensure!(measured.failed == 0, "{} operations failed: {:?}", measured.failed, measured.failures);
    let latency = match workload.mix {
        Mix::Get => measured.get,
        Mix::Scan { .. } => measured.scan,
        _ => measured.put,
    };
    let latency = latency.context("nothing succeeded")?;
    Ok(Seen {
        ops_per_second: measured.ops_per_second,
        p50_us: latency.p50_us,
        p99_us: latency.p99_us,
        bytes_read_per_second: measured.bytes_read as f64 / measured.seconds.max(f64::MIN_POSITIVE),
        ops_with_warm_up: measured.ops_with_warm_up,
        client_cpu_us: measured.client_cpu_us_per_op,
    })
}

fn length(workload: &Workload) -> Duration {
    match workload.end {
        archon_load::End::After(length) => length,
        archon_load::End::Operations(_) => Duration::from_secs(600),
    }
}

/// Polls until `ready` gives something.
pub(crate) fn until<T>(what: &str, mut ready: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let began = Instant::now();
    loop {
        anyhow::ensure!(!STOP.load(Ordering::Relaxed), "interrupted");
        match ready() {
            Ok(value) => return Ok(value),
            Err(error) if began.elapsed() > START_LIMIT => {
                return Err(error.context(format!("waited {START_LIMIT:?} for {what}")));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Where a program is, if it is installed.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths).map(|directory| directory.join(name)).find(|path| path.is_file())
}

/// What a program says when asked for its version, first line.
pub(crate) fn version(program: &Path, arguments: &[&str]) -> String {
    let output = std::process::Command::new(program).args(arguments).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("version unknown").trim().to_owned()
}

/// Runs something asynchronous here and now.
pub(crate) fn now<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    let limited = async { tokio::time::timeout(Duration::from_secs(2), work).await.context("no answer within 2 s")? };
    local.block_on(&runtime, limited)
}
