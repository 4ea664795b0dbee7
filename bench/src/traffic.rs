//! Readers and writers over many keys, with latencies per phase of a run and a memory of what was acknowledged.

use archon_client::Client;
use bytes::Bytes;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Latencies are counted in microseconds, up to this many; a longer one counts as this.
const LATENCY_MAX_US: u64 = 600_000_000;
/// What a value must hold at least: whose it is, and which write it was.
pub const VALUE_BYTES_MIN: usize = 16;

/// The keys of a run: so many, all with values of one size.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    /// How many.
    pub count: u64,
    /// Bytes of each value, at least [`VALUE_BYTES_MIN`].
    pub value_bytes: usize,
}

impl Keys {
    /// The key with this number.
    pub fn key(&self, number: u64) -> String {
        format!("rebalance/{number:010}")
    }

    /// What the `write`-th write of this key puts there: whose it is and which, and filler that does not compress.
    pub fn value(&self, number: u64, write: u64) -> Bytes {
        let mut value = Vec::with_capacity(self.value_bytes);
        value.extend(number.to_be_bytes());
        value.extend(write.to_be_bytes());
        let mut filler = number ^ write.rotate_left(32) ^ 0x9E37_79B9_7F4A_7C15;
        while value.len() < self.value_bytes {
            filler = filler.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            value.push((filler >> 56) as u8);
        }
        value.into()
    }

    /// Which write of the key this value is of; `None` if it is no value of that key.
    pub fn write_of(&self, number: u64, value: &[u8]) -> Option<u64> {
        let write = u64::from_be_bytes(value.get(8..16)?.try_into().ok()?);
        (value == self.value(number, write)).then_some(write)
    }

    /// Bytes of one key and its value.
    pub fn bytes_each(&self) -> u64 {
        (self.key(0).len() + self.value_bytes) as u64
    }

    /// Writes every key once, with `at_once` writes under way.
    ///
    /// # Errors
    /// The first write that failed.
    pub async fn load(self, client: &Client, at_once: u64) -> anyhow::Result<()> {
        let mut loaders = JoinSet::new();
        for loader in 0..at_once {
            let client = client.clone();
            loaders.spawn(async move {
                for number in (loader..self.count).step_by(at_once as usize) {
                    client.put(self.key(number), self.value(number, 0)).await?;
                }
                Ok::<_, archon_client::Error>(())
            });
        }
        while let Some(loaded) = loaders.join_next().await {
            loaded??;
        }
        Ok(())
    }

    /// Reads every key and returns those whose value is missing, foreign or older than what was acknowledged.
    ///
    /// # Errors
    /// If a reader panicked.
    pub async fn missing(
        self,
        client: &Client,
        acknowledged: HashMap<u64, u64>,
        at_once: u64,
    ) -> anyhow::Result<Vec<String>> {
        let acknowledged = Arc::new(acknowledged);
        let mut readers = JoinSet::new();
        for reader in 0..at_once {
            let (client, acknowledged) = (client.clone(), acknowledged.clone());
            readers.spawn(async move {
                let mut missing = Vec::new();
                for number in (reader..self.count).step_by(at_once as usize) {
                    let at_least = acknowledged.get(&number).copied().unwrap_or(0);
                    let found = client.get(self.key(number)).await;
                    let fits = match &found {
                        Ok(Some(found)) => self.write_of(number, &found.value).is_some_and(|write| write >= at_least),
                        Ok(None) | Err(_) => false,
                    };
                    if !fits {
                        let found = found.map(|found| found.map(|found| found.value.slice(..VALUE_BYTES_MIN)));
                        missing.push(format!("{}: write {at_least}, found {found:?}", self.key(number)));
                    }
                }
                missing
            });
        }
        let mut missing = Vec::new();
        while let Some(read) = readers.join_next().await {
            missing.extend(read?);
        }
        Ok(missing)
    }
}

/// What was seen of one kind of operation in one phase.
#[derive(Clone, Debug)]
struct Tally {
    micros: Histogram<u64>,
    longest_gap: Duration,
    failed: u64,
    last_failure: Option<String>,
}

impl Tally {
    fn new() -> anyhow::Result<Self> {
        let micros = Histogram::new_with_bounds(1, LATENCY_MAX_US, 3)?;
        Ok(Self { micros, longest_gap: Duration::ZERO, failed: 0, last_failure: None })
    }

    fn add(&mut self, other: &Self) -> anyhow::Result<()> {
        self.micros.add(&other.micros)?;
        self.longest_gap = self.longest_gap.max(other.longest_gap);
        self.failed += other.failed;
        if other.last_failure.is_some() {
            self.last_failure.clone_from(&other.last_failure);
        }
        Ok(())
    }
}

/// What was seen in one phase.
#[derive(Clone, Debug, Serialize)]
pub struct PhaseReport {
    /// Its name.
    pub phase: &'static str,
    /// How long it took.
    pub seconds: f64,
    /// Of reads.
    pub get: Option<KindReport>,
    /// Of writes.
    pub put: Option<KindReport>,
}

/// What was seen of one kind of operation in one phase. Times are in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct KindReport {
    /// Answered per second.
    pub per_second: f64,
    /// Median latency.
    pub p50_ms: f64,
    /// 99th percentile of latency.
    pub p99_ms: f64,
    /// Greatest latency.
    pub max_ms: f64,
    /// The longest time between two successes of one client.
    pub longest_gap_ms: f64,
    /// Operations that ended with an error.
    pub failed: u64,
    /// The last of these errors.
    pub last_failure: Option<String>,
}

