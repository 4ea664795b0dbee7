//! `archon demo`: a demonstration on this machine, with real processes; every step is checked.

mod draw;
mod looks;
mod narrator;
mod node_dies;
mod service;
mod story;
mod worker;
mod workload;

use crate::args::{Connection, DemoArgs};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use archon_local_cluster::{Cluster, SMALL};
use narrator::Narrator;
use tokio::signal::unix::{SignalKind, signal};

/// Runs the demonstration; see [`story`].
pub(crate) fn run(args: &DemoArgs, connection: &Connection) -> Result<Exit, Failure> {
    if let Some(name) = &args.worker {
        return worker::run(name, connection);
    }
    let output = Output::new(connection.output);
    // The children are tied to the thread that starts them, which must therefore live as long as the process: this
    // future runs on the main thread.
    crate::on_runtime(tell(args, &output))
}

async fn tell(args: &DemoArgs, output: &Output) -> Result<Exit, Failure> {
    let install = |kind| signal(kind).map_err(|error| Failure::failed(format!("installing a signal handler: {error}")));
    let mut interrupt = install(SignalKind::interrupt())?;
    let mut terminate = install(SignalKind::terminate())?;
    // Closing the terminal sends a hangup; without this handler the directory would remain.
    let mut hangup = install(SignalKind::hangup())?;
    let narrator = Narrator::new(*output);
    let mut cluster = Cluster::new(crate::own_program()?, SMALL, args.keep)?;
    cluster.serve_consoles();
    if args.tls {
        cluster.use_tls()?;
    }
    let told = tokio::select! {
        told = story::tell(args, &mut cluster, &narrator) => told,
        _ = interrupt.recv() => Err(Failure::failed("interrupted")),
        _ = terminate.recv() => Err(Failure::failed("terminated")),
        _ = hangup.recv() => Err(Failure::failed("terminated")),
    };
    let summary = match told {
        Ok(summary) => summary,
        Err(failure) => {
            if failure.message != "interrupted" && failure.message != "terminated" {
                narrator.tails(&cluster.tails());
            }
            narrator.kept(&cluster);
            // The rest of the cluster ends here: dropping it kills and awaits its processes.
            drop(cluster);
            return Err(Failure { exit: Exit::Failed, ..failure });
        }
    };
    if output.is_json() {
        output.json(&summary)?;
    }
    if !args.exit {
        narrator.goodbye(&cluster);
        tokio::select! {
            died = cluster.watch() => {
                narrator.tails(&cluster.tails());
                narrator.kept(&cluster);
                return Err(died.into());
            }
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
        narrator.say("");
    }
    narrator.say("Stopping: the nodes first, then the coordinators.");
    tokio::select! {
        stopped = cluster.stop() => stopped?,
        _ = interrupt.recv() => return Err(Failure::failed("interrupted while stopping; the rest was killed")),
    }
    narrator.kept(&cluster);
    Ok(Exit::Done)
}
