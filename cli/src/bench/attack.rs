//! `archon bench attack`: the cost of greedy clients for clients that use only their share.

use super::local;
use super::report::micros_text;
use super::{LOADERS, archon, settled, watched};
use crate::args::{AttackArgs, Connection};
use crate::connect;
use crate::exit::{Exit, Failure};
use crate::output::{Column, Output};
use archon_load::attack::{Attack, Attackers, Target};
use archon_load::{Distribution, End, Latency, Mix, Workload, WorkloadOutcome};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// Keys of the ordinary clients, and bytes of their values.
const KEYS: u64 = 10_000;
const VALUE_BYTES: usize = 100;
/// Tag of the keys that the greedy clients use, all in one partition.
const TAG: &str = "greedy";

/// Cost of one attack. The names of these fields are a contract with scripts.
#[derive(Debug, Serialize)]
struct Line {
    attack: &'static str,
    /// Before the attack.
    calm: OrdinaryLoad,
    /// During the attack.
    attacked: OrdinaryLoad,
    /// Ratio of the 99th percentiles of latency, with and without the attack.
    p99_ratio: f64,
    /// Activity of the greedy clients: their connections, their operations, and the refused or ended ones.
    connections: u64,
    sent: u64,
    refused: u64,
}

/// Observations of ordinary clients.
#[derive(Debug, Serialize)]
struct OrdinaryLoad {
    ops_per_second: f64,
    failed: u64,
    p50_us: u64,
    p99_us: u64,
    max_us: u64,
}

impl OrdinaryLoad {
    /// Returns the worse of reads and writes.
    fn of(measured: &WorkloadOutcome) -> Self {
        let worst = |of: fn(&Latency) -> u64| [&measured.get, &measured.put].into_iter().flatten().map(of).max();
        Self {
            ops_per_second: measured.ops_per_second,
            failed: measured.failed,
            p50_us: worst(|latency| latency.p50_us).unwrap_or(0),
            p99_us: worst(|latency| latency.p99_us).unwrap_or(0),
            max_us: worst(|latency| latency.max_us).unwrap_or(0),
        }
    }
}

/// Measures and prints.
///
/// # Errors
/// No cluster reachable, or a failed ordinary operation.
pub(super) async fn run(
    args: &AttackArgs,
    table: &str,
    connection: &Connection,
    output: &Output,
) -> Result<Exit, Failure> {
    let local = local::start_with(&args.local, &["--redis-listen", "127.0.0.1:0"], output).await?;
    let connection = local::connection(local.as_ref(), connection)?;
    drop(connect::client(&connection, table, None).await?);
    let admin = connect::admin(&connection)?;
    let archon = Arc::new(archon(table, &connection)?);
    let workload = Workload {
        mix: Mix::Mixed { get_percent: 50 },
        keys: KEYS,
        value_bytes: VALUE_BYTES,
        distribution: Distribution::Uniform,
        clients: args.clients as usize,
        // Like separate processes: nodes divide their time by connection.
        connections: args.clients as usize,
        threads: 1,
        warm_up: Duration::from_secs(1),
        end: End::After(args.duration),
        rate: None,
    };
    let (loaded, _) = watched("writing the keys", &archon, &workload.each_key_once(Mix::Load, LOADERS), output).await?;
    settled(&loaded)?;
    let attacks = if args.attacks.is_empty() { &Attack::ALL[..] } else { &args.attacks };
    let (mut lines, mut last, mut left_out) = (Vec::new(), None, 0);
    for attack in attacks {
        let target = Target::find(&admin, &connect::transport(&connection)?, table, TAG).await?;
        if let Some(obstacle) = target.obstacle(*attack) {
            output.talk(format!("{} is left out: {obstacle}", attack.name()));
            left_out += 1;
            continue;
        }
        let (calm, stopped) = watched("without an attack", &archon, &workload, output).await?;
        if stopped {
            break;
        }
        let target = Target::find(&admin, &connect::transport(&connection)?, table, TAG).await?;
        let attackers = Attackers::begin(*attack, &target);
        let (attacked, stopped) = watched(attack.name(), &archon, &workload, output).await?;
        let (connections, sent, refused) = attackers.deeds();
        attackers.end().await;
        if stopped {
            break;
        }
        let (calm, seen) = (OrdinaryLoad::of(&calm), OrdinaryLoad::of(&attacked));
        let p99_ratio = seen.p99_us as f64 / calm.p99_us.max(1) as f64;
        lines.push(Line { attack: attack.name(), calm, attacked: seen, p99_ratio, connections, sent, refused });
        last = Some(attacked).filter(|measured| measured.failed > 0).or(last);
    }
    print(args, &lines, output)?;
    last.as_ref().map_or(Ok(()), settled)?;
    if lines.len() + left_out < attacks.len() { Err(Failure::failed("interrupted")) } else { Ok(Exit::Done) }
}

fn print(args: &AttackArgs, lines: &[Line], output: &Output) -> Result<(), Failure> {
    if output.is_json() {
        return output.json(lines);
    }
    output.line(format!(
        "{} ordinary clients, half reads and half writes of {VALUE_BYTES} bytes, {} s without and {} s with each attack",
        args.clients,
        args.duration.as_secs_f64(),
        args.duration.as_secs_f64()
    ))?;
    let columns = [
        Column::text("ATTACK"),
        Column::number("P99 WITHOUT"),
        Column::number("P99 WITH"),
        Column::number("RATIO"),
        Column::number("LONGEST"),
        Column::number("PER SECOND"),
        Column::number("FAILED"),
        Column::number("SENT"),
        Column::number("REFUSED"),
    ];
    let row = |line: &Line| {
        vec![
            line.attack.to_owned(),
            micros_text(line.calm.p99_us),
            micros_text(line.attacked.p99_us),
            format!("{:.1}", line.p99_ratio),
            micros_text(line.attacked.max_us),
            format!("{:.0} of {:.0}", line.attacked.ops_per_second, line.calm.ops_per_second),
            line.attacked.failed.to_string(),
            line.sent.to_string(),
            line.refused.to_string(),
        ]
    };
    output.rows(&columns, lines.iter().map(row).collect(), "no attack was measured")
}
