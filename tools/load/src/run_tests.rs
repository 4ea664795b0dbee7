//! Tests of the measuring loop against a store in memory, whose operations are all known.

use crate::{Connector, Distribution, End, Failure, KeyText, Mix, Run, ScanResult, Store, Values, Workload};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Rows = Arc<Mutex<BTreeMap<Vec<u8>, Bytes>>>;

/// A store in memory that can be made slow, forgetful or dead.
#[derive(Clone, Default)]
struct Memory {
    rows: Rows,
    puts: Arc<AtomicU64>,
    connections: Arc<AtomicU64>,
    delay: Duration,
    /// The first operation takes this long.
    stall: Duration,
    dead: bool,
}

impl Connector for Memory {
    type Store = Self;

    async fn connect(&self) -> Result<Self, Failure> {
        self.connections.fetch_add(1, Ordering::Relaxed);
        Ok(self.clone())
    }
}

impl Memory {
    async fn wait(&self) -> Result<(), Failure> {
        if self.puts.fetch_add(1, Ordering::Relaxed) == 0 && !self.stall.is_zero() {
            // The whole thread stops, as with a store that does not answer.
            std::thread::sleep(self.stall);
        }
        tokio::task::yield_now().await;
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        if self.dead { Err(Failure::new("Unreachable", "nobody is there")) } else { Ok(()) }
    }
}

impl Store for Memory {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Failure> {
        self.wait().await?;
        Ok(self.rows.lock().expect("no holder panics").get(key).cloned())
    }

    async fn put(&self, key: &[u8], value: Bytes) -> Result<(), Failure> {
        self.wait().await?;
        self.rows.lock().expect("no holder panics").insert(key.to_vec(), value);
        Ok(())
    }

    async fn scan(&self, prefix: &[u8], after: &[u8], limit: u32) -> Result<ScanResult, Failure> {
        let rows = self.rows.lock().expect("no holder panics");
        let found = rows.range::<[u8], _>((Bound::Excluded(after), Bound::Unbounded));
        let found = found.take_while(|(key, _)| key.starts_with(prefix)).take(limit as usize);
        Ok(found.fold(ScanResult::default(), |sum, (key, value)| ScanResult {
            entries: sum.entries + 1,
            bytes: sum.bytes + key.len() + value.len(),
        }))
    }
}

fn workload(mix: Mix, operations: u64) -> Workload {
    Workload { mix, keys: 1_000, warm_up: Duration::ZERO, end: End::Operations(operations), ..Workload::puts(16) }
}

fn run(store: &Memory, workload: &Workload) -> crate::WorkloadOutcome {
    Run::start(&Arc::new(store.clone()), workload).expect("the load is sound").wait().expect("the store holds")
}

#[test]
fn loading_writes_every_key_once_with_any_threads() {
    for threads in [1, 3] {
        let store = Memory::default();
        let load = Workload { connections: threads, threads, ..workload(Mix::Put, 1).each_key_once(Mix::Load, 7) };
        let seen = run(&store, &load);
        assert_eq!((seen.ops, seen.failed, store.puts.load(Ordering::Relaxed)), (1_000, 0, 1_000));
        let (rows, values) = (store.rows.lock().unwrap(), Values::new(load.value_bytes));
        assert!((0..1_000).all(|key| values.is(key, &rows[KeyText::new(key).bytes()])));
        assert_eq!(store.connections.load(Ordering::Relaxed), threads as u64);
    }
}

#[test]
fn reading_back_finds_a_single_lost_key() {
    let store = Memory::default();
    let each = |mix| workload(Mix::Put, 1).each_key_once(mix, 4);
    run(&store, &each(Mix::LoadSpread));
    let seen = run(&store, &each(Mix::ReadBack));
    assert_eq!((seen.ops, seen.failed, seen.bytes_read), (1_000, 0, 1_000 * 116));
    store.rows.lock().unwrap().remove(KeyText::new(999).bytes());
    let seen = run(&store, &each(Mix::ReadBack));
    assert_eq!((seen.ops, seen.failures["Missing"].count), (999, 1));
}

