//! `archon bench grow`: growth of a table by ranges that begins as one partition and is split as it fills, and its
//! throughput in ordered scans.

use super::disturb::TIMEOUT;
use super::load::Load;
use super::{local, over, settled};
use crate::args::{Connection, GrowArgs, WriteOrder};
use crate::connect;
use crate::exit::{Exit, Failure};
use crate::output::{Column, Output, bytes_text};
use archon_client::{Admin, Client, MovePhase, PartitionSummary, RangeLimits};
use archon_load::{Latency, Mix, Run, Workload, WorkloadOutcome, watch};
use futures::{StreamExt, TryStreamExt};
use serde::Serialize;
use std::collections::BTreeMap;
use std::pin::pin;
use std::time::{Duration, Instant};

/// Tables created for the measurement.
const TABLE: &str = "bench-grow";
const HASHED: &str = "bench-grow-hashed";
/// Partitions of the hashed table.
const HASHED_PARTITIONS: u32 = 64;
/// Interval of checks for necessary moves of leaderships.
const REBALANCE_EVERY: Duration = Duration::from_secs(1);

/// Results. The names of these fields are a contract with scripts.
#[derive(Debug, Serialize)]
struct GrowthReport {
    keys: u64,
    value_bytes: usize,
    order: WriteOrder,
    split_above_bytes: u64,
    write: WorkloadOutcome,
    samples: Vec<Sample>,
    /// Completed moves of copies or leaderships meanwhile.
    moves: usize,
    partitions: usize,
    /// Sizes stored by the leaders' copies: the largest, the smallest and the mean.
    largest_bytes: u64,
    smallest_bytes: u64,
    mean_bytes: u64,
    /// Keys that were missing at the end, or had an unknown value.
    keys_missing: u64,
    scans: Vec<ScanTiming>,
}

/// Observations over some seconds.
#[derive(Debug, Serialize)]
struct Sample {
    /// End of the sample, in seconds since the first write.
    seconds: f64,
    writes_per_second: f64,
    partitions: usize,
    /// Number of partitions that each node leads.
    led: BTreeMap<String, usize>,
}

/// One scan of keys in order, by one client.
#[derive(Debug, Serialize)]
struct ScanTiming {
    table: &'static str,
    partitions: usize,
    entries: u64,
    seconds: f64,
    /// Keys and values, in megabytes (10^6).
    megabytes_per_second: f64,
}

/// Measures the growth of a table.
///
/// # Errors
/// No cluster reachable, failed writes, or keys missing at the end.
pub(super) async fn run(args: &GrowArgs, connection: &Connection, output: &Output) -> Result<Exit, Failure> {
    let local = local::start(&args.local, output).await?;
    let connection = local::connection(local.as_ref(), connection)?;
    let admin = connect::admin(&connection)?;
    let limits = RangeLimits { split_above_bytes: Some(args.split_above), ..RangeLimits::NONE };
    admin.create_range_table(TABLE, Vec::new(), limits, args.local.replication).await?;
    let measured = measure(args, &connection, &admin, output).await;
    drop_table(&admin, TABLE).await?;
    let growing = measured?;
    match output.is_json() {
        true => output.json(&growing)?,
        false => growing.print(output)?,
    }
    match growing.keys_missing {
        0 => Ok(Exit::Done),
        lost => Err(Failure::failed(format!("{lost} of {} keys are lost or have a wrong value", args.keys))),
    }
}

async fn drop_table(admin: &Admin, name: &str) -> Result<(), Failure> {
    let table = admin.check_table(name).await?;
    admin.drop_table(name, table.table.id).await?;
    Ok(())
}

