//! Writers and readers that record the longest time without success: each works on its own key in a closed loop.

use crate::failure::Failure;
use crate::watch::until;
use archon_client::Client;
use archon_types::{partition_of, slot_of};
use serde::Serialize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Observations of the probers between [`Probers::mark`] and [`Probers::window`].
#[derive(Clone, Debug, Serialize)]
pub struct Window {
    /// The longest time between two acknowledged writes of one writer, over all writers, in milliseconds. A gap that is
    /// still open counts with its length so far.
    pub write_gap_ms: f64,
    /// The median over the writers of each one's longest gap, in milliseconds.
    pub write_gap_median_ms: f64,
    /// The partition of the writer with the longest gap.
    pub partition: u32,
    /// Start of that gap: UTC, as in log lines.
    pub since: String,
    /// The same of reads; zero without readers.
    pub read_gap_ms: f64,
    /// Operations answered.
    pub operations: u64,
    /// Operations that ended with an error.
    pub failed: u64,
    /// The last of these errors.
    pub last_failure: Option<String>,
}

/// One prober's record.
#[derive(Debug)]
struct Notes {
    succeeded: Instant,
    longest: Duration,
    longest_since: SystemTime,
    successes: u64,
    /// Successes since the mark.
    answered: u64,
    failed: u64,
    last_failure: Option<String>,
    /// The greatest number with an acknowledged write.
    acknowledged: u64,
    /// The greatest number with a started write.
    attempted: u64,
}

#[derive(Debug)]
struct Prober {
    key: String,
    partition: u32,
    writes: bool,
    notes: Mutex<Notes>,
}

impl Prober {
    fn new(key: String, partition: u32, writes: bool) -> Self {
        let notes = Notes {
            succeeded: Instant::now(),
            longest: Duration::ZERO,
            longest_since: SystemTime::now(),
            successes: 0,
            answered: 0,
            failed: 0,
            last_failure: None,
            acknowledged: 0,
            attempted: 0,
        };
        Self { key, partition, writes, notes: Mutex::new(notes) }
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(self: Arc<Self>, client: Client, stop: CancellationToken) {
        let mut number = 0;
        while !stop.is_cancelled() {
            number += 1;
            let outcome = if self.writes {
                self.notes().attempted = number;
                client.put(&self.key, number.to_string()).await.map(|_| ())
            } else {
                client.get(&self.key).await.map(|_| ())
            };
            let mut notes = self.notes();
            match outcome {
                Ok(()) => {
                    notes.close_gap();
                    notes.succeeded = Instant::now();
                    notes.successes += 1;
                    notes.answered += 1;
                    notes.acknowledged = number;
                }
                Err(error) => {
                    notes.failed += 1;
                    notes.last_failure = Some(format!("{}: {error}", self.key));
                }
            }
        }
    }
}

impl Notes {
    fn close_gap(&mut self) {
        let gap = self.succeeded.elapsed();
        if gap > self.longest {
            self.longest = gap;
            self.longest_since = SystemTime::now() - gap;
        }
    }
}

/// Running probers.
#[derive(Debug)]
pub struct Probers {
    probers: Vec<Arc<Prober>>,
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

impl Probers {
    /// Starts `writers` and `readers` on `client`, spread evenly over the partitions of a table that has `partitions`.
    pub fn start(client: &Client, writers: u16, readers: u16, partitions: u32) -> Self {
        let kinds = [(writers, true), (readers, false)];
        let probers = kinds.into_iter().flat_map(|(count, writes)| {
            (0..count).map(move |number| {
                let partition = u32::from(number) * partitions / u32::from(count);
                let key = key_in(partition, partitions, if writes { "write" } else { "read" }, number);
                Prober::new(key, partition, writes)
            })
        });
        Self::begin(client, probers)
    }

    /// Starts a writer for each of these keys, which are in this partition.
    pub fn write(client: &Client, partition: u32, keys: impl IntoIterator<Item = String>) -> Self {
        Self::begin(client, keys.into_iter().map(|key| Prober::new(key, partition, true)))
    }

    fn begin(client: &Client, probers: impl Iterator<Item = Prober>) -> Self {
        let stop = CancellationToken::new();
        let probers: Vec<Arc<Prober>> = probers.map(Arc::new).collect();
        let run = |prober: &Arc<Prober>| Arc::clone(prober).run(client.clone(), stop.clone());
        let tasks = probers.iter().map(run).collect();
        Self { probers, tasks, stop }
    }

    /// Returns the partitions with writers.
    pub fn partitions(&self) -> impl Iterator<Item = u32> {
        self.writers().map(|prober| prober.partition)
    }

    /// Resets the record; a gap that is open now continues.
    pub fn mark(&self) {
        for prober in &self.probers {
            let mut notes = prober.notes();
            (notes.longest, notes.answered, notes.failed) = (Duration::ZERO, 0, 0);
            notes.last_failure = None;
        }
    }

