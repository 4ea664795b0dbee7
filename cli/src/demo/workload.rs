//! Workload on keys: writes, reads back, and background traffic during moves.

use crate::exit::Failure;
use archon_client::Client;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Operations in progress at once while filling and verifying.
const CONCURRENCY: usize = 64;
/// Tasks of the background traffic, each with separate keys.
const TRAFFIC_TASKS: u32 = 4;
/// Keys of each of these tasks.
const TRAFFIC_KEYS: u32 = 100;
/// Pause between two operations of a task: enough traffic to notice any gap, little enough to leave the machine to the
/// moves.
const TRAFFIC_PAUSE: Duration = Duration::from_millis(2);

/// Returns the name of a key of the story.
pub(super) fn key(number: u32) -> String {
    format!("city/{number:05}")
}

/// Returns its value: about a kilobyte, different for each.
fn value(number: u32) -> Bytes {
    let line = format!("the value of key number {number}; ");
    Bytes::from(line.repeat(1024 / line.len() + 1))
}

/// Writes keys `0..count`; returns the elapsed time.
///
/// # Errors
/// The first failed write.
pub(super) async fn fill(client: &Client, count: u32) -> Result<Duration, Failure> {
    let started = Instant::now();
    stream::iter(0..count)
        .map(|number| async move {
            client
                .put(&key(number), value(number))
                .await
                .map_err(|error| Failure::failed(format!("expected to write {}, but {error}", key(number))))
        })
        .buffer_unordered(CONCURRENCY)
        .try_for_each(|_revision| async { Ok(()) })
        .await?;
    Ok(started.elapsed())
}

/// Reads keys `0..count` and compares each with the written value; returns the elapsed time.
///
/// # Errors
/// The first key that could not be read, was absent, or differed.
pub(super) async fn verify(client: &Client, count: u32) -> Result<Duration, Failure> {
    let started = Instant::now();
    stream::iter(0..count)
        .map(|number| async move { expect(client, &key(number), &value(number)).await })
        .buffer_unordered(CONCURRENCY)
        .try_for_each(|()| async { Ok(()) })
        .await?;
    Ok(started.elapsed())
}

/// Reads one key and compares it.
async fn expect(client: &Client, key: &str, wanted: &Bytes) -> Result<(), Failure> {
    let wrong =
        |found: String| Failure::failed(format!("expected to read back what was written to {key}, but {found}"));
    match client.get(key).await {
        Ok(Some(found)) if found.value == *wanted => Ok(()),
        Ok(Some(found)) => {
            let found = found.value;
            let shown = String::from_utf8_lossy(&found[..found.len().min(80)]).into_owned();
            Err(wrong(format!("found {} bytes beginning with {shown:?}", found.len())))
        }
        Ok(None) => Err(wrong("the key is gone".to_owned())),
        Err(error) => Err(wrong(error.to_string())),
    }
}

/// Clients that write and read in the background until they are stopped.
pub(super) struct Traffic {
    stop: CancellationToken,
    tasks: JoinSet<TrafficObservations>,
}

/// Observations of the background traffic.
#[derive(Debug, Default)]
pub(super) struct TrafficObservations {
    /// Successful operations.
    pub(super) ops: u64,
    /// Failed operations.
    pub(super) failed: u64,
    /// The first failure.
    pub(super) first_failure: Option<String>,
    /// Reads that did not return the last value written by the same task.
    pub(super) wrong: u64,
    /// The first of these.
    pub(super) first_wrong: Option<String>,
    /// Duration of the slowest operation.
    pub(super) slowest: Duration,
    /// Last acknowledged value by key.
    acknowledged: BTreeMap<String, Bytes>,
}

impl Traffic {
    /// Starts the tasks, on keys that contain this name. Dropping the traffic stops them.
    pub(super) fn start(client: &Client, name: &'static str) -> Self {
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        for task in 0..TRAFFIC_TASKS {
            tasks.spawn(drive(name, task, client.clone(), stop.clone()));
        }
        Self { stop, tasks }
    }

    /// Stops the tasks, each after its current operation, and sums up their observations.
    ///
    /// # Errors
    /// If a task panicked.
    pub(super) async fn stop(mut self) -> Result<TrafficObservations, Failure> {
        self.stop.cancel();
        let mut total = TrafficObservations::default();
        while let Some(seen) = self.tasks.join_next().await {
            total.add(seen.map_err(|error| Failure::failed(format!("a task of the background traffic: {error}")))?);
        }
        Ok(total)
    }
}

