//! A compared system: how it is started, and how load is applied.

use anyhow::Context;
use archon_load::{Connector, Mix, Run, Workload};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Set when the user ends the comparison.
pub(crate) static STOP: AtomicBool = AtomicBool::new(false);

/// Number of library clients in a program, shared by all its tasks.
pub(crate) const LIBRARY_CLIENTS: usize = 4;
/// Number of their threads.
pub(crate) const LIBRARY_THREADS: usize = 2;

/// Time-out of a system's start.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(90);
/// Maximum overrun of a run.
const OVERTIME: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(20);

/// One way of using a running system. Its processes end when it is dropped.
pub(crate) trait System {
    /// Returns its name in the report.
    fn name(&self) -> &str;

    /// Describes its use, and the guarantees of its answers.
    fn shape(&self) -> String;

    /// Returns the process ids of its servers.
    fn pids(&self) -> Vec<u32>;

    /// Returns the number of connections that this many clients share.
    fn connections(&self, clients: usize) -> usize;

    /// Returns the number of threads that drive it, given the requested number.
    fn threads(&self, asked: usize) -> usize {
        asked
    }

    /// Returns true if it is measured by these operations.
    fn does(&self, mix: Mix) -> bool {
        !matches!(mix, Mix::Scan { .. })
    }

    /// Returns true if it has keys of its own; else another system of the same servers writes them.
    fn has_own_keys(&self) -> bool {
        true
    }

    /// Applies load.
    ///
    /// # Errors
    /// If one operation failed: figures with failures are not reported.
    fn run(&self, workload: &Workload) -> anyhow::Result<RunOutcome>;
}

/// The outcome of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct RunOutcome {
    pub(crate) ops_per_second: f64,
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    /// Bytes of keys and values read per second.
    pub(crate) bytes_read_per_second: f64,
    /// Divisor for the CPU time of the servers.
    pub(crate) ops_with_warm_up: u64,
    /// CPU time of the driving program per operation, in microseconds.
    pub(crate) client_cpu_us: f64,
}

/// Runs a workload to its end, or until the user ends it.
pub(crate) fn drive<C: Connector>(connect: &Arc<C>, workload: &Workload) -> anyhow::Result<RunOutcome> {
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
    Ok(RunOutcome {
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

/// Polls until `ready` returns a value.
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

/// Returns the path of a program, if installed.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths).map(|directory| directory.join(name)).find(|path| path.is_file())
}

/// Returns the first line of a program's version output.
pub(crate) fn version(program: &Path, arguments: &[&str]) -> String {
    let output = std::process::Command::new(program).args(arguments).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("version unknown").trim().to_owned()
}

/// Runs a future on the current thread.
pub(crate) fn now<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    let limited = async { tokio::time::timeout(Duration::from_secs(2), work).await.context("no answer within 2 s")? };
    local.block_on(&runtime, limited)
}
