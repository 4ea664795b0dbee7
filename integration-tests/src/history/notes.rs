//! Shared record of the clients of one workload.

use super::operation::{Record, Request};
use super::pair;
use super::workload::WorkloadReport;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

/// Record of all clients of one workload.
#[derive(Debug)]
pub(super) struct WorkloadRecord {
    pub(super) prefix: String,
    /// True if some keys are pairs.
    pub(super) pairs: bool,
    pub(super) began: Instant,
    pub(super) stop: AtomicBool,
    pub(super) answered: AtomicU64,
    /// Those of `answered` that were sent to Redis listeners.
    pub(super) answered_by_redis: AtomicU64,
    /// Milliseconds from `began` to each client's last answer.
    pub(super) last_answer_ms: Vec<AtomicU64>,
    noted: Mutex<WorkloadProgress>,
}

/// One lock for both, so that no operation is ever missing from both.
#[derive(Debug, Default)]
pub(super) struct WorkloadProgress {
    pub(super) report: WorkloadReport,
    /// Each client's pending operation: the key, the moment of its call and the request.
    pub(super) under_way: BTreeMap<u32, (String, u64, Request)>,
}

impl WorkloadRecord {
    pub(super) fn new(prefix: &str, clients: u32, pairs: bool) -> Self {
        Self {
            prefix: prefix.to_owned(),
            pairs,
            began: Instant::now(),
            stop: AtomicBool::new(false),
            answered: AtomicU64::new(0),
            answered_by_redis: AtomicU64::new(0),
            last_answer_ms: (0..clients).map(|_| AtomicU64::new(0)).collect(),
            noted: Mutex::new(WorkloadProgress::default()),
        }
    }

    pub(super) fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    pub(super) fn noted(&self) -> MutexGuard<'_, WorkloadProgress> {
        self.noted.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Returns whether a key of this workload is the first one of a pair.
    pub(super) fn is_pair(&self, key: &str) -> bool {
        let generation = key.rsplit_once('/').and_then(|(_, generation)| generation.parse().ok());
        self.pairs && generation.is_some_and(pair::is_pair)
    }

    /// Returns the current key of each group.
    pub(super) fn latest_keys(&self) -> Vec<String> {
        let noted = self.noted();
        let of_group = noted.report.histories.keys().filter_map(|key| Some((key.rsplit_once('/')?.0, key)));
        of_group.collect::<BTreeMap<_, _>>().into_values().cloned().collect()
    }

    pub(super) fn fail(&self, failure: String) {
        self.noted().report.failures.push(failure);
    }

    /// Records a client's call.
    pub(super) fn call(&self, client: u32, key: &str, request: &Request) -> u64 {
        let mut noted = self.noted();
        let called_ns = self.now_ns();
        noted.under_way.insert(client, (key.to_owned(), called_ns, request.clone()));
        called_ns
    }

    /// Removes a client's call that never took effect.
    pub(super) fn forget(&self, client: u32) {
        self.noted().under_way.remove(&client);
    }

    pub(super) fn record(&self, key: &str, record: Record) {
        let mut noted = self.noted();
        noted.under_way.remove(&record.client);
        noted.report.histories.entry(key.to_owned()).or_default().push(record);
    }
}
