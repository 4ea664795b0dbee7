//! Benchmark of group commit beside raw writes, on the disk of the temporary directory or of `WAL_BENCH_DIRECTORY`;
//! with `WAL_BENCH_BUFFERED` without direct writes, to compare in alternation.
#![allow(missing_docs)]

use std::error::Error;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use archon_wal::disk::RealDisk;
use archon_wal::{StreamId, Wal, WalBatch, WalConfig};
use bytes::Bytes;
use hdrhistogram::Histogram;

const RECORD_BYTES: usize = 100;
const RUN: Duration = Duration::from_millis(1500);

fn main() -> Result<(), Box<dyn Error>> {
    let directory = match std::env::var_os("WAL_BENCH_DIRECTORY") {
        Some(path) => tempfile::tempdir_in(path)?,
        None => tempfile::tempdir()?,
    };
    println!("records of {RECORD_BYTES} bytes, {} s each\n", RUN.as_secs_f64());
    println!("{:<28}{:>12}{:>10}{:>10}{:>12}{:>10}", "", "ops/s", "p50 us", "p99 us", "fsyncs/op", "MiB/s");
    raw(directory.path())?;
    for record_bytes in [RECORD_BYTES, 1500, 32 * 1024, 1024 * 1024] {
        in_turn(directed(&directory.path().join(format!("turns-{record_bytes}")))?, record_bytes)?;
    }
    for record_bytes in [1500, 32 * 1024, 1024 * 1024] {
        in_turn(pooled(&directory.path().join(format!("pool-{record_bytes}")))?, record_bytes)?;
    }
    for appenders in [1, 4, 16, 64, 256, 1024] {
        appends(&directory.path().join(format!("wal-{appenders}")), appenders)?;
    }
    Ok(())
}

fn line(name: &str, operations: u64, took: Duration, micros: &Histogram<u64>, syncs: u64, bytes: u64) {
    let seconds = took.as_secs_f64();
    println!(
        "{name:<28}{:>12.0}{:>10}{:>10}{:>12.4}{:>10.1}",
        operations as f64 / seconds,
        micros.value_at_quantile(0.5),
        micros.value_at_quantile(0.99),
        syncs as f64 / operations as f64,
        bytes as f64 / seconds / 1048576.0,
    );
}

/// Measures the disk: 4 KiB writes into a file filled with zeros before.
fn raw(directory: &Path) -> Result<(), Box<dyn Error>> {
    const BYTES: u64 = 16 * 1024 * 1024;
    let path = directory.join("raw");
    let file = OpenOptions::new().create(true).truncate(true).write(true).open(path)?;
    file.write_all_at(&vec![0; BYTES as usize], 0)?;
    file.sync_all()?;
    let page = [7u8; 4096];
    let mut micros = Histogram::<u64>::new(3)?;
    let start = Instant::now();
    let mut writes = 0;
    while start.elapsed() < RUN {
        let before = Instant::now();
        file.write_all_at(&page, (writes * 4096) % BYTES)?;
        file.sync_data()?;
        micros.record(before.elapsed().as_micros() as u64)?;
        writes += 1;
    }
    line("raw 4 KiB + fdatasync", writes, start.elapsed(), &micros, writes, writes * 4096);
    Ok(())
}

fn open(directory: &Path) -> Result<Wal, Box<dyn Error>> {
    let disk = match std::env::var_os("WAL_BENCH_BUFFERED") {
        Some(_) => RealDisk::open_buffered(directory)?,
        None => RealDisk::open(directory)?,
    };
    Ok(Wal::open_on(Arc::new(disk), WalConfig::default())?.0)
}

