//! Counters incremented while their table is changed: detects lost and duplicate increments.

use crate::cluster::{Cluster, TIMEOUT};
use archon_client::{Client, Error};
use archon_testkit::{check, wait_for};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// Number of counters, each incremented by a task of its own.
pub const COUNTERS: usize = 24;

/// Pause of a task between two increments: about 500 per second altogether. At full speed they would take the machine from
/// the clusters of other tests.
const PAUSE: Duration = Duration::from_millis(40);

/// Returns the key of a counter, in numeric order.
pub fn counter_key(counter: usize) -> String {
    format!("key-{counter:02}")
}

/// Results of one task on its counter.
#[derive(Clone, Copy, Debug, Default)]
pub struct CounterResult {
    /// Acknowledged increments.
    pub done: i64,
    /// Increments with unknown outcome.
    pub open: i64,
    /// Longest latency, in milliseconds.
    pub longest_ms: u128,
}

/// Counters under continuous increment, each by one sequential task, so that every returned sum is returned once.
#[derive(Debug)]
pub struct CounterLoad {
    runtime: Runtime,
    client: Arc<Client>,
    stop: Arc<AtomicBool>,
    /// Acknowledged increments of each counter.
    answered: Arc<[AtomicU64; COUNTERS]>,
    tasks: Vec<JoinHandle<CounterResult>>,
}

impl CounterLoad {
    /// Starts incrementing counters in this table.
    ///
    /// # Panics
    /// If the client cannot be built.
    #[allow(clippy::expect_used)]
    pub fn begin(cluster: &Cluster, table: &str) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let client = cluster.client().table(table);
        let client = Arc::new(runtime.block_on(client.build()).expect("a client"));
        let stop = Arc::new(AtomicBool::new(false));
        let answered: Arc<[AtomicU64; COUNTERS]> = Arc::default();
        let task =
            |counter| runtime.spawn(count_up(Arc::clone(&client), counter, Arc::clone(&stop), Arc::clone(&answered)));
        let tasks = (0..COUNTERS).map(task).collect();
        let counting = Self { runtime, client, stop, answered, tasks };
        counting.wait_heard();
        counting
    }

    /// Waits until each counter was incremented twice more, so that the client has written to each current
    /// partition: the outcome of its first write to a partition is unknown if that partition is merged meanwhile.
    ///
    /// # Panics
    /// If that takes too long.
    pub fn wait_heard(&self) {
        let answered = || self.answered.iter().map(|count| count.load(Ordering::Relaxed)).collect::<Vec<_>>();
        let before = answered();
        wait_for("each counter to be counted up", TIMEOUT, || {
            let now = answered();
            check(now.iter().zip(&before).all(|(now, before)| *now >= before + 2), || format!("{before:?}, {now:?}"))
        });
    }

    /// Stops, and compares the acknowledged increments with the stored values.
    ///
    /// # Panics
    /// If they differ.
    #[allow(clippy::expect_used)]
    pub fn end(self) -> Vec<CounterResult> {
        self.stop.store(true, Ordering::Relaxed);
        let seen: Vec<CounterResult> =
            self.tasks.into_iter().map(|task| self.runtime.block_on(task).expect("no panic")).collect();
        for (counter, seen) in seen.iter().enumerate() {
            let key = counter_key(counter);
            let found = self.runtime.block_on(self.client.get(&key)).expect("readable").expect("counted");
            let sum: i64 = String::from_utf8_lossy(&found.value).parse().expect("a number");
            assert!((seen.done..=seen.done + seen.open).contains(&sum), "{key}: {sum}, but {seen:?}");
            assert!(seen.done > 0, "{key}: {seen:?}");
        }
        seen
    }
}

async fn count_up(
    client: Arc<Client>,
    counter: usize,
    stop: Arc<AtomicBool>,
    answered: Arc<[AtomicU64; COUNTERS]>,
) -> CounterResult {
    let (key, mut seen) = (counter_key(counter), CounterResult::default());
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        match client.increment(key.clone(), 1).await {
            Ok(counter) => {
                seen.done += 1;
                let sums = seen.done..=seen.done + seen.open;
                assert!(sums.contains(&counter.value), "{key}: {counter:?}, but {seen:?}");
            }
            Err(error @ (Error::MaybeApplied { .. } | Error::DeadlineExceeded { .. })) => {
                println!("{key} is open after {} ms: {error}", began.elapsed().as_millis());
                seen.open += 1;
            }
            Err(error) => panic!("{key}: {error}"),
        }
        seen.longest_ms = seen.longest_ms.max(began.elapsed().as_millis());
        if let Some(answered) = answered.get(counter) {
            answered.fetch_add(1, Ordering::Relaxed);
        }
        tokio::time::sleep(PAUSE).await;
    }
    seen
}
