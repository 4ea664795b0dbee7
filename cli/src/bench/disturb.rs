//! `archon bench failover | rebalance`: how long writers and readers stand still while a node dies or data moves.

use super::local::Local;
use crate::args::{Connection, FailoverArgs, MovesArgs, ProbeArgs};
use crate::connect;
use crate::exit::{Exit, Failure};
use crate::output::{Column, Output};
use archon_client::{Admin, Client, NodeStatus};
use archon_load::{Probers, Window, watch};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long the probers may take to get going.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long moves may take.
const MOVES_PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);
/// How long probers go on after the last move.
const AFTERWARDS: Duration = Duration::from_secs(1);

/// What was seen. The names of these fields are a contract with scripts.
#[derive(Debug, Serialize)]
struct Report {
    /// What was done to the cluster.
    what: String,
    writers: u16,
    readers: u16,
    /// Before anything was done.
    calm: Window,
    /// While it was done, and after.
    disturbed: Window,
    /// How long the disturbed time was.
    seconds: f64,
    /// Moves carried out, of a rebalance.
    #[serde(skip_serializing_if = "Option::is_none")]
    moves: Option<usize>,
    /// Acknowledged writes that were not there at the end.
    missing: Vec<String>,
    interrupted: bool,
}

/// The cluster under test, and those who probe it.
struct Stage {
    client: Client,
    admin: Admin,
    probers: Probers,
    calm: Window,
    interrupted: bool,
}

impl Stage {
    async fn set(connection: &Connection, table: &str, args: &ProbeArgs, output: &Output) -> Result<Self, Failure> {
        let client = connect::client(connection, table).await?;
        let admin = connect::admin(connection)?;
        let partitions = admin.table(table).await?.len() as u16;
        let probers = Probers::start(&client, args.writers, args.readers, partitions);
        let all_move = async || {
            let still = probers.successes().iter().filter(|successes| **successes < 2).count();
            if still == 0 { Ok(()) } else { Err(format!("{still} of them do not")) }
        };
        watch::until("every prober to succeed", PATIENCE, all_move).await.map_err(unlucky)?;
        output
            .talk(format!("{} writers and {} readers run; {:?} of calm first", args.writers, args.readers, args.calm));
        probers.mark();
        let interrupted = sleep_or_interrupt(args.calm).await;
        let calm = probers.window();
        probers.mark();
        Ok(Self { client, admin, probers, calm, interrupted })
    }

    async fn end(
        self,
        what: String,
        args: &ProbeArgs,
        began: Instant,
        moves: Option<usize>,
        output: &Output,
    ) -> Result<Exit, Failure> {
        let disturbed = self.probers.window();
        let seconds = began.elapsed().as_secs_f64();
        let missing = self.probers.stop(&self.client).await.map_err(unlucky)?;
        let (writers, readers) = (args.writers, args.readers);
        let (calm, interrupted) = (self.calm, self.interrupted);
        let report = Report { what, writers, readers, calm, disturbed, seconds, moves, missing, interrupted };
        print(&report, output)?;
        match report.missing.first() {
            None => Ok(Exit::Done),
            Some(first) => {
                let count = report.missing.len();
                Err(Failure::failed(format!("{count} acknowledged writes are not there, the first: {first}")))
            }
        }
    }
}

fn unlucky(failure: archon_load::Failure) -> Failure {
    Failure::failed(failure.to_string())
}

/// Whether Ctrl-C ended the sleep.
async fn sleep_or_interrupt(length: Duration) -> bool {
    tokio::select! {
        () = tokio::time::sleep(length) => false,
        _ = tokio::signal::ctrl_c() => true,
    }
}

