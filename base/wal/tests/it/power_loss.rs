//! Power loss at every kind of moment, on a simulated disk that loses and tears unsynced data: all acknowledged data
//! returns, and the rest is a prefix of the appended batches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::{self, Model, Numbers, Step, memory_disk};
use archon_wal::disk::{Disk, MemoryDisk};
use archon_wal::{StreamId, Wal, WalBatch, WalConfig};

fn config() -> WalConfig {
    WalConfig { segment_bytes: 8192, write_bytes_max: 4096, kept_bytes_max: 8192, ..WalConfig::default() }
}

/// Stream that gets a record now and then, and is never trimmed.
const QUIET: u64 = 5;

fn random_steps(numbers: &mut Numbers) -> Vec<Step> {
    let count = 1 + numbers.below(4);
    let step = |numbers: &mut Numbers| {
        let stream = if numbers.below(40) == 0 { QUIET } else { numbers.below(4) };
        let fill = numbers.below(256) as u8;
        match numbers.below(20) {
            0 => Step::Drop { stream },
            1 | 2 => Step::Cut { stream, back: numbers.below(4) },
            3 | 8 if stream != QUIET => Step::Trim { stream, back: numbers.below(6) },
            4..=7 => {
                let (key, bytes) = (numbers.below(4) as u32, numbers.below(60) as usize);
                Step::Meta { stream, key, bytes, fill }
            }
            _ => Step::Put { stream, skip: 0, bytes: numbers.below(900) as usize, fill },
        }
    };
    (0..count).map(|_| step(numbers)).collect()
}

/// Runs one log several times, each run ended by a power loss.
fn lives(seed: u64) -> Result<u64, String> {
    let numbers = &mut Numbers::new(seed);
    let mut disk = memory_disk(seed);
    let mut base = Model::default();
    let mut relocated = 0;
    for life in 0..4 {
        disk.fail_power_after(numbers.below(if life == 0 { 60 } else { 120 }));
        // The model after each accepted batch; the first is the state at the start of the run.
        let mut history = vec![base.clone()];
        let mut trims: BTreeMap<u64, u64> = BTreeMap::new();
        let acknowledged = Arc::new(AtomicU64::new(0));
        match Wal::open_on(Arc::new(disk.clone()), config()) {
            Ok((wal, recovered)) => {
                if let Err(what) = base.matches_untrimmed(&recovered, &wal)
                    && !disk.powered_off()
                {
                    return Err(format!("life {life}, first opening: {what}"));
                }
                let batches = numbers.below(120);
                for number in 1..=batches {
                    let mut batch = WalBatch::new();
                    let model = history.last().expect("never empty");
                    let Some(after) = model.prepare(&random_steps(numbers), &mut batch) else {
                        continue;
                    };
                    let at = history.len() as u64;
                    history.push(after);
                    let acknowledged = acknowledged.clone();
                    let appended = wal.append(
                        batch,
                        Box::new(move |result| {
                            if result.is_ok() {
                                acknowledged.fetch_max(at, Ordering::SeqCst);
                            }
                        }),
                    );
                    if appended.is_err() {
                        // The power is off.
                        break;
                    }
                    if number % 8 == 0 && wal.append_wait(WalBatch::new()).is_err() {
                        break;
                    }
                    if numbers.below(10) == 0 {
                        // Trims only durable records.
                        let stream = numbers.below(4);
                        if wal.append_wait(WalBatch::new()).is_err() {
                            break;
                        }
                        if let Some(bounds) = wal.bounds(StreamId(stream)) {
                            let upto = bounds.first + numbers.below(bounds.last - bounds.first + 1);
                            wal.trim(StreamId(stream), upto);
                            trims.insert(stream, upto);
                            let model = history.last_mut().expect("never empty");
                            model.trim(stream, upto);
                        }
                    }
                }
                if numbers.below(4) > 0 {
                    let _ = wal.append_wait(WalBatch::new());
                }
                relocated += wal.progress().relocated;
                // Callbacks run before the handle is gone.
                let after = end(&disk, numbers);
                drop(wal);
                disk = after;
            }
            Err(error) if error.to_string().contains("wal: ") => {
                disk = end(&disk, numbers);
            }
            Err(error) => return Err(format!("life {life}: {error}")),
        }

        let (wal, recovered) = Wal::open_on(Arc::new(disk.clone()), config())
            .map_err(|error| format!("life {life}: reopening: {error}"))?;
        let told = recovered.clone();
        if !recovered.damaged.is_empty() {
            return Err(format!("life {life}: false damage {:?}", recovered.damaged));
        }
        let least = acknowledged.load(Ordering::SeqCst) as usize;
        let mut reasons = Vec::new();
        let found = (least..history.len()).find(|at| {
            let result = history[*at].matches_untrimmed(&recovered, &wal);
            result.map_err(|what| reasons.push(format!("after batch {at}: {what}"))).is_ok()
        });
        let Some(found) = found else {
            return Err(format!("life {life}: acknowledged {least}; {reasons:#?}"));
        };
        base = actual(&history[found], &recovered, &wal)?;
        // The state reported by an opening is durable: not even an immediate power loss reverts it.
        let after = disk.power_loss(|| numbers.next() >> 9);
        drop(wal);
        disk = after;
        let (wal, recovered) = Wal::open_on(Arc::new(disk.clone()), config())
            .map_err(|error| format!("life {life}: opening once more: {error}"))?;
        if recovered.streams != told.streams || !recovered.damaged.is_empty() {
            return Err(format!("life {life}: {told:?} became {recovered:?}"));
        }
        drop(wal);
    }
    Ok(relocated)
}

