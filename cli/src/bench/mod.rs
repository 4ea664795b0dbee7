//! `archon bench put | get | mixed | scan | failover | rebalance | split | grow | attack`: puts load on a cluster and
//! prints the results.

mod attack;
mod disturb;
mod grow;
mod load;
mod local;
mod moves;
mod nodes;
mod plain_copy;
mod report;
mod rounds;
mod split;
mod victim;

use crate::args::{BenchArgs, BenchVerb, Connection, LoadArgs, ReadArgs};
use crate::connect;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use archon_load::{Archon, End, Mix, Run, Workload, WorkloadOutcome};
use indicatif::{ProgressBar, ProgressStyle};
use nodes::NodeCounters;
use report::Report;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Clients that write the keys before a measurement of reads.
const LOADERS: usize = 256;
/// Interval of checks for the end of a run.
const POLL: Duration = Duration::from_millis(50);

/// Workload of a measurement, and the need to write its keys first.
struct Plan {
    table: String,
    workload: Workload,
    load_first: bool,
}

impl Plan {
    fn new(table: &str, mix: Mix, args: &LoadArgs, load_first: bool) -> Self {
        let workload = Workload {
            mix,
            keys: args.keys,
            value_bytes: args.value_bytes as usize,
            distribution: args.distribution,
            clients: args.clients as usize,
            connections: args.connections as usize,
            threads: args.threads as usize,
            warm_up: args.warmup,
            end: args.operations.map_or(End::After(args.duration), End::Operations),
            rate: args.rate,
        };
        Self { table: table.to_owned(), workload, load_first }
    }

    fn reading(table: &str, mix: Mix, args: &ReadArgs) -> Self {
        Self::new(table, mix, &args.load, !args.no_load)
    }
}

/// Measures and prints. Runs the clients on separate threads, so it must not be called on a runtime.
///
/// # Errors
/// Invalid options, no cluster reachable, or failed operations.
pub(crate) fn run(args: &BenchArgs, connection: &Connection) -> Result<Exit, Failure> {
    let plan = match &args.verb {
        // Writes need no existing keys.
        BenchVerb::Put(load) => Plan::new(&args.table, Mix::Put, load, false),
        BenchVerb::Get(read) => Plan::reading(&args.table, Mix::Get, read),
        BenchVerb::Mixed { read_percent, read } => {
            Plan::reading(&args.table, Mix::Mixed { get_percent: *read_percent }, read)
        }
        BenchVerb::Scan { limit, read } => Plan::reading(&args.table, Mix::Scan { limit: *limit }, read),
        BenchVerb::Failover(probe) => {
            let output = Output::new(connection.output);
            return on_runtime(disturb::failover(probe, &args.table, connection, &output));
        }
        BenchVerb::Rebalance(probe) => {
            let output = Output::new(connection.output);
            return on_runtime(moves::rebalance(probe, &args.table, connection, &output));
        }
        BenchVerb::Split(split) => {
            let output = Output::new(connection.output);
            return on_runtime(split::run(split, connection, &output));
        }
        BenchVerb::Grow(grow) => {
            let output = Output::new(connection.output);
            return on_runtime(grow::run(grow, connection, &output));
        }
        BenchVerb::Attack(attack) => {
            let output = Output::new(connection.output);
            return on_runtime(attack::run(attack, &args.table, connection, &output));
        }
    };
    start(&plan, connection)
}

fn start(plan: &Plan, connection: &Connection) -> Result<Exit, Failure> {
    plan.workload.check().map_err(|error| {
        Failure::usage(error.to_string(), "change that option; `archon bench put --help` explains them")
    })?;
    on_runtime(measure(plan, connection, &Output::new(connection.output)))
}

/// Runs `work` on this thread, because a local cluster is tied to it.
fn on_runtime(work: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    crate::run_on(&mut tokio::runtime::Builder::new_current_thread(), work)
}

/// Returns the table of the cluster to put under load.
fn archon(table: &str, connection: &Connection) -> Result<Archon, Failure> {
    Ok(Archon {
        endpoints: connection.coordinators.clone(),
        table: table.to_owned(),
        timeout: connection.timeout,
        transport: connect::transport(connection)?,
    })
}