    /// Waits until every prober has succeeded twice more, so once with an operation that was started after this call.
    ///
    /// # Errors
    /// After `limit`, with the observations until then.
    pub async fn all_succeed(&self, limit: Duration) -> Result<(), Failure> {
        let successes = || self.probers.iter().map(|prober| prober.notes().successes);
        let before: Vec<u64> = successes().collect();
        let look = async || {
            let still = successes().zip(&before).filter(|(now, before)| *now < **before + 2).count();
            if still == 0 { Ok(()) } else { Err(format!("{still} of them do not: {:?}", self.window())) }
        };
        until("every prober to succeed", limit, look).await?;
        Ok(())
    }

    /// Returns the observations since the mark.
    pub fn window(&self) -> Window {
        let mut window = Window {
            write_gap_ms: 0.0,
            write_gap_median_ms: 0.0,
            partition: 0,
            since: String::new(),
            read_gap_ms: 0.0,
            operations: 0,
            failed: 0,
            last_failure: None,
        };
        let mut gaps = Vec::new();
        for prober in &self.probers {
            let mut notes = prober.notes();
            notes.close_gap();
            window.operations += notes.answered;
            window.failed += notes.failed;
            window.last_failure = notes.last_failure.clone().or(window.last_failure.take());
            let gap_ms = notes.longest.as_secs_f64() * 1e3;
            if !prober.writes {
                window.read_gap_ms = window.read_gap_ms.max(gap_ms);
                continue;
            }
            gaps.push(gap_ms);
            if gap_ms > window.write_gap_ms {
                window.write_gap_ms = gap_ms;
                window.partition = prober.partition;
                window.since = time_of_day(notes.longest_since);
            }
        }
        gaps.sort_by(f64::total_cmp);
        window.write_gap_median_ms = gaps.get(gaps.len() / 2).copied().unwrap_or(0.0);
        window
    }

    /// Stops all and reads every key back: each must hold the number last acknowledged, or a later one with unknown
    /// outcome. Returns those that do not.
    ///
    /// # Errors
    /// If a prober panicked.
    pub async fn stop(mut self, client: &Client) -> Result<Vec<String>, Failure> {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.map_err(|error| Failure::new("Panicked", error.to_string()))?;
        }
        let mut missing = Vec::new();
        for prober in self.writers() {
            let (acknowledged, attempted) = {
                let notes = prober.notes();
                (notes.acknowledged, notes.attempted)
            };
            let found = client.get(&prober.key).await;
            let number = match &found {
                Ok(Some(found)) => std::str::from_utf8(&found.value).ok().and_then(|text| text.parse().ok()),
                Ok(None) => Some(0),
                Err(_) => None,
            };
            if !number.is_some_and(|number: u64| (acknowledged..=attempted).contains(&number)) {
                let key = &prober.key;
                missing.push(format!("{key}: {acknowledged} was acknowledged, {attempted} tried, found {found:?}"));
            }
        }
        Ok(missing)
    }

    fn writers(&self) -> impl Iterator<Item = &Arc<Prober>> {
        self.probers.iter().filter(|prober| prober.writes)
    }
}

/// Returns a key of this prober in `partition`.
fn key_in(partition: u32, partitions: u32, kind: &str, number: u16) -> String {
    let keys = (0u64..).map(|salt| format!("gaps/{kind}-{number}-{salt}"));
    // Slots are spread evenly, so one is found after about as many keys as there are partitions.
    keys.into_iter().find(|key| partition_of(slot_of(key.as_bytes()), partitions) == partition).unwrap_or_default()
}

/// Formats a time as `03:14:15.926`, UTC.
fn time_of_day(time: SystemTime) -> String {
    let since_epoch = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seconds = since_epoch.as_secs() % 86_400;
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{:03}", seconds % 60, since_epoch.subsec_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_key_is_in_the_requested_partition() {
        for partition in [0, 1, 33, 63] {
            let key = key_in(partition, 64, "write", 7);
            assert_eq!(partition_of(slot_of(key.as_bytes()), 64), partition);
        }
    }

    #[test]
    fn time_of_day_is_formatted_as_in_logs() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(86_400_000 + 3_661_005);
        assert_eq!(time_of_day(time), "01:01:01.005");
    }

    #[test]
    fn open_gap_counts_and_continues_after_a_mark() {
        let prober = Prober::new("key".into(), 3, true);
        prober.notes().succeeded = Instant::now() - Duration::from_millis(300);
        let probers =
            Probers { probers: vec![Arc::new(prober)], tasks: JoinSet::new(), stop: CancellationToken::new() };
        assert!(probers.window().write_gap_ms >= 300.0);
        probers.mark();
        let window = probers.window();
        assert!(window.write_gap_ms >= 300.0, "{window:?}");
        assert_eq!(window.partition, 3);
    }
}
