//! `archon bench failover`: gaps that writers and readers see during a disturbance of the cluster.

use super::local;
use super::rounds::{Round, Rounds};
use super::victim::{Victim, by_hand, ended, lives};
use crate::args::{Connection, FailoverArgs, ProbeArgs};
use crate::connect;
use crate::exit::{Exit, Failure};
use crate::output::{Column, Output};
use archon_client::{Admin, Client};
use archon_load::{Probers, Window};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time limit for the start of the probers, and for the recovery of the cluster.
pub(super) const TIMEOUT: Duration = Duration::from_secs(120);

/// Observations of the probers. The names of these fields are a contract with scripts.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    writers: u16,
    readers: u16,
    /// Before the disturbances.
    calm: Window,
    pub(super) rounds: Vec<Round>,
    /// Acknowledged writes that were missing at the end.
    missing: Vec<String>,
    interrupted: bool,
}

/// The cluster under test with its probers.
pub(super) struct Stage {
    client: Client,
    pub(super) admin: Admin,
    pub(super) table: String,
    pub(super) probers: Probers,
    calm: Window,
    pub(super) interrupted: bool,
}

impl Stage {
    pub(super) async fn set(
        connection: &Connection,
        table: &str,
        args: &ProbeArgs,
        output: &Output,
    ) -> Result<Self, Failure> {
        let client = connect::client(connection, table, None).await?;
        let admin = connect::admin(connection)?;
        let partitions = admin.table(table).await?.len() as u32;
        let probers = Probers::start(&client, args.writers, args.readers, partitions);
        probers.all_succeed(TIMEOUT).await?;
        output
            .talk(format!("{} writers and {} readers run; {:?} of calm first", args.writers, args.readers, args.calm));
        probers.mark();
        let interrupted = sleep_or_interrupt(args.calm).await;
        let calm = probers.window();
        probers.mark();
        Ok(Self { client, admin, table: table.to_owned(), probers, calm, interrupted })
    }

    /// Stops the probers and reads back their writes.
    pub(super) async fn end(self, rounds: Vec<Round>, args: &ProbeArgs) -> Result<Report, Failure> {
        let missing = self.probers.stop(&self.client).await?;
        let (writers, readers) = (args.writers, args.readers);
        Ok(Report { writers, readers, calm: self.calm, rounds, missing, interrupted: self.interrupted })
    }
}

/// Returns true if Ctrl-C ended the sleep.
pub(super) async fn sleep_or_interrupt(length: Duration) -> bool {
    tokio::select! {
        () = tokio::time::sleep(length) => false,
        _ = tokio::signal::ctrl_c() => true,
    }
}

/// Measures the cost of a node's death, or of other requested disturbances, for the users of the cluster.
///
/// # Errors
/// No cluster reachable, a process that is no node, or a lost acknowledged write.
pub(super) async fn failover(
    args: &FailoverArgs,
    table: &str,
    connection: &Connection,
    output: &Output,
) -> Result<Exit, Failure> {
    let victim = args.pid.map(Victim::check).transpose()?;
    let mut local = local::start(&args.probe.local, output).await?;
    let connection = local::connection(local.as_ref(), connection)?;
    let mut stage = Stage::set(&connection, table, &args.probe, output).await?;
    let mut rounds = Vec::new();
    match &mut local {
        _ if stage.interrupted => {}
        Some(cluster) => {
            let mut playing = Rounds::new(args, cluster, &stage, output);
            let played = tokio::select! {
                played = playing.play(&mut rounds) => Some(played),
                _ = tokio::signal::ctrl_c() => None,
            };
            stage.interrupted = played.is_none();
            played.transpose()?;
        }
        None => {
            let (began, before) = (Instant::now(), lives(&stage.admin).await?);
            let killed = victim.as_ref().map(Victim::kill).transpose()?;
            if killed.is_none() {
                output.talk(format!("now end a node as you please; watching for {:?}", args.duration));
            }
            stage.interrupted = sleep_or_interrupt(args.duration).await;
            let what = match killed {
                Some(what) => what,
                None => by_hand(&ended(&before, &lives(&stage.admin).await?), args.duration)?,
            };
            rounds.push(Round::new(None, what, stage.probers.window(), began));
        }
    }
    let report = stage.end(rounds, &args.probe).await?;
    match output.is_json() {
        true => output.json(&report)?,
        false => report.print(output)?,
    }
    report.verdict()
}

impl Report {
    /// Fails if an acknowledged write was lost.
    pub(super) fn verdict(&self) -> Result<Exit, Failure> {
        let Some(first) = self.missing.first() else { return Ok(Exit::Done) };
        let count = self.missing.len();
        Err(Failure::failed(format!("{count} acknowledged writes are lost, the first: {first}")))
    }

    pub(super) fn print(&self, output: &Output) -> Result<(), Failure> {
        let columns = [
            Column::text("WHEN"),
            Column::number("WRITE GAP"),
            Column::number("MEDIAN"),
            Column::number("READ GAP"),
            Column::number("OPERATIONS"),
            Column::number("FAILED"),
            Column::text("LONGEST"),
        ];
        let mut rows = vec![row("calm", &self.calm)];
        for round in &self.rounds {
            output.line(&round.what)?;
            rows.push(row(round.name(), &round.disturbed));
            rows.extend(round.healing.as_ref().map(|window| row("healing", window)));
        }
        output.rows(&columns, rows, "")?;
        let windows = self.rounds.iter().flat_map(|round| [Some(&round.disturbed), round.healing.as_ref()]);
        if let Some(failure) = windows.flatten().filter_map(|window| window.last_failure.as_ref()).next_back() {
            output.line(format!("the last failure: {failure}"))?;
        }
        self.gaps().into_iter().try_for_each(|line| output.line(line))?;
        output.line(format!("acknowledged writes missing: {}", self.missing.len()))
    }

    /// Formats the distribution of the longest gaps, for each repeated disturbance.
    fn gaps(&self) -> Vec<String> {
        let mut gaps: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for round in &self.rounds {
            gaps.entry(round.name()).or_default().push(round.disturbed.write_gap_ms);
        }
        gaps.retain(|_, gaps| gaps.len() > 1);
        let line = |(name, mut gaps): (&str, Vec<f64>)| {
            gaps.sort_by(f64::total_cmp);
            let (count, middle) = (gaps.len(), gaps[gaps.len() / 2]);
            let (min, max) = (gaps[0], gaps[count - 1]);
            format!(
                "{name}, {count} rounds, longest write gap: min {min:.0} ms, median {middle:.0} ms, max {max:.0} ms"
            )
        };
        gaps.into_iter().map(line).collect()
    }
}

fn row(when: &str, window: &Window) -> Vec<String> {
    vec![
        when.to_owned(),
        format!("{:.1} ms", window.write_gap_ms),
        format!("{:.1} ms", window.write_gap_median_ms),
        format!("{:.1} ms", window.read_gap_ms),
        window.operations.to_string(),
        window.failed.to_string(),
        format!("partition {} since {} UTC", window.partition, window.since),
    ]
}
