//! One client of a workload: its requests and the record of their answers.

use super::notes::Shared;
use super::operation::{Outcome, Record, Request};
use archon_client::{Client, Error};
use archon_testkit::Random;
use archon_types::Revision;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Operations after which a group moves to its next key: long enough to meet a fault, short enough to be checked.
const OPERATIONS_PER_KEY: u64 = 60;
/// Number of a group's latest keys for which a scan counts as a read.
const SCANNED_KEYS: u64 = 2;

pub(super) struct Worker {
    pub(super) number: u32,
    pub(super) group: u32,
    pub(super) client: Client,
    /// Operations of the group so far; determines the current key.
    pub(super) turn: Arc<AtomicU64>,
    pub(super) dice: Random,
    /// Key and revision of the last observation.
    pub(super) seen: Option<(u64, u64)>,
    pub(super) written: u64,
    pub(super) shared: Arc<Shared>,
}

impl Worker {
    pub(super) async fn run(mut self) {
        let mut last = Instant::now();
        while !self.shared.stop.load(Ordering::Relaxed) {
            let generation = self.turn.fetch_add(1, Ordering::Relaxed) / OPERATIONS_PER_KEY;
            let answered =
                if self.dice.below(60) == 0 { self.scan(generation).await } else { self.operate(generation).await };
            if answered {
                self.shared.answered.fetch_add(1, Ordering::Relaxed);
                let since = u64::try_from(self.shared.began.elapsed().as_millis()).unwrap_or(u64::MAX);
                self.shared.last_answer_ms[self.number as usize].store(since, Ordering::Relaxed);
                let mut noted = self.shared.noted();
                noted.report.longest_gap = noted.report.longest_gap.max(last.elapsed());
                last = Instant::now();
            } else {
                // Open operations make a history expensive to check: the group moves to its next key.
                self.turn.fetch_max((generation + 1) * OPERATIONS_PER_KEY, Ordering::Relaxed);
            }
        }
    }

    fn key(&self, generation: u64) -> String {
        format!("{}/{}/{generation:06}", self.shared.prefix, self.group)
    }

    /// Every third key is a counter; the others hold values, each written once.
    fn request(&mut self, generation: u64) -> Request {
        self.written += 1;
        let counts = generation % 3 == 2;
        let value: Arc<str> = match counts {
            true => self.dice.below(1_000).to_string().into(),
            false => format!("{}.{}", self.number, self.written).into(),
        };
        match self.dice.below(20) {
            0..=6 => Request::Get,
            7..=8 => Request::Delete,
            9..=13 => match self.seen {
                Some((of, expected)) if of == generation => Request::CompareAndSet { expected, value },
                _ => Request::CompareAndSet { expected: 0, value },
            },
            14..=18 if counts => Request::Increment(1 + i64::try_from(self.dice.below(5)).unwrap_or(0)),
            _ => Request::Put(value),
        }
    }

    async fn operate(&mut self, generation: u64) -> bool {
        let key = self.key(generation);
        let request = self.request(generation);
        let called_ns = self.shared.call(self.number, &key, &request);
        let result = ask(&self.client, &key, &request).await;
        let returned_ns = self.shared.now_ns();
        let outcome = match result {
            Ok(outcome) => outcome,
            Err(error) => {
                self.shared.fail(format!("{request} of {key}: {error}"));
                // A request without effect never happened: if its value is found later, no recorded write explains it.
                if !error.outcome_unknown() {
                    self.shared.forget(self.number);
                    return false;
                }
                Outcome::Unknown
            }
        };
        match &outcome {
            Outcome::Value(Some((_, revision)))
            | Outcome::Written(revision)
            | Outcome::Counter { revision, .. }
            | Outcome::ConditionFailed { found: revision } => self.seen = Some((generation, *revision)),
            Outcome::Value(None) | Outcome::Deleted { .. } => self.seen = Some((generation, 0)),
            Outcome::NotANumber | Outcome::Unknown => {}
        }
        let record = Record { client: self.number, called_ns, returned_ns, request, outcome };
        let answered = !record.is_open();
        self.shared.record(&key, record);
        answered
    }

    /// A scan counts as a read of every key it could have found, each at some moment of its own.
    async fn scan(&mut self, generation: u64) -> bool {
        let keys: Vec<String> =
            (generation.saturating_sub(SCANNED_KEYS - 1)..=generation).map(|generation| self.key(generation)).collect();
        let called_ns = self.shared.now_ns();
        // Starts just before the first of them; all keys of a group share a prefix.
        let after = match generation.checked_sub(SCANNED_KEYS) {
            Some(before) => self.key(before),
            None => String::new(),
        };
        let page = match self
            .client
            .scan(format!("{}/{}/", self.shared.prefix, self.group))
            .after(after)
            .limit(100)
            .page()
            .await
        {
            Ok(page) => page,
            Err(error) => {
                self.shared.fail(format!("scan of group {}: {error}", self.group));
                return false;
            }
        };
        let returned_ns = self.shared.now_ns();
        let found: BTreeMap<Arc<str>, (Arc<str>, u64)> =
            page.entries.iter().map(|entry| (text(&entry.key), (text(&entry.value), entry.revision.get()))).collect();
        for key in keys {
            let outcome = Outcome::Value(found.get(key.as_str()).cloned());
            let record = Record { client: self.number, called_ns, returned_ns, request: Request::Get, outcome };
            self.shared.record(&key, record);
        }
        true
    }
}

async fn ask(client: &Client, key: &str, request: &Request) -> Result<Outcome, Error> {
    let bytes = |value: &Arc<str>| value.as_bytes().to_vec();
    let outcome = match request {
        Request::Get => client
            .get(key)
            .await
            .map(|found| Outcome::Value(found.map(|found| (text(&found.value), found.revision.get())))),
        Request::Put(value) => client.put(key, bytes(value)).await.map(|revision| Outcome::Written(revision.get())),
        Request::Delete => client.delete(key).await.map(|existed| Outcome::Deleted { existed }),
        Request::CompareAndSet { expected, value } => client
            .compare_and_set(key, Revision::new(*expected), bytes(value))
            .await
            .map(|revision| Outcome::Written(revision.get())),
        Request::Increment(by) => client
            .increment(key, *by)
            .await
            .map(|counter| Outcome::Counter { value: counter.value, revision: counter.revision.get() }),
    };
    match outcome {
        Err(Error::ConditionFailed { found }) => Ok(Outcome::ConditionFailed { found: found.get() }),
        Err(Error::NotANumber) => Ok(Outcome::NotANumber),
        other => other,
    }
}

pub(super) fn text(bytes: &[u8]) -> Arc<str> {
    String::from_utf8_lossy(bytes).into()
}
