//! Load that records acknowledged writes, failures and the longest pause.

use archon_client::Client;
use archon_testkit::{check, wait_for};
use futures::future::join_all;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Time-out of a wait for operations: those of a load across power failures wait for whole restarts.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Pause of a writer between two rounds, for each writer of its load: 200 rounds per second altogether. A load at full
/// speed would take the machine from the clusters of other tests.
const PAUSE: Duration = Duration::from_millis(5);

/// Results of the load.
#[derive(Debug, Default)]
pub struct LoadReport {
    /// Every acknowledged write: key and value.
    pub acknowledged: BTreeMap<String, String>,
    /// Answered operations.
    pub operations: u64,
    /// Operations that failed within their deadline, as the client described them.
    pub failures: Vec<String>,
    /// Longest time between two acknowledged operations of one writer.
    pub longest_gap: Duration,
}

impl LoadReport {
    /// # Panics
    /// If any operation failed.
    pub fn assert_no_failure(&self) {
        assert!(
            self.failures.is_empty(),
            "{} of {} failed: {:#?}",
            self.failures.len(),
            self.operations,
            self.failures
        );
    }

    fn merge(&mut self, other: Self) {
        self.acknowledged.extend(other.acknowledged);
        self.operations += other.operations;
        self.failures.extend(other.failures);
        self.longest_gap = self.longest_gap.max(other.longest_gap);
    }

    /// Reads every acknowledged key back and returns those that are missing or different.
    pub async fn missing(&self, client: &Client) -> Vec<String> {
        let mut wrong = Vec::new();
        let keys: Vec<_> = self.acknowledged.iter().collect();
        for chunk in keys.chunks(64) {
            let reads = chunk.iter().map(|(key, _)| client.get(key.as_bytes().to_vec()));
            for ((key, expected), found) in chunk.iter().zip(join_all(reads).await) {
                match found {
                    Ok(Some(value)) if value.value == expected.as_bytes() => {}
                    other => wrong.push(format!("{key}: expected {expected:.40}, found {}", short(&other))),
                }
            }
        }
        wrong
    }
}

/// Returns the beginning of a value, which may be long.
fn short(found: &impl std::fmt::Debug) -> String {
    format!("{found:?}").chars().take(200).collect()
}

/// Writers that run until stopped; each writes its own keys and reads each back.
#[derive(Debug)]
pub struct Load {
    progress: Arc<Progress>,
    writers: JoinSet<LoadReport>,
}

#[derive(Debug, Default)]
struct Progress {
    stop: AtomicBool,
    /// Answered operations.
    operations: AtomicU64,
    /// Number of operations that the test waits for: below it, no writer pauses.
    awaited: AtomicU64,
}

impl Progress {
    fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }

    fn is_awaited(&self) -> bool {
        self.operations() < self.awaited.load(Ordering::Relaxed)
    }
}

impl Load {
    /// Starts `writers` tasks on `client`; keys begin with `prefix`. The writers pause between rounds, unless the test
    /// [waits for them](Self::wait_more).
    pub fn start(client: &Client, prefix: &str, writers: usize) -> Self {
        let pause = PAUSE.saturating_mul(u32::try_from(writers).unwrap_or(u32::MAX));
        Self::begin(client, prefix, writers, pause, number_value)
    }

    /// As [`start`](Self::start) without pauses: for tests in which the amount written matters.
    pub fn start_at_full_speed(client: &Client, prefix: &str, writers: usize) -> Self {
        Self::start_with(client, prefix, writers, number_value)
    }

    /// As [`start_at_full_speed`](Self::start_at_full_speed), where `value` returns each writer's n-th value.
    pub fn start_with(client: &Client, prefix: &str, writers: usize, value: fn(u64) -> String) -> Self {
        Self::begin(client, prefix, writers, Duration::ZERO, value)
    }

    fn begin(client: &Client, prefix: &str, writers: usize, pause: Duration, value: fn(u64) -> String) -> Self {
        let progress = Arc::<Progress>::default();
        let mut tasks = JoinSet::new();
        for writer in 0..writers {
            let writer = Writer {
                client: client.clone(),
                prefix: format!("{prefix}-{writer}"),
                value,
                pause,
                progress: Arc::clone(&progress),
            };
            tasks.spawn(writer.run());
        }
        Self { progress, writers: tasks }
    }

    /// Returns the number of answered operations so far.
    pub fn operations(&self) -> u64 {
        self.progress.operations()
    }

    /// Waits until `count` more operations were answered. Blocks the thread.
    ///
    /// # Panics
    /// If that takes too long.
    #[track_caller]
    pub fn wait_more(&self, count: u64) {
        let target = self.operations() + count;
        self.progress.awaited.store(target, Ordering::Relaxed);
        wait_for(&format!("{count} more operations"), TIMEOUT, || {
            check(self.operations() >= target, || format!("{} of {target} operations", self.operations()))
        });
    }

    /// Stops the writers and collects their results.
    ///
    /// # Panics
    /// If a writer panicked.
    pub async fn stop(mut self) -> LoadReport {
        self.progress.stop.store(true, Ordering::Relaxed);
        let mut report = LoadReport::default();
        while let Some(ended) = self.writers.join_next().await {
            report.merge(ended.expect("a writer does not panic"));
        }
        report
    }
}

/// Distinct keys of one writer; rewriting them keeps the final check short, however long the load runs.
const KEYS_PER_WRITER: u64 = 500;

fn number_value(number: u64) -> String {
    format!("value-{number}")
}

/// One task of a load.
struct Writer {
    client: Client,
    /// Prefix of its own keys.
    prefix: String,
    /// Returns its n-th value.
    value: fn(u64) -> String,
    /// Pause between two rounds.
    pause: Duration,
    progress: Arc<Progress>,
}

impl Writer {
    async fn run(self) -> LoadReport {
        let mut report = LoadReport::default();
        let mut last = Instant::now();
        let mut number = 0;
        while !self.progress.stop.load(Ordering::Relaxed) {
            // A sleep of zero would last a millisecond.
            if number > 0 && !self.pause.is_zero() && !self.progress.is_awaited() {
                sleep(self.pause).await;
                last += self.pause;
            }
            self.round(number, &mut report, &mut last).await;
            number += 1;
        }
        report
    }

    /// Writes a value and reads it back.
    async fn round(&self, number: u64, report: &mut LoadReport, last: &mut Instant) {
        let (key, value) = (format!("{}-{}", self.prefix, number % KEYS_PER_WRITER), (self.value)(number));
        report.operations += 2;
        match self.client.put(key.clone().into_bytes(), value.clone().into_bytes()).await {
            Ok(_) => {
                report.acknowledged.insert(key.clone(), value.clone());
                report.longest_gap = report.longest_gap.max(last.elapsed());
                *last = Instant::now();
            }
            Err(error) => {
                // The outcome is unknown, so the value of the key is unknown too.
                report.acknowledged.remove(&key);
                report.failures.push(format!("put {key}: {error}"));
                return;
            }
        }
        match self.client.get(key.clone().into_bytes()).await {
            Ok(Some(found)) if found.value == value.as_bytes() => {}
            other => report.failures.push(format!("get {key}: expected {value:.40}, found {}", short(&other))),
        }
        self.progress.operations.fetch_add(2, Ordering::Relaxed);
    }
}
