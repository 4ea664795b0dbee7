//! Shared parts of the examples, so that each can focus on one subject: the cluster and its end. Also the examples of
//! more than a page: [`counter`], a whole service, and [`lease_rows`], leases without a coordinator.

pub mod counter;
pub mod lease_rows;

use archon_local_cluster::{Cluster, SMALL};
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

/// Compiles the Rust examples of these pages with the tests. A published crate could not: it has no files of other folders.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../README.md")]
    struct Readme;
    #[doc = include_str!("../../docs/concepts/leases.md")]
    struct Leases;
}

/// Result of an example: an error is printed, and the exit code is 1.
pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Runs an example from its `main`.
///
/// The coordinators and nodes of an example's own cluster are processes of the example's program with other arguments:
/// one command builds everything, and nothing has to be installed.
pub fn run(example: impl AsyncFnOnce() -> Result) -> ExitCode {
    if matches!(std::env::args().nth(1).as_deref(), Some("coordinator" | "node")) {
        return archon_cli::main_with(std::env::args_os());
    }
    // Dropping the example ends its cluster.
    finish(async {
        tokio::select! {
            ended = example() => ended,
            stopped = stopped() => stopped.and(Err("stopped before its end".into())),
        }
    })
}

/// Runs to the end, on this thread: the processes of a cluster are tied to the thread that starts them.
pub(crate) fn finish(program: impl Future<Output = Result>) -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().map_err(Into::into);
    match runtime.and_then(|runtime| runtime.block_on(program)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the endpoints of the user's own cluster, separated by commas: the first argument, else
/// `ARCHON_COORDINATORS`.
pub fn endpoints() -> Option<Vec<String>> {
    let named = std::env::args().nth(1).or_else(|| std::env::var("ARCHON_COORDINATORS").ok())?;
    Some(named.split(',').map(|endpoint| endpoint.trim().to_owned()).collect())
}

/// Starts a cluster on this machine: three coordinators and three nodes, with three copies of everything. It ends when
/// it is dropped.
///
/// # Errors
/// The reason of the failure.
pub async fn cluster() -> Result<Cluster> {
    println!("Starting a cluster on this machine: three coordinators and three nodes.");
    let cluster = Cluster::start(std::env::current_exe()?, SMALL).await?;
    println!("It runs in {}.\n", cluster.directory().display());
    Ok(cluster)
}

/// Waits for a stop signal: Ctrl-C, a service manager's, or a hang-up of the terminal.
pub(crate) async fn stopped() -> Result {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    Ok(())
}
