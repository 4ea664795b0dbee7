//! `archon bench split`: the cost of splitting a partition, and of merging it again, for concurrent readers and
//! writers, and the delay of moving keys.

use super::disturb::{TIMEOUT, sleep_or_interrupt};
use super::load::{Load, LoadResults, print_seen};
use super::{local, settled};
use crate::args::{Connection, SplitArgs};
use crate::connect;
use crate::exit::{Exit, Failure};
use crate::output::{Column, Output};
use archon_client::{Admin, Client, ErrorKind, Event, EventCode, RangeLimits, Subject};
use archon_load::{Mix, Probers, Window, watch};
use serde::Serialize;
use std::time::{Duration, Instant};

/// Table created for the measurement.
const TABLE: &str = "bench-split";
/// Time limit of a split: longer than the limit of the coordinators.
const SPLIT_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Results. The names of these fields are a contract with scripts.
#[derive(Debug, Serialize)]
struct SplitReport {
    keys: u64,
    value_bytes: usize,
    /// Moved keys and values, without overhead, in megabytes (10^6).
    moved_megabytes: f64,
    /// From the command until there were two partitions.
    split_seconds: f64,
    /// From the begin of the split until keys were given up, and from then on until there were two partitions, by the
    /// coordinators' clock, in milliseconds.
    copied_ms: Option<u64>,
    cut_ms: Option<u64>,
    /// Writers of keys that stay, and of keys that move.
    stays: Gaps,
    moves: Gaps,
    before: LoadResults,
    during: LoadResults,
    after: LoadResults,
    merge: Option<MergeReport>,
    /// Acknowledged writes that were missing at the end.
    missing: Vec<String>,
    /// Keys that were missing at the end, or had an unknown value.
    keys_missing: u64,
}

#[derive(Debug, Serialize)]
struct Gaps {
    calm: Window,
    split: Window,
}

/// Results of merging the two partitions again.
#[derive(Debug, Serialize)]
struct MergeReport {
    /// From the command until there was one partition, in seconds and, by the coordinators' clock, in milliseconds.
    merge_seconds: f64,
    merged_ms: Option<u64>,
    stays: Window,
    moves: Window,
    during: LoadResults,
}

/// Measures the cost of a split for the users of the table.
///
/// # Errors
/// No cluster reachable, a refused or abandoned split, or a lost acknowledged write.
pub(super) async fn run(args: &SplitArgs, connection: &Connection, output: &Output) -> Result<Exit, Failure> {
    let local = local::start(&args.local, output).await?;
    let connection = local::connection(local.as_ref(), connection)?;
    let admin = connect::admin(&connection)?;
    admin.create_range_table(TABLE, Vec::new(), RangeLimits::NONE, args.local.replication).await?;
    let measured = measure(args, &connection, &admin, output).await;
    let table = admin.check_table(TABLE).await?;
    admin.drop_table(TABLE, table.table.id).await?;
    let splitting = measured?;
    match output.is_json() {
        true => output.json(&splitting)?,
        false => splitting.print(output)?,
    }
    splitting.verdict()
}