/// Ends a run: the machine loses its power, the process is killed, or it aborts after a failed sync.
fn end(disk: &MemoryDisk, numbers: &mut Numbers) -> MemoryDisk {
    match numbers.below(4) {
        0 => disk.process_end(false),
        1 => disk.process_end(true),
        _ => disk.power_loss(|| numbers.next() >> 9),
    }
}

/// Returns the model with the log's state of trimmed records.
fn actual(model: &Model, recovered: &archon_wal::RecoveredLog, wal: &Wal) -> Result<Model, String> {
    let mut model = model.clone();
    for (id, stream) in &mut model.streams {
        stream.records = support::read_all(wal, *id)?;
        stream.floor = recovered.streams[&StreamId(*id)].seq_min;
    }
    Ok(model)
}

#[test]
fn power_loss_keeps_acknowledged_data() {
    let runs = std::env::var("WAL_POWER_LOSS_RUNS").ok().and_then(|runs| runs.parse().ok());
    let first = std::env::var("WAL_POWER_LOSS_SEED").ok().and_then(|seed| seed.parse().ok());
    let first = first.unwrap_or(1);
    let mut relocated = 0;
    for seed in first..first + runs.unwrap_or(600) {
        match lives(seed) {
            Ok(bytes) => relocated += bytes,
            Err(what) => panic!("seed {seed} (WAL_POWER_LOSS_SEED={seed} repeats it): {what}"),
        }
    }
    assert!(runs.is_some() || relocated > 100_000, "only {relocated} bytes were moved in all lives");
}

/// A separate trim overtakes queued batches. A trim within a batch is durable with it or not at all, whenever the
/// power fails.
#[test]
fn trim_in_batch_is_durable_only_with_its_record() {
    const FACTS: StreamId = StreamId(1);
    const LOG: StreamId = StreamId(2);
    for (block, after, seed) in
        [1, 4096].into_iter().flat_map(|block| (0..12).flat_map(move |a| (0..10).map(move |s| (block, a, s))))
    {
        let disk = MemoryDisk::with_block_bytes(block);
        let config = WalConfig { segment_bytes: 65536, ..config() };
        let (wal, _) = Wal::open_on(Arc::new(disk.clone()), config.clone()).unwrap();
        for seq in 1..=100 {
            support::put(&wal, LOG.0, seq, &[1; 900]).unwrap();
        }
        // Queued entries, then the trim with its record.
        for seq in 101..=104 {
            let mut batch = WalBatch::new();
            batch.put(LOG, seq, vec![1; 3000].into());
            wal.append(batch, Box::new(|_| {})).unwrap();
        }
        disk.fail_power_after(after);
        let mut batch = WalBatch::new();
        batch.meta(FACTS, 1, "trimmed up to 90".into()).trim(LOG, 90);
        let _ = wal.append(batch, Box::new(|_| {}));
        let _ = wal.append_wait(WalBatch::new());
        let mut numbers = Numbers::new(seed);
        let found = disk.power_loss(|| numbers.next() >> 9);
        drop(wal);
        let (wal, _) = Wal::open_on(Arc::new(found), WalConfig { refuse_damage: true, ..config }).unwrap();
        let (first, said) = (wal.bounds(LOG).unwrap().first, wal.meta(FACTS, 1).is_some());
        assert_eq!(first, if said { 91 } else { 1 }, "block {block}, after {after}, seed {seed}");
    }
}