async fn measure(
    args: &GrowArgs,
    connection: &Connection,
    admin: &Admin,
    output: &Output,
) -> Result<GrowthReport, Failure> {
    watch::until_served(admin, TABLE, 1, TIMEOUT).await?;
    let load = Load::new(args.keys, args.value_bytes, args.clients, TABLE, connection)?;
    let mix = match args.order {
        WriteOrder::Ascending => Mix::Load,
        WriteOrder::Spread => Mix::LoadSpread,
    };
    let workload = load.workload.each_key_once(mix, args.clients as usize);
    let (write, samples, moves) = write(&load, &workload, args.every, admin, output).await?;
    settled(&write)?;
    let read = load.every_key(Mix::ReadBack, "reading every key back", output).await?;
    let rows = admin.table(TABLE).await?;
    let sizes = sizes(admin, &rows).await?;
    let scans = match args.scan_keys {
        0 => Vec::new(),
        keys => scans(keys.min(args.keys), args, connection, admin, output).await?,
    };
    Ok(GrowthReport {
        keys: args.keys,
        value_bytes: workload.value_bytes,
        order: args.order,
        split_above_bytes: args.split_above,
        write,
        samples,
        moves,
        partitions: rows.len(),
        largest_bytes: sizes.iter().max().copied().unwrap_or_default(),
        smallest_bytes: sizes.iter().min().copied().unwrap_or_default(),
        mean_bytes: sizes.iter().sum::<u64>() / sizes.len().max(1) as u64,
        keys_missing: read.failed,
        scans,
    })
}

/// Writes the keys; meanwhile observes the table and keeps the nodes' shares of it even.
async fn write(
    load: &Load,
    workload: &Workload,
    every: Duration,
    admin: &Admin,
    output: &Output,
) -> Result<(WorkloadOutcome, Vec<Sample>, usize), Failure> {
    let run = Run::start(load.archon(), workload)?;
    let begun = Instant::now();
    let growing = async {
        let (mut samples, mut moves) = (Vec::new(), Moves::default());
        let (mut done, mut since) = (0, begun);
        while !run.is_over() {
            tokio::time::sleep(REBALANCE_EVERY).await;
            moves.go_on(admin).await;
            if since.elapsed() < every && !run.is_over() {
                continue;
            }
            let (now_done, _) = run.progress();
            let writes_per_second = (now_done - done) as f64 / since.elapsed().as_secs_f64();
            (done, since) = (now_done, Instant::now());
            let rows = admin.table(TABLE).await?;
            let seconds = begun.elapsed().as_secs_f64();
            output.talk(format!("{seconds:.0} s: {writes_per_second:.0} writes/s, {} partitions", rows.len()));
            samples.push(Sample { seconds, writes_per_second, partitions: rows.len(), led: led(&rows) });
        }
        moves.end(admin).await;
        Ok::<_, Failure>((samples, moves.done))
    };
    let (samples, moves) = tokio::select! {
        grown = growing => grown?,
        _ = tokio::signal::ctrl_c() => return Err(Failure::failed("interrupted; nothing was measured")),
    };
    Ok((over(run).await?, samples, moves))
}

/// Plans executed while the table grows. A plan that is refused because the table has changed is replaced.
#[derive(Default)]
struct Moves {
    under_way: bool,
    done: usize,
}

impl Moves {
    async fn go_on(&mut self, admin: &Admin) {
        self.look(admin).await;
        if self.under_way {
            return;
        }
        let Ok(plan) = admin.plan().await else { return };
        self.under_way = !plan.moves.is_empty() && admin.apply(&plan).await.is_ok();
    }

    async fn look(&mut self, admin: &Admin) {
        if !self.under_way {
            return;
        }
        let Ok(status) = admin.rebalance_status().await else { return };
        if !status.running {
            self.done += status.moves.iter().filter(|moving| moving.phase == MovePhase::Done).count();
            self.under_way = false;
        }
    }

    async fn end(&mut self, admin: &Admin) {
        let deadline = Instant::now() + TIMEOUT;
        while self.under_way && Instant::now() < deadline {
            tokio::time::sleep(REBALANCE_EVERY).await;
            self.look(admin).await;
        }
    }
}

fn led(rows: &[PartitionSummary]) -> BTreeMap<String, usize> {
    watch::led(rows).into_iter().map(|(node, partitions)| (node, partitions.len())).collect()
}

