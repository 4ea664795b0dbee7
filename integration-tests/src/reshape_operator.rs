//! An operator that continuously splits and merges the partitions of a table by ranges, around the keys that clients
//! use.

use crate::attempt::{Attempt, Reshape};
use crate::history::LatestKeys;
use archon_client::{Admin, Error, PartitionSummary};
use archon_testkit::Random;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// Below this range it always splits, above it always merges.
const PARTITIONS: std::ops::RangeInclusive<usize> = 2..=6;
/// One attempt in this many is cancelled after its begin.
const CANCELLED: u64 = 8;
/// Poll interval.
const EVERY: Duration = Duration::from_millis(20);

/// Results so far.
#[derive(Clone, Debug, Default)]
pub struct ReshapeResults {
    /// Completed splits.
    pub splits: u32,
    /// Completed merges.
    pub merges: u32,
    /// Splits and merges abandoned after their begin.
    pub given_up: u32,
    /// Splits and merges refused at their begin.
    pub refused: u32,
    /// Message of the last refusal.
    pub refusal: String,
}

#[derive(Debug, Default)]
struct OperatorState {
    stops: AtomicBool,
    rests: AtomicBool,
    reshaped: Mutex<ReshapeResults>,
}

impl OperatorState {
    fn reshaped(&self) -> MutexGuard<'_, ReshapeResults> {
        self.reshaped.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The running operator.
#[derive(Debug)]
pub struct ReshapeOperator {
    shared: Arc<OperatorState>,
    task: JoinHandle<()>,
}

impl ReshapeOperator {
    /// Starts the operator; the clients work on these keys of this table.
    pub fn begin(runtime: &Runtime, admin: Admin, table: &str, keys: LatestKeys, seed: u64) -> Self {
        let shared = Arc::<OperatorState>::default();
        let operator =
            Operator { admin, table: table.to_owned(), keys, dice: Random::new(seed), shared: Arc::clone(&shared) };
        Self { shared, task: runtime.spawn(operator.run()) }
    }

    /// Returns the results so far.
    pub fn so_far(&self) -> ReshapeResults {
        self.shared.reshaped().clone()
    }

    /// Pauses new attempts, or resumes them.
    pub fn rest(&self, rests: bool) {
        self.shared.rests.store(rests, Ordering::Relaxed);
    }

    /// Stops after the current attempt has ended.
    ///
    /// # Panics
    /// If the operator panicked.
    #[allow(clippy::expect_used)]
    pub fn end(self, runtime: &Runtime) -> ReshapeResults {
        self.shared.stops.store(true, Ordering::Relaxed);
        runtime.block_on(self.task).expect("the operator does not panic");
        self.shared.reshaped().clone()
    }
}

struct Operator {
    admin: Admin,
    table: String,
    keys: LatestKeys,
    dice: Random,
    shared: Arc<OperatorState>,
}

impl Operator {
    async fn run(mut self) {
        while !self.shared.stops.load(Ordering::Relaxed) {
            if !self.shared.rests.load(Ordering::Relaxed) {
                match self.begin().await {
                    Ok(Some(attempt)) => self.follow(&attempt).await,
                    Ok(None) => {}
                    Err(error) => {
                        let mut reshaped = self.shared.reshaped();
                        reshaped.refused += 1;
                        reshaped.refusal = error.to_string();
                    }
                }
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    /// Begins an attempt, if there is one to make.
    async fn begin(&mut self) -> Result<Option<Attempt>, Error> {
        let mut rows = self.admin.table(&self.table).await?;
        rows.sort_by(|one, other| begin_of(one).cmp(begin_of(other)));
        let splits = match rows.len() {
            few if few < *PARTITIONS.start() => true,
            many if many > *PARTITIONS.end() => false,
            _ => self.dice.below(2) == 0,
        };
        if !splits && let Some((_, but_last)) = rows.split_last() {
            let left = self.dice.pick(but_last).id;
            return Attempt::merge(&self.admin, &self.table, left).await.map(Some);
        }
        let keys = self.keys.now();
        if keys.is_empty() {
            return Ok(None);
        }
        // At the current key, which becomes the first one of the right half, or beyond it, where clients will be soon.
        let at = self.dice.pick(&keys).clone() + if self.dice.below(2) == 0 { "" } else { "~" };
        match rows.iter().rfind(|row| *begin_of(row) <= *at.as_bytes()) {
            Some(row) if begin_of(row) != at.as_bytes() => {
                Attempt::split(&self.admin, &self.table, row.id, &at).await.map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Waits for the end of an attempt.
    async fn follow(&mut self, attempt: &Attempt) {
        if self.dice.below(CANCELLED) == 0 {
            // It may have ended already, or no coordinator may answer now.
            let _ = attempt.cancel().await;
        }
        loop {
            tokio::time::sleep(EVERY).await;
            let Ok(told) = attempt.events().await else { continue };
            let end = attempt.end_in(&told);
            if let Some(end) = end {
                let mut reshaped = self.shared.reshaped();
                match attempt.reshape {
                    _ if end.code == attempt.reshape.given_up() => reshaped.given_up += 1,
                    Reshape::Split => reshaped.splits += 1,
                    Reshape::Merge => reshaped.merges += 1,
                }
            }
            // Without events, the attempt ended too long ago to be kept.
            if end.is_some() || told.is_empty() {
                return;
            }
        }
    }
}

/// Returns the first key of a partition.
fn begin_of(row: &PartitionSummary) -> &[u8] {
    row.range.as_ref().map_or(&b""[..], |range| range.begin.as_ref())
}