async fn measure(
    args: &SplitArgs,
    connection: &Connection,
    admin: &Admin,
    output: &Output,
) -> Result<SplitReport, Failure> {
    watch::until_served(admin, TABLE, 1, TIMEOUT).await?;
    let load = Load::new(args.keys, args.value_bytes, args.clients, TABLE, connection)?;
    settled(&load.every_key(Mix::Load, "writing the keys", output).await?)?;
    let client: Client = connect::client(connection, TABLE, None).await?;
    let middle = args.keys / 2;
    // Separate keys between the existing ones.
    let keys = |from: u64| {
        let number = move |writer: u16| from + u64::from(writer) * middle / u64::from(args.writers);
        (0..args.writers).map(move |writer| format!("{}/write-{writer}", key(number(writer))))
    };
    let (stays, moves) = (Probers::write(&client, 0, keys(0)), Probers::write(&client, 1, keys(middle)));
    for probers in [&stays, &moves] {
        probers.all_succeed(TIMEOUT).await?;
        probers.mark();
    }
    let running = load.begin()?;
    sleep(args.calm).await?;
    let calm = (stays.window(), moves.window());
    let before = running.end().await?;
    stays.mark();
    moves.mark();

    let running = load.begin()?;
    let began = Instant::now();
    let split = admin.split_partition(TABLE, 0, Some(key(middle).as_bytes()), false).await?;
    until_over(admin, split.right).await?;
    let took = began.elapsed();
    // Includes a gap that is still open at that time.
    stays.all_succeed(TIMEOUT).await?;
    moves.all_succeed(TIMEOUT).await?;
    let disturbed = (stays.window(), moves.window());
    let during = running.end().await?;

    let running = load.begin()?;
    sleep(args.calm).await?;
    let after = running.end().await?;
    let (copied_ms, cut_ms) = phases(admin, &split.table, split.partition).await?;
    let merge = match args.merge {
        true => Some(merge(admin, &load, (&stays, &moves)).await?),
        false => None,
    };
    let mut missing = stays.stop(&client).await?;
    missing.extend(moves.stop(&client).await?);
    let read = load.every_key(Mix::ReadBack, "reading every key back", output).await?;
    Ok(SplitReport {
        keys: args.keys,
        value_bytes: args.value_bytes as usize,
        moved_megabytes: ((args.keys - middle) * load.bytes_each()) as f64 / 1e6,
        split_seconds: took.as_secs_f64(),
        copied_ms,
        cut_ms,
        stays: Gaps { calm: calm.0, split: disturbed.0 },
        moves: Gaps { calm: calm.1, split: disturbed.1 },
        before,
        during,
        after,
        merge,
        missing,
        keys_missing: read.failed,
    })
}

/// Merges the two partitions again, under the same load.
async fn merge(admin: &Admin, load: &Load, (stays, moves): (&Probers, &Probers)) -> Result<MergeReport, Failure> {
    stays.mark();
    moves.mark();
    let running = load.begin()?;
    let began = Instant::now();
    let merge = admin.merge_partition(TABLE, 0, false).await?;
    until_one(admin).await?;
    let merge_seconds = began.elapsed().as_secs_f64();
    stays.all_succeed(TIMEOUT).await?;
    moves.all_succeed(TIMEOUT).await?;
    let (stays, moves) = (stays.window(), moves.window());
    let during = running.end().await?;
    let [begun, merged] =
        last_of(admin, &merge.table, merge.partition, [EventCode::MergeBegun, EventCode::Merged]).await?;
    Ok(MergeReport { merge_seconds, merged_ms: between(begun, merged), stays, moves, during })
}

/// Waits for the end of the merge, successful or not.
async fn until_one(admin: &Admin) -> Result<(), Failure> {
    let look = async || {
        let left = admin.describe_partition(TABLE, 0).await.map_err(|error| error.to_string())?;
        left.reshaping.map_or(Ok(()), |merge| Err(format!("{}, {}", merge.reshaping_phase, merge.message)))
    };
    watch::until("the merge", SPLIT_TIMEOUT, look).await?;
    match admin.table(TABLE).await?.len() {
        1 => Ok(watch::until_served(admin, TABLE, 1, TIMEOUT).await?),
        _ => Err(Failure::failed("the merge was abandoned").with_remedy("`archon events` shows the reason")),
    }
}

/// Returns a key of the workload.
fn key(number: u64) -> String {
    format!("bench/{number:010}")
}

async fn sleep(length: Duration) -> Result<(), Failure> {
    match sleep_or_interrupt(length).await {
        true => Err(Failure::failed("interrupted; nothing was measured")),
        false => Ok(()),
    }
}