/// Returns the size of each partition at its leader.
async fn sizes(admin: &Admin, rows: &[PartitionSummary]) -> Result<Vec<u64>, Failure> {
    let mut sizes = Vec::new();
    for row in rows {
        let copies = admin.describe_partition(TABLE, row.id).await?.copies;
        sizes.extend(copies.iter().find(|copy| copy.leads).map(|copy| copy.bytes_stored));
    }
    Ok(sizes)
}

/// Scans the same keys in order in the grown table and in a hashed one.
async fn scans(
    keys: u64,
    args: &GrowArgs,
    connection: &Connection,
    admin: &Admin,
    output: &Output,
) -> Result<Vec<ScanTiming>, Failure> {
    let ranges = scan(TABLE, "by ranges", keys, connection, admin).await?;
    admin.create_table(HASHED, HASHED_PARTITIONS, args.local.replication).await?;
    let hashed = async {
        watch::until_served(admin, HASHED, HASHED_PARTITIONS as usize, TIMEOUT).await?;
        let load = Load::new(keys, args.value_bytes, 1, HASHED, connection)?;
        settled(&load.every_key(Mix::Load, "writing the keys into a table whose keys are hashed", output).await?)?;
        scan(HASHED, "hashed", keys, connection, admin).await
    };
    let hashed = hashed.await;
    drop_table(admin, HASHED).await?;
    Ok(vec![ranges, hashed?])
}

async fn scan(
    table: &str,
    kind: &'static str,
    keys: u64,
    connection: &Connection,
    admin: &Admin,
) -> Result<ScanTiming, Failure> {
    let client: Client = connect::client(connection, table, None).await?;
    let partitions = admin.table(table).await?.len();
    let began = Instant::now();
    let (mut entries, mut bytes) = (0_u64, 0_u64);
    let mut found = pin!(client.scan("").entries().take(usize::try_from(keys).unwrap_or(usize::MAX)));
    while let Some(entry) = found.try_next().await? {
        entries += 1;
        bytes += (entry.key.len() + entry.value.len()) as u64;
    }
    let seconds = began.elapsed().as_secs_f64();
    if entries != keys {
        return Err(Failure::failed(format!("the scan found {entries} of {keys} keys")));
    }
    Ok(ScanTiming { table: kind, partitions, entries, seconds, megabytes_per_second: bytes as f64 / seconds / 1e6 })
}

impl GrowthReport {
    fn print(&self, output: &Output) -> Result<(), Failure> {
        let columns =
            [Column::number("SECOND"), Column::number("WRITES/S"), Column::number("PARTITIONS"), Column::text("LED")];
        let row = |sample: &Sample| {
            let led: Vec<String> = sample.led.iter().map(|(node, count)| format!("{node} {count}")).collect();
            vec![
                format!("{:.0}", sample.seconds),
                format!("{:.0}", sample.writes_per_second),
                sample.partitions.to_string(),
                led.join(", "),
            ]
        };
        output.rows(&columns, self.samples.iter().map(row).collect(), "it was over before it was looked at")?;
        let written = &self.write;
        let latency = |of: fn(&Latency) -> u64| {
            written.put.as_ref().map_or_else(String::new, |put| super::report::micros_text(of(put)))
        };
        output.line(format!(
            "{} keys in {:.1} s: {:.0} writes per second; p50 {}, p99 {}, the longest {}",
            written.ops,
            written.seconds,
            written.ops_per_second,
            latency(|put| put.p50_us),
            latency(|put| put.p99_us),
            latency(|put| put.max_us),
        ))?;
        output.line(format!(
            "{} partitions of {} to {}, {} on average; {} moves; keys missing: {} of {}",
            self.partitions,
            bytes_text(self.smallest_bytes),
            bytes_text(self.largest_bytes),
            bytes_text(self.mean_bytes),
            self.moves,
            self.keys_missing,
            self.keys
        ))?;
        for scan in &self.scans {
            output.line(format!(
                "scan of {} keys in order, table {} with {} partitions: {:.2} s, {:.0} MB/s",
                scan.entries, scan.table, scan.partitions, scan.seconds, scan.megabytes_per_second
            ))?;
        }
        Ok(())
    }
}
