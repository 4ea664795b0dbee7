//! Clients that work together on few hot keys at a time and record their observations.

use super::checker::{Verdict, check};
use super::notes::{WorkloadProgress, WorkloadRecord};
use super::operation::{Outcome, Record, Request};
use super::pair;
use super::store::{Store, text};
use super::violation::Violation;
use super::worker::Worker;
use crate::redis_driver::{Driver, Library};
use archon_client::{Client, Error, Transport};
use archon_testkit::Random;
use archon_types::DEFAULT_TABLE;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Time-out of a client that was given one member only.
const NEWCOMERS_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause of that client after a read of each key.
const NEWCOMERS_PAUSE: Duration = Duration::from_millis(5);

/// Default of [`WorkloadOptions::pause`]: 24 clients send about 500 operations per second. At full speed they would take
/// the machine from the clusters of other tests.
const PAUSE: Duration = Duration::from_millis(40);

/// Size and shape of a workload.
#[derive(Clone, Debug)]
pub struct WorkloadOptions {
    /// Key prefix; distinct for each load of the same cluster.
    pub prefix: String,
    /// Number of groups; the members of a group work on the same key.
    pub groups: u32,
    /// Members of each group, at most eight.
    pub clients_per_group: u32,
    /// Time-out of a patient client.
    pub timeout: Duration,
    /// Time-out of one client of each group, short so that some outcomes are unknown. Equal to `timeout` if no
    /// operation may fail.
    pub hasty: Duration,
    /// Seed of the requests.
    pub seed: u64,
    /// The only node that the clients use, if set.
    pub via: Option<&'static str>,
    /// Table by ranges to use instead of the default table; the scene creates it.
    pub table: Option<&'static str>,
    /// Mean pause of a client after an operation; none at zero.
    pub pause: Duration,
    /// Library by which three of four clients use the Redis listeners of the nodes; one that sends each write once. Every third
    /// key is a pair then, which these clients write by commands of several keys and by transactions.
    pub redis: Option<Library>,
}

impl Default for WorkloadOptions {
    fn default() -> Self {
        let (timeout, hasty) = (Duration::from_secs(45), Duration::from_millis(700));
        Self {
            prefix: "h".into(),
            groups: 6,
            clients_per_group: 4,
            timeout,
            hasty,
            seed: 1,
            via: None,
            table: None,
            pause: PAUSE,
            redis: None,
        }
    }
}

/// Observations of the clients.
#[derive(Debug, Default)]
pub struct WorkloadReport {
    /// Every operation on each key that was answered or may have had an effect.
    pub histories: BTreeMap<String, Vec<Record>>,
    /// Answered operations.
    pub answered: u64,
    /// Those of `answered` that were sent to Redis listeners.
    pub answered_by_redis: u64,
    /// Answered operations on pairs of keys, at the end as well.
    pub answered_on_pairs: usize,
    /// Failed operations, as the client described them.
    pub failures: Vec<String>,
    /// Longest time between two answers to one client.
    pub longest_gap: Duration,
}

impl WorkloadReport {
    /// Returns every key whose history contradicts itself or could not be checked.
    pub fn violations(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (key, history) in &self.histories {
            match check(history) {
                Verdict::Linearizable => {}
                Verdict::Violated => found.push(Violation::minimise(key, history).to_string()),
                Verdict::Undecided => {
                    let open = history.iter().filter(|record| record.is_open()).count();
                    found.push(format!(
                        "key {key:?}: {} operations, {open} of them open, cannot be judged",
                        history.len()
                    ));
                }
            }
        }
        found
    }

    /// Returns the number of successful conditional writes.
    pub fn replaced(&self) -> usize {
        let replaced = |record: &&Record| {
            matches!((&record.request, &record.outcome), (Request::Replace { .. }, Outcome::Written(_)))
        };
        self.histories.values().flatten().filter(replaced).count()
    }

    /// Returns the number of operations with unknown outcome.
    pub fn open(&self) -> usize {
        self.histories.values().flatten().filter(|record| record.is_open()).count()
    }