/// Waits for the end of the split, successful or not.
async fn until_over(admin: &Admin, right: u32) -> Result<(), Failure> {
    let look = async || {
        let left = admin.describe_partition(TABLE, 0).await.map_err(|error| error.to_string())?;
        match left.reshaping {
            Some(split) => Err(format!("{}, {}", split.reshaping_phase, split.message)),
            None => Ok(()),
        }
    };
    watch::until("the split", SPLIT_TIMEOUT, look).await?;
    match admin.describe_partition(TABLE, right).await {
        Ok(_) => Ok(watch::until_served(admin, TABLE, 2, TIMEOUT).await?),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(Failure::failed("the split was abandoned").with_remedy("`archon events` shows the reason"))
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the duration of each phase of the last split of this partition, as far as the events are retained.
async fn phases(admin: &Admin, table: &str, partition: u32) -> Result<(Option<u64>, Option<u64>), Failure> {
    let codes = [EventCode::SplitBegun, EventCode::SplitCut, EventCode::Parted];
    let [begun, cut, parted] = last_of(admin, table, partition, codes).await?;
    Ok((between(begun, cut), between(cut, parted)))
}

/// Returns the last time of each of these events of a partition, as far as they are retained.
async fn last_of<const N: usize>(
    admin: &Admin,
    table: &str,
    partition: u32,
    codes: [EventCode; N],
) -> Result<[Option<u64>; N], Failure> {
    let events = admin.events(1_000).await?;
    let about = |event: &&Event| matches!(&event.subject, Subject::Partition { table: of, partition: number, .. } if of == table && *number == partition);
    Ok(codes.map(|code| {
        let of_code = events.iter().filter(about).filter(|event| event.code == code);
        of_code.map(|event| event.at_ms).max()
    }))
}

fn between(from: Option<u64>, to: Option<u64>) -> Option<u64> {
    Some(to?.saturating_sub(from?))
}

impl SplitReport {
    /// Fails if an acknowledged write was lost.
    fn verdict(&self) -> Result<Exit, Failure> {
        if let Some(first) = self.missing.first() {
            let count = self.missing.len();
            return Err(Failure::failed(format!("{count} acknowledged writes are lost, the first: {first}")));
        }
        match self.keys_missing {
            0 => Ok(Exit::Done),
            lost => Err(Failure::failed(format!("{lost} of {} keys are lost or have a wrong value", self.keys))),
        }
    }

    fn print(&self, output: &Output) -> Result<(), Failure> {
        let columns = [
            Column::text("WRITERS"),
            Column::text("WHEN"),
            Column::number("LONGEST GAP"),
            Column::number("MEDIAN"),
            Column::number("OPERATIONS"),
            Column::number("FAILED"),
        ];
        let row = |whose: &str, when: &str, window: &Window| {
            vec![
                whose.to_owned(),
                when.to_owned(),
                format!("{:.1} ms", window.write_gap_ms),
                format!("{:.1} ms", window.write_gap_median_ms),
                window.operations.to_string(),
                window.failed.to_string(),
            ]
        };
        let (stays, moves) = ("of keys that stay", "of keys that move");
        let mut rows = vec![
            row(stays, "calm", &self.stays.calm),
            row(stays, "split", &self.stays.split),
            row(moves, "calm", &self.moves.calm),
            row(moves, "split", &self.moves.split),
        ];
        let mut seen = vec![("before", &self.before), ("during", &self.during), ("after", &self.after)];
        if let Some(merge) = &self.merge {
            rows.extend([row(stays, "merge", &merge.stays), row(moves, "merge", &merge.moves)]);
            seen.push(("merge", &merge.during));
        }
        output.rows(&columns, rows, "")?;
        print_seen(&seen, output)?;
        let text = |time: Option<u64>| time.map_or_else(|| "?".to_owned(), |time| format!("{time} ms"));
        if let Some(merge) = &self.merge {
            let merged = text(merge.merged_ms);
            output.line(format!("merged again in {:.2} s, {merged} of it by the events", merge.merge_seconds))?;
        }
        let (copied, cut) = (text(self.copied_ms), text(self.cut_ms));
        output.line(format!("keys copied within {copied}, given up and taken over within {cut}"))?;
        output.line(format!(
            "split in {:.2} s, {:.0} MB moved; acknowledged writes missing: {}, keys missing: {} of {}",
            self.split_seconds,
            self.moved_megabytes,
            self.missing.len(),
            self.keys_missing,
            self.keys
        ))
    }
}