/// Returns a log with direct writes, and one that writes through the page cache.
fn directed(directory: &Path) -> Result<[(&'static str, Wal); 2], Box<dyn Error>> {
    let open = |disk: RealDisk| Wal::open_on(Arc::new(disk), WalConfig::default());
    let direct = open(RealDisk::open(&directory.join("direct"))?)?.0;
    let buffered = open(RealDisk::open_buffered(&directory.join("buffered"))?)?.0;
    Ok([("directly", direct), ("and cached", buffered)])
}

/// Returns a log that recycles its segments, and one that creates each new.
fn pooled(directory: &Path) -> Result<[(&'static str, Wal); 2], Box<dyn Error>> {
    let open = |name: &str, recycled_segments_max: usize| -> Result<Wal, Box<dyn Error>> {
        let config = WalConfig { recycled_segments_max, ..WalConfig::default() };
        Ok(Wal::open_on(Arc::new(RealDisk::open(&directory.join(name))?), config)?.0)
    };
    let recycled_max = WalConfig::default().recycled_segments_max;
    Ok([("recycled", open("recycled", recycled_max)?), ("made anew", open("anew", 0)?)])
}

/// Appends one after the other on the calling thread, to both logs in turn, so that other load on the machine affects
/// both.
fn in_turn(logs: [(&'static str, Wal); 2], record_bytes: usize) -> Result<(), Box<dyn Error>> {
    const TURN: u64 = 16;
    let histogram = Histogram::<u64>::new(3)?;
    let mut logs = logs.map(|(name, wal)| (name, wal, histogram.clone(), Duration::ZERO, Duration::ZERO));
    let record = Bytes::from(vec![7u8; record_bytes]);
    let start = Instant::now();
    let mut seq = 0;
    while start.elapsed() < 2 * RUN {
        for (_, wal, micros, took, cpu) in &mut logs {
            for seq in seq + 1..=seq + TURN {
                let mut batch = WalBatch::new();
                batch.put(StreamId(1), seq, record.clone());
                let (begun, cpu_before) = (Instant::now(), thread_cpu());
                if wal.append_here(batch, Box::new(|_| ()))? {
                    micros.record(begun.elapsed().as_micros() as u64)?;
                    *took += begun.elapsed();
                    *cpu += thread_cpu().saturating_sub(cpu_before);
                } else {
                    wal.append_wait(WalBatch::new())?;
                }
            }
            wal.trim(StreamId(1), seq);
        }
        seq += TURN;
    }
    for (name, wal, micros, took, cpu) in logs {
        let count = micros.len().max(1);
        println!(
            "{:<28}{:>12.0}{:>10}{:>10}{:>22.1} us of CPU each",
            format!("1 of {record_bytes}, {name}"),
            count as f64 / took.as_secs_f64(),
            micros.value_at_quantile(0.5),
            micros.value_at_quantile(0.99),
            cpu.as_secs_f64() * 1e6 / count as f64,
        );
        wal.close(Duration::from_secs(10))?;
    }
    Ok(())
}

fn thread_cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

/// Keeps `appenders` appends in progress, each in its own stream.
fn appends(directory: &Path, appenders: usize) -> Result<(), Box<dyn Error>> {
    let wal = open(directory)?;
    let record = Bytes::from(vec![7u8; RECORD_BYTES]);
    let (sender, receiver) = mpsc::sync_channel(appenders);
    let append = |stream: usize, seq: u64| {
        let mut batch = WalBatch::new();
        batch.put(StreamId(stream as u64), seq, record.clone());
        let (sender, before) = (sender.clone(), Instant::now());
        let done = move |result: Result<(), archon_wal::WalError>| {
            let _ = sender.send((stream, result.is_ok(), before.elapsed()));
        };
        wal.append(batch, Box::new(done))
    };
    let mut next = vec![1u64; appenders];
    let mut micros = Histogram::<u64>::new(3)?;
    let before = wal.progress();
    let start = Instant::now();
    for (stream, seq) in next.iter_mut().enumerate() {
        append(stream, *seq)?;
        *seq += 1;
    }
    let mut operations = 0;
    let mut under_way = appenders;
    while under_way > 0 {
        let (stream, ok, took) = receiver.recv()?;
        if !ok {
            return Err("an append failed".into());
        }
        operations += 1;
        micros.record(took.as_micros() as u64)?;
        under_way -= 1;
        if start.elapsed() < RUN {
            append(stream, next[stream])?;
            if next[stream].is_multiple_of(64) {
                wal.trim(StreamId(stream as u64), next[stream] - 32);
            }
            next[stream] += 1;
            under_way += 1;
        }
    }
    let took = start.elapsed();
    let after = wal.progress();
    let (syncs, bytes) = (after.fsyncs - before.fsyncs, after.bytes - before.bytes);
    line(&format!("{appenders} under way"), operations, took, &micros, syncs, bytes);
    wal.close(Duration::from_secs(10))?;
    Ok(())
}