/// Measures what the death of a node costs those who use the cluster.
///
/// # Errors
/// Nobody there, a process that is no node, or an acknowledged write that is lost.
pub(super) async fn failover(
    args: &FailoverArgs,
    table: &str,
    connection: &Connection,
    output: &Output,
) -> Result<Exit, Failure> {
    let victim = args.pid.map(Victim::check).transpose()?;
    let mut local = if args.probe.local { Some(Local::start(output).await?) } else { None };
    let connection = Local::connection(local.as_ref(), connection);
    let mut stage = Stage::set(&connection, table, &args.probe, output).await?;
    let began = Instant::now();
    let what = match (&mut local, &victim) {
        _ if stage.interrupted => "nothing was done".to_owned(),
        (Some(local), _) => {
            let name = leads_most(&stage.admin, table).await?;
            local.kill(&name)?;
            format!("{name}, which led most partitions, was killed")
        }
        (None, Some(victim)) => victim.kill()?,
        (None, None) => {
            let before = lives(&stage.admin).await?;
            output.talk(format!("now end a node as you please; watching for {:?}", args.duration));
            stage.interrupted = sleep_or_interrupt(args.duration).await;
            by_hand(&ended(&before, &lives(&stage.admin).await?), args.duration)?
        }
    };
    if !stage.interrupted && (local.is_some() || victim.is_some()) {
        stage.interrupted = sleep_or_interrupt(args.duration).await;
    }
    stage.end(what, &args.probe, began, None, output).await
}

/// Measures what a rebalance costs those who use the cluster.
///
/// # Errors
/// Nobody there, nothing to move, a move that failed, or an acknowledged write that is lost.
pub(super) async fn rebalance(
    args: &MovesArgs,
    table: &str,
    connection: &Connection,
    output: &Output,
) -> Result<Exit, Failure> {
    let mut local = if args.probe.local { Some(Local::start(output).await?) } else { None };
    let connection = Local::connection(local.as_ref(), connection);
    if local.is_none() && connect::admin(&connection)?.plan().await?.moves.is_empty() {
        return Err(Failure::new(Exit::Refused, "there is nothing to move, so there is nothing to measure")
            .with_remedy("start another node, or drain one (`archon node drain`), or say --local"));
    }
    let mut stage = Stage::set(&connection, table, &args.probe, output).await?;
    if let Some(local) = &mut local {
        local.another_node(&stage.admin).await?;
        stage.probers.mark();
    }
    let began = Instant::now();
    let moves = tokio::select! {
        moved = watch::rebalance(&stage.admin, MOVES_PATIENCE) => moved.map_err(unlucky)?,
        _ = tokio::signal::ctrl_c() => {
            return Err(Failure::failed("interrupted; the moves go on in the cluster")
                .with_remedy("`archon rebalance status` watches them, `archon rebalance cancel` stops them"));
        }
    };
    let took = began.elapsed();
    stage.interrupted |= sleep_or_interrupt(AFTERWARDS).await;
    let what = format!("{moves} moves in {:.1} s", took.as_secs_f64());
    stage.end(what, &args.probe, began, Some(moves), output).await
}

/// A process of this machine that runs a node.
struct Victim(Pid);

impl Victim {
    /// Nothing but a node is killed: a wrong number must not end somebody else's process.
    fn check(pid: u32) -> Result<Self, Failure> {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0).skip(1);
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        match (pid, words.next()) {
            (Some(pid), Some(b"node")) => Ok(Self(pid)),
            _ => Err(Failure::usage(
                "--pid names no process on this machine that was started as `archon node …`",
                "find it with `pgrep -f 'archon node'`, or leave --pid away and end the node yourself",
            )),
        }
    }

    fn kill(&self) -> Result<String, Failure> {
        let wrong = |error| Failure::failed(format!("killing process {}: {error}", self.0.as_raw_nonzero()));
        kill_process(self.0, Signal::KILL).map_err(wrong)?;
        Ok(format!("the node with process id {} was killed", self.0.as_raw_nonzero()))
    }
}

