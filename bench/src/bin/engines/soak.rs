//! Overwrites for a long time.

use anyhow::Context;
use archon_bench::disk_bytes;
use archon_integration_tests::dice::Dice;
use archon_kvstore_node::EngineKind;
use archon_kvstore_node::engine::{Change, Engine};
use archon_types::PlacementId;
use bytes::Bytes;
use hdrhistogram::Histogram;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SPACE: PlacementId = PlacementId::new(7);
/// What the flusher writes in one go, and after how much and how long it syncs.
const WRITE_BYTES: usize = 256 * 1024;
const SYNC_BYTES: usize = 32 * 1024 * 1024;
const SYNC_INTERVAL: Duration = Duration::from_secs(1);
const REPORT_INTERVAL: Duration = Duration::from_secs(20);

/// What to do.
pub(crate) struct Plan {
    pub(crate) seconds: u64,
    pub(crate) keys: u64,
    pub(crate) value_bytes: usize,
    /// Most rows each second; 0 is no limit.
    pub(crate) rate: u64,
}

fn key(number: u64) -> Bytes {
    let mut key = vec![1];
    key.extend_from_slice(format!("key-{number:012}").as_bytes());
    key.into()
}

fn value(dice: &mut Dice, bytes: usize) -> Bytes {
    let mut value = Vec::with_capacity(bytes + 8);
    while value.len() < bytes {
        value.extend_from_slice(&dice.roll(u64::MAX).to_le_bytes());
    }
    value.truncate(bytes);
    value.into()
}

struct Writes {
    rows: u64,
    write: Histogram<u64>,
    sync: Histogram<u64>,
}

pub(crate) fn run(kind: EngineKind, plan: &Plan, directory: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    let temporary = tempfile::Builder::new().prefix("archon-engines-").tempdir()?;
    let directory = directory.unwrap_or_else(|| temporary.path().join("engine"));
    let engine = crate::open(kind, &directory)?;
    let mut dice = Dice::new(1);
    let began = Instant::now();
    let mut filled = 0;
    while filled < plan.keys {
        let until = (filled + 256).min(plan.keys);
        engine.write(&changes((filled..until).map(key), &mut dice, plan))?;
        filled = until;
    }
    engine.sync()?;
    println!("{kind}: {} keys of {} bytes filled in {:.1?}", plan.keys, plan.value_bytes, began.elapsed());
    let live = plan.keys * (plan.value_bytes as u64 + 17);
    let stop = AtomicBool::new(false);
    let reads = std::thread::scope(|scope| -> anyhow::Result<Histogram<u64>> {
        let reader = scope.spawn(|| read(&*engine, plan, &stop));
        let written = overwrite(&*engine, plan, &directory, live, &mut dice);
        stop.store(true, Ordering::Relaxed);
        let reads = reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))?;
        written?;
        reads
    })?;
    print_times("reads of the whole run, µs", &reads);
    drop(engine);
    let began = Instant::now();
    drop(crate::open(kind, &directory)?);
    println!("opened again in {:.2?}; {} MiB on the disk", began.elapsed(), disk_bytes(&directory)? >> 20);
    Ok(ExitCode::SUCCESS)
}

fn changes(keys: impl Iterator<Item = Bytes>, dice: &mut Dice, plan: &Plan) -> Vec<Change> {
    keys.map(|key| Change { space: SPACE, key, value: Some(value(dice, plan.value_bytes)) }).collect()
}

fn overwrite(engine: &dyn Engine, plan: &Plan, directory: &Path, live: u64, dice: &mut Dice) -> anyhow::Result<()> {
    let began = Instant::now();
    let fresh =
        || -> anyhow::Result<Writes> { Ok(Writes { rows: 0, write: Histogram::new(3)?, sync: Histogram::new(3)? }) };
    let rows_each = (WRITE_BYTES / (plan.value_bytes + 64)).max(1) as u64;
    let (mut period, mut period_began, mut all_rows) = (fresh()?, Instant::now(), 0);
    let (mut unsynced, mut synced_at) = (0, Instant::now());
    let mut most = 0;
    while began.elapsed().as_secs() < plan.seconds {
        let keys: Vec<_> = (0..rows_each).map(|_| key(dice.roll(plan.keys))).collect();
        let changes = changes(keys.into_iter(), dice, plan);
        let at = Instant::now();
        engine.write(&changes)?;
        period.write.record(micros(at))?;
        period.rows += rows_each;
        all_rows += rows_each;
        unsynced += WRITE_BYTES;
        if unsynced >= SYNC_BYTES || synced_at.elapsed() >= SYNC_INTERVAL {
            let at = Instant::now();
            engine.sync()?;
            period.sync.record(micros(at))?;
            (unsynced, synced_at) = (0, Instant::now());
        }
        if plan.rate > 0 {
            let due = Duration::from_secs_f64(all_rows as f64 / plan.rate as f64);
            std::thread::sleep(due.saturating_sub(began.elapsed()));
        }
        if period_began.elapsed() >= REPORT_INTERVAL {
            let bytes = disk_bytes(directory)?;
            most = most.max(bytes);
            println!(
                "{:5.0} s  {:7.0} rows/s  {:6} MiB on the disk (x{:.2})  {:5} MiB of memory",
                began.elapsed().as_secs_f64(),
                period.rows as f64 / period_began.elapsed().as_secs_f64(),
                bytes >> 20,
                bytes as f64 / live as f64,
                resident_bytes()? >> 20
            );
            print_times("  writes of 256 KiB, µs", &period.write);
            print_times("  syncs, µs", &period.sync);
            (period, period_began) = (fresh()?, Instant::now());
        }
    }
    println!(
        "{all_rows} rows in all, {:.0}/s; at most x{:.2} on the disk",
        all_rows as f64 / began.elapsed().as_secs_f64(),
        most as f64 / live as f64
    );
    Ok(())
}

fn read(engine: &dyn Engine, plan: &Plan, stop: &AtomicBool) -> anyhow::Result<Histogram<u64>> {
    let mut times = Histogram::new(3)?;
    let mut dice = Dice::new(2);
    while !stop.load(Ordering::Relaxed) {
        let at = Instant::now();
        let found = engine.get(SPACE, &key(dice.roll(plan.keys)))?;
        times.record(micros(at))?;
        anyhow::ensure!(found.is_some_and(|value| value.len() == plan.value_bytes), "a key is not there");
        std::thread::sleep(Duration::from_micros(500));
    }
    Ok(times)
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX).max(1)
}

fn print_times(what: &str, times: &Histogram<u64>) {
    let at = |quantile| times.value_at_quantile(quantile);
    println!(
        "{what}: {} of them, p50 {} p99 {} p99.9 {} max {}",
        times.len(),
        at(0.5),
        at(0.99),
        at(0.999),
        times.max()
    );
}

fn resident_bytes() -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = text.split(' ').nth(1).context("statm has a second number")?.parse()?;
    Ok(pages * 4_096)
}
