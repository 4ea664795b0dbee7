//! A time series in a table by ranges that is split as it grows: prints its partitions at intervals.
//!
//! ```sh
//! cargo run --release -p archon-examples --example ranges
//! ```

use archon_client::{Admin, Client, PartitionSummary, RangeLimits};
use archon_examples::Result;
use std::process::ExitCode;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep};

const TABLE: &str = "temperatures";
const SENSORS: usize = 16;
/// Readings of each sensor, one a minute: some MiB all together.
const READINGS: usize = 384;
const READING_BYTES: usize = 1024;
/// Split limit of a partition. This is the minimum; a gibibyte is typical.
const LIMIT_BYTES: u64 = 1024 * 1024;
/// Pause of a sensor between two readings: hours of readings take some seconds.
const REST: Duration = Duration::from_millis(30);
const BETWEEN_PICTURES: Duration = Duration::from_secs(4);
/// Time-out until every partition is within the limit.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Width of the bar of a partition at the limit.
const BAR: u64 = 32;

fn main() -> ExitCode {
    archon_examples::run(ranges)
}

async fn ranges() -> Result {
    let cluster = archon_examples::cluster().await?;
    let admin = Admin::new(cluster.endpoints(), Duration::from_secs(10))?;

    // One partition at first, since the split keys are unknown. If you know them, pass them here to spread the load
    // from the start; this can be combined with a limit.
    let limits = RangeLimits { split_above_bytes: Some(LIMIT_BYTES), ..RangeLimits::NONE };
    admin.create_range_table(TABLE, Vec::new(), limits, 3).await?;
    let client = Client::builder(cluster.endpoints()).table(TABLE).timeout(Duration::from_secs(20)).build().await?;

    let began = Instant::now();
    let mut sensors = JoinSet::new();
    for sensor in 0..SENSORS {
        sensors.spawn(measure(client.clone(), sensor));
    }
    let mut pictures = interval(BETWEEN_PICTURES);
    let mut failed = 0;
    loop {
        tokio::select! {
            _ = pictures.tick() => draw(&partitions(&admin).await?, began),
            ended = sensors.join_next() => match ended {
                Some(ended) => failed += ended?,
                None => break,
            },
        }
    }
    let within = |(row, bytes): &PartitionSize| row.splits_into.is_none() && (1..=LIMIT_BYTES).contains(bytes);
    let grown = loop {
        let found = partitions(&admin).await?;
        if found.iter().all(within) {
            break found;
        }
        if began.elapsed() > TIMEOUT {
            return Err(format!("after {TIMEOUT:?} a partition is above its limit").into());
        }
        sleep(Duration::from_millis(500)).await;
    };
    draw(&grown, began);

    let found = readings(&client).await?;
    println!("partitions:       {}", grown.len());
    println!("readings failed:  {failed}");
    println!("readings found:   {found} of {}", SENSORS * READINGS);
    client.close().await;
    if found + failed >= SENSORS * READINGS { Ok(()) } else { Err("readings are lost".into()) }
}

/// Writes the readings of one sensor, and returns the number of failures. Keys begin with the time, so that readings of
/// one time are neighbours, and the newest readings are in the last partition.
async fn measure(client: Client, sensor: usize) -> usize {
    let mut failed = 0;
    for minute in 0..READINGS {
        let key = format!("2026-06-24T{:02}:{:02}/sensor-{sensor:02}", minute / 60, minute % 60);
        let reading = format!("{:>READING_BYTES$}", minute % 40);
        // Splits need no handling here: the client finds the current partition of the key.
        failed += usize::from(client.put(key, reading).await.is_err());
        sleep(REST).await;
    }
    failed
}

/// A partition with the bytes that its leader holds; zero until they are counted.
type PartitionSize = (PartitionSummary, u64);

/// Returns the partitions in order of their keys.
async fn partitions(admin: &Admin) -> Result<Vec<PartitionSize>> {
    let mut held = Vec::new();
    for row in admin.table(TABLE).await? {
        let copies = admin.describe_partition(TABLE, row.id).await?.copies;
        let bytes = copies.iter().find(|copy| copy.leads).map_or(0, |copy| copy.bytes_stored);
        held.push((row, bytes));
    }
    held.sort_by(|(one, _), (other, _)| begin(one).cmp(begin(other)));
    Ok(held)
}

fn begin(row: &PartitionSummary) -> &[u8] {
    row.range.as_ref().map_or(&b""[..], |range| range.begin.as_ref())
}

/// Returns the number of readings in a scan, which walks from one partition to the next.
async fn readings(client: &Client) -> Result<usize> {
    let (mut found, mut after) = (0, Vec::new());
    loop {
        let page = client.scan("").after(&after).limit(10_000).page().await?;
        found += page.entries.len();
        match page.entries.last() {
            Some(last) if page.more => after = last.key.to_vec(),
            _ => return Ok(found),
        }
    }
}

fn draw(partitions: &[PartitionSize], began: Instant) {
    println!("after {:.1} s:", began.elapsed().as_secs_f64());
    for (row, bytes) in partitions {
        let bar = "#".repeat((bytes * BAR).div_ceil(LIMIT_BYTES).min(2 * BAR) as usize);
        let begin = match begin(row) {
            [] => "the first key".into(),
            key => String::from_utf8_lossy(key),
        };
        let leader = row.leader.as_deref().unwrap_or("nobody");
        let split = row.splits_into.map_or_else(String::new, |right| format!("  is being split into {right}"));
        println!("  {:>3}  from {begin:26}  {leader:10} {:5} KiB  {bar}{split}", row.id, bytes / 1024);
    }
    println!();
}