    /// # Panics
    /// If any operation failed.
    pub fn assert_no_failure(&self) {
        let (failed, answered) = (self.failures.len(), self.answered);
        assert!(failed == 0, "{failed} failed, {answered} were answered: {:#?}", &self.failures[..failed.min(10)]);
    }
}

/// The keys that clients work on, updated as they move to others.
#[derive(Clone, Debug)]
pub struct LatestKeys(Arc<WorkloadRecord>);

impl LatestKeys {
    /// Returns the current key of each group.
    pub fn now(&self) -> Vec<String> {
        self.0.latest_keys()
    }
}

/// Clients that run until [`Workload::stop`].
#[derive(Debug)]
pub struct Workload {
    shared: Arc<WorkloadRecord>,
    clients: JoinSet<()>,
    patient: Client,
    transport: Transport,
    table: &'static str,
}

impl Workload {
    /// Starts the clients on a cluster whose members are reached at `endpoints` by `transport`; with `via`, that is the
    /// address of that node. With `redis`, three of four clients use that driver.
    ///
    /// # Errors
    /// If the cluster cannot be found.
    pub async fn start(
        endpoints: Vec<String>,
        transport: Transport,
        redis: Option<Driver>,
        options: &WorkloadOptions,
    ) -> Result<Self, Error> {
        let table = options.table.unwrap_or(DEFAULT_TABLE);
        let begin = || {
            let builder = Client::builder(endpoints.clone()).transport(transport.clone()).timeout(options.timeout);
            let builder = builder.table(table);
            if options.via.is_some() { builder.via_endpoints() } else { builder }
        };
        let patient = begin().build().await?;
        // A separate instance: its connections and budget are not those of the patient client.
        let hasty = begin().build().await?.with_timeout(options.hasty);
        let redis = redis.map(Arc::new);
        let count = options.groups * options.clients_per_group;
        let shared = Arc::new(WorkloadRecord::new(&options.prefix, count, redis.is_some()));
        let mut clients = JoinSet::new();
        for group in 0..options.groups {
            let turn = Arc::new(AtomicU64::new(0));
            for member in 0..options.clients_per_group {
                let number = group * options.clients_per_group + member;
                let worker = Worker {
                    number,
                    group,
                    store: match &redis {
                        _ if member == 0 => Store::Native(hasty.clone()),
                        Some(driver) => Store::Redis { driver: driver.clone(), transactions: member % 2 == 0 },
                        None => Store::Native(patient.clone()),
                    },
                    turn: turn.clone(),
                    dice: Random::new(options.seed.wrapping_mul(1_000).wrapping_add(u64::from(number))),
                    seen: None,
                    written: 0,
                    pause: options.pause,
                    shared: shared.clone(),
                };
                clients.spawn(worker.run());
            }
        }
        Ok(Self { shared, clients, patient, transport, table })
    }

    /// Returns the patient client.
    pub fn client(&self) -> &Client {
        &self.patient
    }

    /// Returns the keys that the clients work on.
    pub fn latest_keys(&self) -> LatestKeys {
        LatestKeys(self.shared.clone())
    }

    /// Returns the number of answered operations so far.
    pub fn answered(&self) -> u64 {
        self.shared.answered.load(Ordering::Relaxed)
    }

    /// Returns the number of failed operations so far.
    pub fn failed(&self) -> usize {
        self.shared.noted().report.failures.len()
    }

    /// Returns the milliseconds since the start.
    pub fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.shared.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns the number of clients without an answer since `since_ms` after the start.
    pub fn waiting_since(&self, since_ms: u64) -> usize {
        self.shared.last_answer_ms.iter().filter(|last| last.load(Ordering::Relaxed) < since_ms).count()
    }

    /// Stops the clients, reads every key once more, individually and by a scan, and returns the report.
    ///
    /// # Panics
    /// If a client panicked.
    pub async fn stop(mut self) -> WorkloadReport {
        self.shared.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.clients.join_next().await {
            ended.expect("a client of the workload does not panic");
        }
        let keys: Vec<String> = self.shared.noted().report.histories.keys().cloned().collect();
        for key in &keys {
            self.read_last(key, key).await;
            if self.shared.is_pair(key) {
                self.read_last(key, &pair::other_key(key)).await;
            }
        }
        self.scan_everything(&keys).await;
        let report = std::mem::take(&mut self.shared.noted().report);
        self.completed(report)
    }