impl KindReport {
    fn new(tally: &Tally, length: Duration) -> Option<Self> {
        let ms = |micros: u64| micros as f64 / 1e3;
        (!tally.micros.is_empty() || tally.failed > 0).then(|| Self {
            per_second: tally.micros.len() as f64 / length.as_secs_f64().max(1e-9),
            p50_ms: ms(tally.micros.value_at_quantile(0.5)),
            p99_ms: ms(tally.micros.value_at_quantile(0.99)),
            max_ms: ms(tally.micros.max()),
            longest_gap_ms: tally.longest_gap.as_secs_f64() * 1e3,
            failed: tally.failed,
            last_failure: tally.last_failure.clone(),
        })
    }
}

/// One client's notes, per phase.
struct Notes {
    writes: bool,
    tallies: Vec<Tally>,
    acknowledged: HashMap<u64, u64>,
}

/// Clients in a closed loop that run until stopped.
#[derive(Debug)]
pub struct Traffic {
    keys: Keys,
    names: Vec<&'static str>,
    began: Vec<Instant>,
    phase: Arc<AtomicUsize>,
    clients: JoinSet<anyhow::Result<Notes>>,
}

/// What a phase number beyond all phases means to the clients.
const OVER: usize = usize::MAX;

impl Traffic {
    /// Starts `writers` and `readers` over all keys, and the first of the phases. Each writer has keys of its own.
    pub fn start(client: &Client, keys: Keys, writers: u64, readers: u64, phases: &[&'static str]) -> Self {
        let phase = Arc::new(AtomicUsize::new(0));
        let mut clients = JoinSet::new();
        for (count, writes) in [(writers, true), (readers, false)] {
            for number in 0..count {
                let drive = Drive { keys, number, count, writes, phases: phases.len() };
                clients.spawn(drive.run(client.clone(), phase.clone()));
            }
        }
        Self { keys, names: phases.to_vec(), began: vec![Instant::now()], phase, clients }
    }

    /// Begins the next phase.
    pub fn next_phase(&mut self) {
        self.phase.fetch_add(1, Ordering::Relaxed);
        self.began.push(Instant::now());
    }

    /// Stops the clients; returns what was seen in each phase, and the last acknowledged write of each key written.
    ///
    /// # Errors
    /// If a client panicked.
    pub async fn stop(mut self) -> anyhow::Result<(Vec<PhaseReport>, HashMap<u64, u64>)> {
        self.phase.store(OVER, Ordering::Relaxed);
        self.began.push(Instant::now());
        let mut tallies = Vec::new();
        for _ in &self.names {
            tallies.push((Tally::new()?, Tally::new()?));
        }
        let mut acknowledged = HashMap::new();
        while let Some(ended) = self.clients.join_next().await {
            let notes = ended??;
            for ((gets, puts), seen) in tallies.iter_mut().zip(&notes.tallies) {
                if notes.writes { puts.add(seen)? } else { gets.add(seen)? }
            }
            acknowledged.extend(notes.acknowledged);
        }
        let mut reports = Vec::new();
        for (place, (gets, puts)) in tallies.iter().enumerate() {
            let (Some(from), Some(to)) = (self.began.get(place), self.began.get(place + 1)) else { break };
            let length = to.duration_since(*from);
            reports.push(PhaseReport {
                phase: self.names[place],
                seconds: length.as_secs_f64(),
                get: KindReport::new(gets, length),
                put: KindReport::new(puts, length),
            });
        }
        debug_assert!(acknowledged.keys().all(|number| *number < self.keys.count));
        Ok((reports, acknowledged))
    }
}

struct Drive {
    keys: Keys,
    number: u64,
    count: u64,
    writes: bool,
    phases: usize,
}

impl Drive {
    async fn run(self, client: Client, phase: Arc<AtomicUsize>) -> anyhow::Result<Notes> {
        let mut notes = Notes { writes: self.writes, tallies: Vec::new(), acknowledged: HashMap::new() };
        for _ in 0..self.phases {
            notes.tallies.push(Tally::new()?);
        }
        let own = (self.keys.count / self.count).max(1);
        let mut random = self.number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut attempts: HashMap<u64, u64> = HashMap::new();
        let mut succeeded = Instant::now();
        loop {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let number = if self.writes { random % own * self.count + self.number } else { random % self.keys.count };
            let number = number.min(self.keys.count - 1);
            let began = Instant::now();
            let key = self.keys.key(number);
            let outcome = if self.writes && number % self.count == self.number {
                let write = attempts.entry(number).or_insert(0);
                *write += 1;
                let put = client.put(key, self.keys.value(number, *write)).await.map(|_| ());
                if put.is_ok() {
                    notes.acknowledged.insert(number, *write);
                }
                put
            } else {
                client.get(key).await.map(|_| ())
            };
            // What ends after the last phase is not counted.
            let Some(tally) = notes.tallies.get_mut(phase.load(Ordering::Relaxed)) else { return Ok(notes) };
            match outcome {
                Ok(()) => {
                    tally.micros.saturating_record((began.elapsed().as_micros() as u64).max(1));
                    tally.longest_gap = tally.longest_gap.max(succeeded.elapsed());
                    succeeded = Instant::now();
                }
                Err(error) => {
                    tally.failed += 1;
                    tally.last_failure = Some(error.to_string());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_says_whose_it_is() {
        let keys = Keys { count: 10, value_bytes: 100 };
        let value = keys.value(7, 3);
        assert_eq!(value.len(), 100);
        assert_eq!(keys.write_of(7, &value), Some(3));
        assert_eq!(keys.write_of(8, &value), None);
        assert_eq!(keys.write_of(7, &value[..50]), None);
    }
}
