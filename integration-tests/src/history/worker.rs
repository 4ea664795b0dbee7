//! One client of a workload: its requests and the record of their answers.

use super::notes::WorkloadRecord;
use super::operation::{Outcome, Record, Request};
use super::store::{Store, text};
use archon_client::Client;
use archon_testkit::Random;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// Operations after which a group moves to its next key: long enough to meet a fault, short enough to be checked.
const OPERATIONS_PER_KEY: u64 = 60;
/// Number of a group's latest keys for which a scan counts as a read.
const SCANNED_KEYS: u64 = 2;

pub(super) struct Worker {
    pub(super) number: u32,
    pub(super) group: u32,
    pub(super) store: Store,
    /// Operations of the group so far; determines the current key.
    pub(super) turn: Arc<AtomicU64>,
    pub(super) dice: Random,
    /// Last observation, for conditions.
    pub(super) seen: Option<Observation>,
    pub(super) written: u64,
    /// Mean pause after an operation: each is up to twice as long, so that operations on a key still overlap.
    pub(super) pause: Duration,
    pub(super) shared: Arc<WorkloadRecord>,
}

/// State of a key that an answer reported.
pub(super) struct Observation {
    generation: u64,
    /// `None` if the key was absent, or the answer did not contain the value.
    value: Option<Arc<str>>,
    /// Zero if the key was absent, or the interface reports no revisions.
    revision: u64,
}

impl Observation {
    /// Returns the state after an operation; `None` if its answer does not report it.
    fn after(generation: u64, request: &Request, outcome: &Outcome) -> Option<Self> {
        let (value, revision) = match (request, outcome) {
            (_, Outcome::Value(Some((value, revision)))) => (Some(value.clone()), *revision),
            (_, Outcome::Value(None) | Outcome::Deleted { .. }) => (None, None),
            (_, Outcome::ConditionFailed { found }) => (None, Some(*found)),
            (_, Outcome::Counter { value, revision }) => (Some(value.to_string().into()), *revision),
            (
                Request::Put(value) | Request::CompareAndSet { value, .. } | Request::Replace { value, .. },
                Outcome::Written(revision),
            ) => (Some(value.clone()), *revision),
            _ => return None,
        };
        Some(Self { generation, value, revision: revision.unwrap_or(0) })
    }
}

impl Worker {
    pub(super) async fn run(mut self) {
        let mut last = Instant::now();
        while !self.shared.stop.load(Ordering::Relaxed) {
            let generation = self.turn.fetch_add(1, Ordering::Relaxed) / OPERATIONS_PER_KEY;
            let answered = match (self.store.scanner(), self.dice.below(60)) {
                (Some(client), 0) => self.scan(&client, generation).await,
                _ => self.operate(generation).await,
            };
            if answered {
                self.shared.answered.fetch_add(1, Ordering::Relaxed);
                self.shared.answered_by_redis.fetch_add(u64::from(self.store.is_redis()), Ordering::Relaxed);
                let since = u64::try_from(self.shared.began.elapsed().as_millis()).unwrap_or(u64::MAX);
                self.shared.last_answer_ms[self.number as usize].store(since, Ordering::Relaxed);
                let mut noted = self.shared.noted();
                noted.report.longest_gap = noted.report.longest_gap.max(last.elapsed());
                last = Instant::now();
            } else {
                // Open operations make a history expensive to check: the group moves to its next key.
                self.turn.fetch_max((generation + 1) * OPERATIONS_PER_KEY, Ordering::Relaxed);
            }
            if !self.pause.is_zero() {
                let pause = self.pause.mul_f64(self.dice.below(201) as f64 / 100.0);
                sleep(pause).await;
                last += pause;
            }
        }
    }

    fn key(&self, generation: u64) -> String {
        format!("{}/{}/{generation:06}", self.shared.prefix, self.group)
    }

    /// Every third key is a counter; the others hold values, each written once. The client library only reads pairs.
    fn request(&mut self, generation: u64, pair: bool) -> Request {
        self.written += 1;
        let counts = generation % 3 == 2;
        let value: Arc<str> = match counts {
            true => self.dice.below(1_000).to_string().into(),
            false => format!("{}.{}", self.number, self.written).into(),
        };
        match self.dice.below(20) {
            _ if pair && !self.store.is_redis() => Request::Get,
            0..=6 => Request::Get,
            7..=8 => Request::Delete,
            9..=13 => {
                let seen = self.seen.as_ref().filter(|seen| seen.generation == generation);
                match self.store.is_redis() {
                    true => Request::Replace { expected: seen.and_then(|seen| seen.value.clone()), value },
                    false => Request::CompareAndSet { expected: seen.map_or(0, |seen| seen.revision), value },
                }
            }
            14..=18 if counts => Request::Increment(1 + i64::try_from(self.dice.below(5)).unwrap_or(0)),
            _ => Request::Put(value),
        }
    }

    async fn operate(&mut self, generation: u64) -> bool {
        let key = self.key(generation);
        let pair = self.shared.is_pair(&key);
        let request = self.request(generation, pair);
        let called_ns = self.shared.call(self.number, &key, &request);
        let result = self.store.ask(&key, pair, &request).await;
        let returned_ns = self.shared.now_ns();
        let outcome = match result {
            Ok(outcome) => outcome,
            Err(error) => {
                self.shared.fail(format!("{request} of {key}: {}", error.text));
                // A request without effect never happened: if its value is found later, no recorded write explains it.
                if !error.unknown {
                    self.shared.forget(self.number);
                    return false;
                }
                Outcome::Unknown
            }
        };
        self.seen = Observation::after(generation, &request, &outcome).or(self.seen.take());
        let record = Record { client: self.number, called_ns, returned_ns, request, outcome };
        let answered = !record.is_open();
        self.shared.record(&key, record);
        answered
    }

    /// A scan counts as a read of every key it could have found, each at some moment of its own.
    async fn scan(&mut self, client: &Client, generation: u64) -> bool {
        let keys: Vec<String> =
            (generation.saturating_sub(SCANNED_KEYS - 1)..=generation).map(|generation| self.key(generation)).collect();
        let called_ns = self.shared.now_ns();
        // Starts just before the first of them; all keys of a group share a prefix.
        let after = match generation.checked_sub(SCANNED_KEYS) {
            Some(before) => self.key(before),
            None => String::new(),
        };
        let page =
            match client.scan(format!("{}/{}/", self.shared.prefix, self.group)).after(after).limit(100).page().await {
                Ok(page) => page,
                Err(error) => {
                    self.shared.fail(format!("scan of group {}: {error}", self.group));
                    return false;
                }
            };
        let returned_ns = self.shared.now_ns();
        let found: BTreeMap<Arc<str>, (Arc<str>, Option<u64>)> = page
            .entries
            .iter()
            .map(|entry| (text(&entry.key), (text(&entry.value), Some(entry.revision.get()))))
            .collect();
        for key in keys {
            let outcome = Outcome::Value(found.get(key.as_str()).cloned());
            let record = Record { client: self.number, called_ns, returned_ns, request: Request::Get, outcome };
            self.shared.record(&key, record);
        }
        true
    }
}