#[test]
fn fixed_count_runs_that_many_and_counts_bytes() {
    let store = Memory::default();
    run(&store, &workload(Mix::Put, 1).each_key_once(Mix::Load, 4));
    for mix in [Mix::Put, Mix::Get, Mix::Mixed { get_percent: 50 }] {
        let seen = run(&store, &Workload { distribution: Distribution::Zipfian { theta: 0.9 }, ..workload(mix, 500) });
        assert_eq!((seen.ops, seen.failed), (500, 0), "{mix:?}");
        assert_eq!(seen.bytes_read + seen.bytes_written, 500 * 116, "{mix:?}");
        let both = seen.get.is_some() && seen.put.is_some();
        assert_eq!(both, matches!(mix, Mix::Mixed { .. }), "{mix:?}");
    }
}

/// Regression: operations started in the warm-up and ended after it were counted in addition to the requested ones.
#[test]
fn warm_up_operations_are_not_counted() {
    let store = Memory { delay: Duration::from_millis(2), ..Memory::default() };
    let seen = run(&store, &Workload { warm_up: Duration::from_millis(25), ..workload(Mix::Put, 100) });
    assert_eq!((seen.ops, seen.failed), (100, 0));
    assert!(seen.ops_with_warm_up > 100, "{seen:?}");
}

#[test]
fn scans_are_checked_to_the_last_entry() {
    let store = Memory::default();
    run(&store, &workload(Mix::Put, 1).each_key_once(Mix::Load, 4));
    let scans = workload(Mix::Scan { limit: 10 }, 200);
    let seen = run(&store, &scans);
    assert_eq!((seen.ops, seen.failed), (200, 0));
    assert!(seen.entries_scanned > 1_500 && seen.bytes_read == seen.entries_scanned * 116);
    store.rows.lock().unwrap().remove(KeyText::new(500).bytes());
    let last = Workload { keys: 1_001, ..scans };
    assert!(run(&store, &last).failures.contains_key("WrongScan"));
}

/// Reads of absent keys would measure something else.
#[test]
fn read_of_missing_or_wrong_value_is_a_failure() {
    let store = Memory::default();
    let seen = run(&store, &workload(Mix::Get, 100));
    assert!(seen.failures["Missing"].count > 0 && seen.ops == 0, "{seen:?}");
    run(&store, &workload(Mix::Put, 1).each_key_once(Mix::Load, 4));
    store.rows.lock().unwrap().values_mut().for_each(|value| *value = Bytes::from_static(b"other"));
    assert!(run(&store, &workload(Mix::Get, 100)).failures["WrongValue"].count > 0);
}

#[test]
fn dead_store_ends_the_run() {
    let store = Memory { dead: true, ..Memory::default() };
    let seen = run(&store, &Workload { end: End::After(Duration::from_secs(3_600)), ..workload(Mix::Put, 0) });
    assert!(seen.gave_up && seen.ops == 0 && seen.failures["Unreachable"].count == 160, "{seen:?}");
}

#[test]
fn stall_counts_for_every_operation_due_at_a_fixed_rate() {
    let stall = Duration::from_millis(400);
    let store = Memory { stall, ..Memory::default() };
    let paced = Workload { rate: Some(1_000.0), ..workload(Mix::Put, 800) };
    let seen = run(&store, &paced);
    assert_eq!((seen.ops, seen.failed), (800, 0));
    // 800 operations at 1,000 per second: the last begins after 0.8 s, stall or not.
    assert!(seen.seconds >= 0.79, "{seen:?}");
    let latency = seen.put.unwrap();
    // 400 operations came due in the stall, each waiting on average half of it. A closed loop would have seen one slow
    // operation of 800.
    assert!(latency.p50_us < 1_000_000 && latency.max_us >= 400_000, "{latency:?}");
    assert!(latency.mean_us > 90_000.0, "{latency:?}");
}

#[test]
fn stopped_run_reports_its_results() {
    let store = Memory { delay: Duration::from_millis(1), ..Memory::default() };
    let endless = Workload { end: End::After(Duration::from_secs(3_600)), ..workload(Mix::Put, 0) };
    let run = Run::start(&Arc::new(store), &endless).unwrap();
    while run.progress().0 < 100 {
        std::thread::yield_now();
    }
    run.stop();
    let seen = run.wait().unwrap();
    assert!(seen.ops >= 100 && seen.seconds < 3_000.0 && seen.ops_per_second > 0.0, "{seen:?}");
}

#[test]
fn impossible_workload_is_refused() {
    let failure = Run::start(&Arc::new(Memory::default()), &Workload { keys: 0, ..Workload::puts(1) }).unwrap_err();
    assert_eq!(failure.kind, "Workload");
}
