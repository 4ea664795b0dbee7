//! Load that records acknowledged writes, failures and the longest pause.

use archon_client::Client;
use futures::future::join_all;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

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
    stop: Arc<AtomicBool>,
    writers: JoinSet<LoadReport>,
    operations: Arc<Mutex<u64>>,
}

impl Load {
    /// Starts `writers` tasks on `client`; keys begin with `prefix`.
    pub fn start(client: &Client, prefix: &str, writers: usize) -> Self {
        Self::start_with(client, prefix, writers, |number| format!("value-{number}"))
    }

    /// As [`start`](Self::start), where `value` returns each writer's n-th value.
    pub fn start_with(client: &Client, prefix: &str, writers: usize, value: fn(u64) -> String) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let operations = Arc::new(Mutex::new(0));
        let mut tasks = JoinSet::new();
        for writer in 0..writers {
            let (client, stop, prefix) = (client.clone(), stop.clone(), format!("{prefix}-{writer}"));
            let operations = operations.clone();
            tasks.spawn(async move { write_until(stop, client, prefix, operations, value).await });
        }
        Self { stop, writers: tasks, operations }
    }

    /// Returns the number of answered operations so far.
    pub fn operations(&self) -> u64 {
        *self.operations.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Stops the writers and collects their results.
    ///
    /// # Panics
    /// If a writer panicked.
    pub async fn stop(mut self) -> LoadReport {
        self.stop.store(true, Ordering::Relaxed);
        let mut report = LoadReport::default();
        while let Some(ended) = self.writers.join_next().await {
            report.merge(ended.expect("a writer does not panic"));
        }
        report
    }
}

/// Distinct keys of one writer; rewriting them keeps the final check short, however long the load runs.
const KEYS_PER_WRITER: u64 = 500;

async fn write_until(
    stop: Arc<AtomicBool>,
    client: Client,
    prefix: String,
    operations: Arc<Mutex<u64>>,
    value: fn(u64) -> String,
) -> LoadReport {
    let mut report = LoadReport::default();
    let mut last = Instant::now();
    let mut number = 0u64;
    while !stop.load(Ordering::Relaxed) {
        let (key, value) = (format!("{prefix}-{}", number % KEYS_PER_WRITER), value(number));
        number += 1;
        report.operations += 2;
        match client.put(key.clone().into_bytes(), value.clone().into_bytes()).await {
            Ok(_) => {
                report.acknowledged.insert(key.clone(), value.clone());
                report.longest_gap = report.longest_gap.max(last.elapsed());
                last = Instant::now();
            }
            Err(error) => {
                // The outcome is unknown, so the value of the key is unknown too.
                report.acknowledged.remove(&key);
                report.failures.push(format!("put {key}: {error}"));
                continue;
            }
        }
        match client.get(key.clone().into_bytes()).await {
            Ok(Some(found)) if found.value == value.as_bytes() => {}
            other => report.failures.push(format!("get {key}: expected {value:.40}, found {}", short(&other))),
        }
        *operations.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) += 2;
    }
    report
}
