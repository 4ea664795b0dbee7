//! `archon bench rebalance`: the cost of moving partitions for concurrent readers and writers, and the speed of the
//! moves.

use super::disturb::{Report, Stage, TIMEOUT, sleep_or_interrupt};
use super::load::{Load, LoadResults, LoadTasks, print_seen};
use super::nodes::{Cost, NodeCounters};
use super::plain_copy::{PlainCopy, plain_copy};
use super::rounds::Round;
use super::{local, settled};
use crate::args::{Connection, MovesArgs};
use crate::connect;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use archon_client::NodeStatus;
use archon_load::watch::MoveCounts;
use archon_load::{Mix, Workload, watch};
use archon_local_cluster::LATE_NODE;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Time limit of the moves.
const MOVES_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// Minimum time of the probers after the last move.
const AFTERWARDS: Duration = Duration::from_secs(1);

/// Results. The names of these fields are a contract with scripts.
#[derive(Debug, Serialize)]
struct MoveReport {
    #[serde(flatten)]
    probed: Report,
    moves: usize,
    /// Moves of data to another node, in contrast to those of leadership only.
    copies: usize,
    move_seconds: f64,
    /// Resources that the nodes used during the moves; absent if a node did not report them.
    cost: Option<Cost>,
    /// Results of the readers and writers of many keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    load: Option<LoadReport>,
}

#[derive(Debug, Serialize)]
struct LoadReport {
    keys: u64,
    value_bytes: usize,
    /// Copied keys and values, without overhead, in megabytes (10^6).
    moved_megabytes: f64,
    megabytes_per_second: f64,
    /// Absent without clients.
    #[serde(flatten)]
    seen: Option<Windows>,
    /// A file of as many bytes, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    beside_cp: Option<PlainCopy>,
    /// Keys that were missing at the end, or had an unknown value.
    keys_missing: u64,
}

/// Results of readers and writers by window.
#[derive(Debug, Serialize)]
struct Windows {
    before: LoadResults,
    during: LoadResults,
    after: LoadResults,
}

/// Starts readers and writers, if a load was requested.
fn begin(load: Option<&Load>) -> Result<Option<LoadTasks>, Failure> {
    load.filter(|load| load.has_clients()).map(Load::begin).transpose()
}

/// Stops them, and returns their results.
async fn end(running: Option<LoadTasks>) -> Result<Option<LoadResults>, Failure> {
    match running {
        Some(running) => running.end().await.map(Some),
        None => Ok(None),
    }
}