/// The nodes that are alive, each in its incarnation.
async fn lives(admin: &Admin) -> Result<BTreeMap<String, u64>, Failure> {
    let nodes = admin.list_nodes().await?;
    let live = nodes.into_iter().filter(|node| node.status == NodeStatus::Alive);
    Ok(live.map(|node| (node.name, node.incarnation)).collect())
}

/// The nodes whose life ended in between, those that have come back in another one included.
fn ended(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> Vec<String> {
    before.iter().filter(|(name, life)| after.get(*name) != Some(life)).map(|(name, _)| name.clone()).collect()
}

/// What somebody did meanwhile. Figures of a cluster that nobody disturbed would be taken for those of a failover.
fn by_hand(ended: &[String], watched: Duration) -> Result<String, Failure> {
    if ended.is_empty() {
        let message = format!("no node was seen to end within {watched:?}, so there is nothing to report");
        return Err(Failure::failed(message).with_remedy(
            "end a node early in a longer --duration (its failure is noticed a second and a half later), name one with \
             --pid, or say --local",
        ));
    }
    let were = if ended.len() == 1 { "was" } else { "were" };
    Ok(format!("{} {were} ended by hand", ended.join(" and ")))
}

async fn leads_most(admin: &Admin, table: &str) -> Result<String, Failure> {
    let mut led: BTreeMap<String, usize> = BTreeMap::new();
    for leader in admin.table(table).await?.into_iter().filter_map(|row| row.leader) {
        *led.entry(leader).or_default() += 1;
    }
    let most = led.into_iter().max_by_key(|(_, count)| *count);
    most.map(|(name, _)| name).ok_or_else(|| Failure::new(Exit::Unreachable, "no partition has a leader"))
}

fn print(report: &Report, output: &Output) -> Result<(), Failure> {
    if output.is_json() {
        return output.json(report);
    }
    output.line(&report.what)?;
    let columns = [
        Column::text("WHEN"),
        Column::number("WRITE GAP"),
        Column::number("MEDIAN"),
        Column::number("READ GAP"),
        Column::number("OPERATIONS"),
        Column::number("FAILED"),
        Column::text("LONGEST"),
    ];
    let row = |when: &str, window: &Window| {
        vec![
            when.to_owned(),
            format!("{:.1} ms", window.write_gap_ms),
            format!("{:.1} ms", window.write_gap_median_ms),
            format!("{:.1} ms", window.read_gap_ms),
            window.operations.to_string(),
            window.failed.to_string(),
            format!("partition {} since {} UTC", window.partition, window.since),
        ]
    };
    output.rows(&columns, vec![row("calm", &report.calm), row("disturbed", &report.disturbed)], "")?;
    if let Some(failure) = &report.disturbed.last_failure {
        output.line(format!("the last failure: {failure}"))?;
    }
    output.line(format!("acknowledged writes missing: {}", report.missing.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failover_that_nobody_caused_is_not_reported() {
        let nodes = |lives: &[(&str, u64)]| lives.iter().map(|(name, life)| ((*name).to_owned(), *life)).collect();
        let before: BTreeMap<String, u64> = nodes(&[("athens", 5), ("byzantium", 6), ("cyrene", 7)]);
        let watched = Duration::from_secs(4);
        let failure = by_hand(&ended(&before, &before), watched).unwrap_err();
        assert_eq!(failure.exit, Exit::Failed);
        assert!(failure.message.contains("no node was seen to end within 4s"), "{failure}");
        let after = nodes(&[("athens", 9), ("cyrene", 7), ("delphi", 8)]);
        assert_eq!(by_hand(&ended(&before, &after), watched).unwrap(), "athens and byzantium were ended by hand");
    }

    #[test]
    fn only_a_node_can_be_named_as_victim() {
        for pid in [std::process::id(), 1, u32::MAX] {
            assert!(Victim::check(pid).is_err_and(|failure| failure.exit == Exit::Usage), "{pid}");
        }
    }
}