async fn measure(plan: &Plan, connection: &Connection, output: &Output) -> Result<Exit, Failure> {
    // Fails at once, with the message of other verbs, if the cluster is unreachable.
    let client = connect::client(connection, &plan.table, None).await?;
    let archon = Arc::new(archon(&plan.table, connection)?);
    let workload = &plan.workload;
    if plan.load_first {
        let loading = workload.each_key_once(Mix::Load, workload.connections.max(LOADERS));
        let (loaded, stopped) = watched("writing the keys", &archon, &loading, output).await?;
        if stopped {
            return Err(Failure::failed("interrupted while the keys were written; nothing was measured"));
        }
        settled(&loaded)?;
    }
    let admin = connect::admin(connection)?;
    let before = NodeCounters::now(&admin).await;
    let (measured, stopped) = watched("measuring", &archon, workload, output).await?;
    drop(client);
    // An unreachable coordinator or node does not invalidate the other results.
    let cost = match (before, NodeCounters::now(&admin).await) {
        (Ok(before), Ok(after)) => Some(before.until(&after, measured.ops_with_warm_up)),
        (Err(error), _) | (_, Err(error)) => {
            output.talk(format!("the resource use of the nodes is unknown: {error}"));
            None
        }
    };
    let report = Report::new(workload, measured, stopped, cost);
    report.print(output)?;
    settled(&report.measured)?;
    match stopped {
        true => Err(Failure::failed(format!("interrupted after {:.1} s", report.measured.seconds))),
        false => Ok(Exit::Done),
    }
}

/// Runs a workload, shows its progress, and stops it at Ctrl-C; returns true if that happened.
async fn watched(
    what: &str,
    archon: &Arc<Archon>,
    workload: &Workload,
    output: &Output,
) -> Result<(WorkloadOutcome, bool), Failure> {
    let run = Run::start(archon, workload)?;
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    let mut progress = Progress::new(what, output);
    let mut stopped = false;
    while !run.is_over() {
        tokio::select! {
            _ = &mut interrupted, if !stopped => {
                stopped = true;
                run.stop();
            }
            () = tokio::time::sleep(POLL) => progress.show(run.progress()),
        }
    }
    progress.finish();
    Ok((run.wait()?, stopped))
}

/// Waits for the end of a run without blocking concurrent work.
async fn over(run: Run) -> Result<WorkloadOutcome, Failure> {
    while !run.is_over() {
        tokio::time::sleep(POLL).await;
    }
    Ok(run.wait()?)
}

/// Fails the verb if an operation failed, with the exit code of its kind.
fn settled(measured: &WorkloadOutcome) -> Result<(), Failure> {
    let Some((kind, worst)) = measured.failures.iter().max_by_key(|(_, failed)| failed.count) else { return Ok(()) };
    let failure = archon_load::Failure::new(kind.clone(), worst.example.clone());
    let Failure { exit, kind: told, remedy, .. } = failure.into();
    let message =
        format!("{} operations failed, {} of them by {kind}: {}", measured.failed, worst.count, worst.example);
    // If most operations succeeded, the failed ones are a result and no sign of an unreachable cluster.
    let exit = if measured.gave_up || measured.ops == 0 { exit } else { Exit::Failed };
    Err(Failure { kind: told, remedy, ..Failure::new(exit, message) })
}

/// Progress line on a terminal, with the rate of every second.
struct Progress {
    bar: Option<ProgressBar>,
    looked: Instant,
    done: u64,
}

impl Progress {
    fn new(what: &str, output: &Output) -> Self {
        let bar = output.stderr_is_terminal.then(|| {
            let bar = ProgressBar::new_spinner();
            let style = ProgressStyle::with_template("{spinner} {prefix} {elapsed}  {wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar.set_prefix(what.to_owned());
            bar.tick();
            bar
        });
        Self { bar, looked: Instant::now(), done: 0 }
    }

    fn show(&mut self, (done, failed): (u64, u64)) {
        let Some(bar) = &self.bar else { return };
        let since = self.looked.elapsed();
        if since < Duration::from_secs(1) {
            return;
        }
        let per_second = (done - self.done) as f64 / since.as_secs_f64();
        let failures = if failed > 0 { format!(", {failed} failed") } else { String::new() };
        bar.set_message(format!("{per_second:.0} operations per second, {done} in all{failures}"));
        bar.tick();
        (self.looked, self.done) = (Instant::now(), done);
    }

    fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