/// Measures the cost of a rebalance for the users of the cluster.
///
/// # Errors
/// No cluster reachable, nothing to move, a failed move, or a lost acknowledged write.
pub(super) async fn rebalance(
    args: &MovesArgs,
    table: &str,
    connection: &Connection,
    output: &Output,
) -> Result<Exit, Failure> {
    let mut local = local::start(&args.probe.local, output).await?;
    let connection = local::connection(local.as_ref(), connection)?;
    if local.is_none() && connect::admin(&connection)?.plan().await?.moves.is_empty() {
        return Err(Failure::new(Exit::Refused, "there is nothing to move, so there is nothing to measure")
            .with_remedy("start another node, drain one (`archon node drain`), or use --local"));
    }
    let load = args.keys.map(|keys| Load::new(keys, args.value_bytes, args.clients, table, &connection)).transpose()?;
    let load = load.map(|load| load.at_rate(args.rate));
    if let Some(load) = &load {
        settled(&load.every_key(Mix::Load, "writing the keys", output).await?)?;
    }
    let running = begin(load.as_ref())?;
    let mut stage = Stage::set(&connection, table, &args.probe, output).await?;
    if let Some(cluster) = &mut local {
        cluster.start_node(LATE_NODE)?;
        watch::until_node(&stage.admin, LATE_NODE, NodeStatus::Alive, TIMEOUT).await?;
        stage.probers.mark();
    }
    let before = end(running).await?;
    let running = begin(load.as_ref())?;
    let counted = NodeCounters::now(&stage.admin).await;
    let began = Instant::now();
    let MoveCounts { moves, copies } = tokio::select! {
        moved = watch::rebalance(&stage.admin, MOVES_TIMEOUT) => moved?,
        _ = tokio::signal::ctrl_c() => {
            return Err(Failure::failed("interrupted; the moves continue in the cluster")
                .with_remedy("`archon rebalance status` watches them, `archon rebalance cancel` stops them"));
        }
    };
    let took = began.elapsed();
    let now = NodeCounters::now(&stage.admin).await;
    let during = end(running).await?;
    let operations = during.as_ref().map_or(0, |seen| seen.get.ops + seen.put.ops);
    let cost = counted.ok().zip(now.ok()).map(|(before, now)| before.until(&now, operations));
    let running = begin(load.as_ref())?;
    stage.interrupted |= sleep_or_interrupt(load.as_ref().map_or(AFTERWARDS, |_| args.probe.calm)).await;
    let after = end(running).await?;
    let partitions = stage.admin.table(table).await?.len();

    let what = format!("{moves} moves in {:.1} s", took.as_secs_f64());
    let round = Round::new(None, what, stage.probers.window(), began);
    let probed = stage.end(vec![round], &args.probe).await?;
    let mut loaded = None;
    if let Some(load) = load {
        let read = load.every_key(Mix::ReadBack, "reading every key back", output).await?;
        let Workload { keys, value_bytes, .. } = load.workload;
        let moved_megabytes = (copies as u64 * keys * load.bytes_each()) as f64 / partitions.max(1) as f64 / 1e6;
        let megabytes_per_second = moved_megabytes / took.as_secs_f64();
        let keys_missing = read.failed;
        let seen = match (before, during, after) {
            (Some(before), Some(during), Some(after)) => Some(Windows { before, during, after }),
            _ => None,
        };
        let beside_cp = match &local {
            Some(cluster) if args.beside_cp => Some(plain_copy(cluster.directory(), (moved_megabytes * 1e6) as u64)?),
            _ => None,
        };
        loaded = Some(LoadReport {
            keys,
            value_bytes,
            moved_megabytes,
            megabytes_per_second,
            seen,
            beside_cp,
            keys_missing,
        });
    }
    let moving = MoveReport { probed, moves, copies, move_seconds: took.as_secs_f64(), cost, load: loaded };
    match output.is_json() {
        true => output.json(&moving)?,
        false => moving.print(output)?,
    }
    match &moving.load {
        Some(load) if load.keys_missing > 0 => {
            Err(Failure::failed(format!("{} of {} keys are lost or have a wrong value", load.keys_missing, load.keys)))
        }
        _ => moving.probed.verdict(),
    }
}

impl MoveReport {
    fn print(&self, output: &Output) -> Result<(), Failure> {
        self.probed.print(output)?;
        if let Some(cost) = &self.cost {
            output
                .line(format!("CPU of the nodes while moving, of one core: {}", cost.cpu_percent(self.move_seconds)))?;
        }
        let Some(load) = &self.load else { return Ok(()) };
        if let Some(Windows { before, during, after }) = &load.seen {
            print_seen(&[("before", before), ("during", during), ("after", after)], output)?;
        }
        output.line(format!(
            "moved {:.0} MB in {} copies: {:.1} MB/s; {} of {} keys missing",
            load.moved_megabytes, self.copies, load.megabytes_per_second, load.keys_missing, load.keys
        ))?;
        let Some(plain) = &load.beside_cp else { return Ok(()) };
        output.line(format!(
            "cp --sparse=never of as many bytes: {:.0} MB/s, and {:.0} MB/s until they were on the disk; moving them \
             was {:.2} and {:.2} as fast",
            plain.megabytes_per_second,
            plain.synced_megabytes_per_second,
            load.megabytes_per_second / plain.megabytes_per_second,
            load.megabytes_per_second / plain.synced_megabytes_per_second
        ))
    }
}