async fn drive(name: &str, task: u32, client: Client, stop: CancellationToken) -> TrafficObservations {
    let mut seen = TrafficObservations::default();
    let mut round = 0_u64;
    while !stop.is_cancelled() {
        let key = format!("traffic/{name}/{task}/{}", round % u64::from(TRAFFIC_KEYS));
        let value = Bytes::from(format!("round {round}"));
        round += 1;
        let begun = Instant::now();
        match client.put(&key, value.clone()).await {
            Ok(_) => {
                seen.answered(begun.elapsed());
                seen.acknowledged.insert(key.clone(), value.clone());
            }
            Err(error) => {
                seen.failed(&key, &error.to_string());
                // The result of a failed write is unknown, so this key is no longer checked.
                seen.acknowledged.remove(&key);
                continue;
            }
        }
        let begun = Instant::now();
        match client.get(&key).await {
            Ok(Some(found)) if found.value == value => seen.answered(begun.elapsed()),
            Ok(found) => {
                seen.answered(begun.elapsed());
                seen.mismatch(format!("{key}: wrote {value:?}, read {:?}", found.map(|found| found.value)));
            }
            Err(error) => seen.failed(&key, &error.to_string()),
        }
        tokio::select! {
            () = tokio::time::sleep(TRAFFIC_PAUSE) => {}
            () = stop.cancelled() => {}
        }
    }
    seen
}

impl TrafficObservations {
    fn answered(&mut self, took: Duration) {
        self.ops += 1;
        self.slowest = self.slowest.max(took);
    }

    fn failed(&mut self, key: &str, why: &str) {
        self.failed += 1;
        self.first_failure.get_or_insert_with(|| format!("{key}: {why}"));
    }

    fn mismatch(&mut self, what: String) {
        self.wrong += 1;
        self.first_wrong.get_or_insert(what);
    }

    fn add(&mut self, other: Self) {
        self.ops += other.ops;
        self.failed += other.failed;
        self.wrong += other.wrong;
        self.slowest = self.slowest.max(other.slowest);
        self.first_failure = self.first_failure.take().or(other.first_failure);
        self.first_wrong = self.first_wrong.take().or(other.first_wrong);
        self.acknowledged.extend(other.acknowledged);
    }

    /// Fails unless every operation succeeded with the right result.
    ///
    /// # Errors
    /// The number of failed operations, and the first of them.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if let Some(first) = &self.first_failure {
            return Err(Failure::failed(format!(
                "expected no operation to fail meanwhile, but {} of {} did; the first: {first}",
                self.failed,
                self.ops + self.failed
            )));
        }
        if let Some(first) = &self.first_wrong {
            return Err(Failure::failed(format!(
                "expected every read to find the latest write, but {} did not; the first: {first}",
                self.wrong
            )));
        }
        if self.ops == 0 {
            return Err(Failure::failed("expected background traffic, but no operation was answered"));
        }
        Ok(())
    }

    /// Reads back all acknowledged values; returns the number of keys.
    ///
    /// # Errors
    /// The first key that differs.
    pub(super) async fn verify(&self, client: &Client) -> Result<usize, Failure> {
        stream::iter(&self.acknowledged)
            .map(|(key, value)| async move { expect(client, key, value).await })
            .buffer_unordered(CONCURRENCY)
            .try_for_each(|()| async { Ok(()) })
            .await?;
        Ok(self.acknowledged.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_failed_operation_fails_the_check() {
        let mut seen = TrafficObservations::default();
        assert!(seen.check().unwrap_err().message.contains("no operation was answered"));
        seen.answered(Duration::from_millis(3));
        assert!(seen.check().is_ok());
        let mut total = TrafficObservations::default();
        let mut other = TrafficObservations::default();
        other.failed("traffic/0/1", "NoLease");
        total.add(seen);
        total.add(other);
        let message = total.check().unwrap_err().message;
        assert!(message.contains("1 of 2 did; the first: traffic/0/1: NoLease"), "{message}");
    }

    #[test]
    fn wrong_read_is_reported() {
        let mut seen = TrafficObservations::default();
        seen.answered(Duration::ZERO);
        seen.mismatch("traffic/0/1: wrote 2, read 1".to_owned());
        assert!(seen.check().unwrap_err().message.contains("wrote 2, read 1"));
    }

    #[test]
    fn values_differ_and_are_about_a_kilobyte() {
        assert_ne!(value(1), value(2));
        assert!((1024..1100).contains(&value(1).len()));
    }
}