    /// Reads a key, or the other one of a pair, into the history of that key.
    async fn read_last(&self, key: &str, read: &str) {
        let called_ns = self.shared.now_ns();
        match self.patient.get(read).await {
            Ok(found) => {
                self.note_read(key, called_ns, found.map(|found| (text(&found.value), Some(found.revision.get()))))
            }
            Err(error) => self.shared.fail(format!("the last get of {read}: {error}")),
        }
    }

    /// Returns a report with its counts.
    fn completed(&self, mut report: WorkloadReport) -> WorkloadReport {
        report.answered = self.answered();
        report.answered_by_redis = self.shared.answered_by_redis.load(Ordering::Relaxed);
        let pairs = report.histories.iter().filter(|(key, _)| self.shared.is_pair(key));
        report.answered_on_pairs = pairs.flat_map(|(_, history)| history).filter(|record| !record.is_open()).count();
        report
    }

    /// Reads the latest keys of every group for a time, as a new client that knows only the member at `endpoint` and
    /// whichever table version that member has; returns the number of answered reads. They count in the histories.
    ///
    /// # Errors
    /// If the member returns no table.
    pub async fn read_through(&self, endpoint: &str, duration: Duration) -> Result<u64, Error> {
        let newcomer = Client::builder([endpoint]).transport(self.transport.clone()).timeout(NEWCOMERS_TIMEOUT);
        let newcomer = newcomer.table(self.table).build().await?;
        let (until, mut answered) = (Instant::now() + duration, 0);
        while Instant::now() < until {
            for key in self.shared.latest_keys() {
                let called_ns = self.shared.now_ns();
                // An unanswered read carries no information.
                if let Ok(found) = newcomer.get(&key).await {
                    self.note_read(
                        &key,
                        called_ns,
                        found.map(|found| (text(&found.value), Some(found.revision.get()))),
                    );
                    answered += 1;
                }
            }
            tokio::time::sleep(NEWCOMERS_PAUSE).await;
        }
        Ok(answered)
    }

    /// Stops the clients at once and returns the report so far: pending operations stay open, and nothing is read once
    /// more. For a cluster that may be unable to answer.
    pub async fn abandon(mut self) -> WorkloadReport {
        self.clients.shutdown().await;
        let WorkloadProgress { mut report, under_way } = std::mem::take(&mut *self.shared.noted());
        let now_ns = self.shared.now_ns();
        for (client, (key, called_ns, request)) in under_way {
            let record = Record { client, called_ns, returned_ns: now_ns, request, outcome: Outcome::Unknown };
            report.histories.entry(key).or_default().push(record);
        }
        self.completed(report)
    }

    async fn scan_everything(&self, keys: &[String]) {
        let everything = format!("{}/", self.shared.prefix);
        let called_ns = self.shared.now_ns();
        let (mut found, mut after) = (BTreeMap::new(), Vec::new());
        loop {
            match self.patient.scan(&everything).after(&after).limit(10_000).page().await {
                Ok(page) => {
                    found.extend(page.entries.iter().map(|e| (text(&e.key), (text(&e.value), Some(e.revision.get())))));
                    match page.entries.last() {
                        Some(last) if page.more => after = last.key.to_vec(),
                        _ => break,
                    }
                }
                Err(error) => return self.shared.fail(format!("the last scan: {error}")),
            }
        }
        for key in keys {
            self.note_read(key, called_ns, found.remove(key.as_str()));
        }
        let unknown = found.keys().map(|key| format!("the last scan found {key:?}, which nobody wrote"));
        self.shared.noted().report.failures.extend(unknown);
    }

    fn note_read(&self, key: &str, called_ns: u64, found: Option<(Arc<str>, Option<u64>)>) {
        let (returned_ns, outcome) = (self.shared.now_ns(), Outcome::Value(found));
        self.shared.record(key, Record { client: u32::MAX, called_ns, returned_ns, request: Request::Get, outcome });
    }
}
