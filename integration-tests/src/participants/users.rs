//! Users who increment through the front end and record acknowledged requests.

use archon_client::Routes;
use archon_examples::counter::FrontEnd;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// Time during which a request is retried before the test fails: longer than any fault on the cluster lasts.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Pause of a user between two requests. At full speed users would take the machine from the clusters of other tests.
const PAUSE: Duration = Duration::from_millis(10);

/// Acknowledged requests of users.
#[derive(Clone, Debug, Default)]
pub struct RequestCounts {
    /// Acknowledged requests by counter; each user retries until each of its requests is acknowledged.
    pub acknowledged: BTreeMap<String, u64>,
    /// Longest time of a request.
    pub longest: Duration,
}

/// Users that run until stopped.
#[derive(Debug)]
pub struct Users {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    users: JoinSet<RequestCounts>,
}

impl Users {
    /// Starts users, each of which increments all counters in turn.
    pub fn start(runtime: &Runtime, routes: &Routes, users: u64, counters: usize) -> Self {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut tasks = JoinSet::new();
        for user in 1..=users {
            let front_end = FrontEnd::new(routes.clone(), TIMEOUT);
            let work = work(user, counters, front_end, Arc::clone(&stop), Arc::clone(&answered));
            tasks.spawn_on(work, runtime.handle());
        }
        Self { stop, answered, users: tasks }
    }

    /// Returns the number of acknowledged requests so far.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Waits for each user's last request and collects the results.
    ///
    /// # Panics
    /// If a request was not answered in time: then the expected sums are unknown.
    pub async fn stop(mut self) -> RequestCounts {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = RequestCounts::default();
        while let Some(ended) = self.users.join_next().await {
            let RequestCounts { acknowledged, longest } = ended.expect("every request is answered in the end");
            for (counter, count) in acknowledged {
                *all.acknowledged.entry(counter).or_default() += count;
            }
            all.longest = all.longest.max(longest);
        }
        all
    }
}

async fn work(
    user: u64,
    counters: usize,
    mut front_end: FrontEnd,
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
) -> RequestCounts {
    let mut counted = RequestCounts::default();
    let mut request = 0;
    while !stop.load(Ordering::Relaxed) {
        request += 1;
        let counter = format!("counter-{}", (user + request) % counters as u64);
        let begun = Instant::now();
        let outcome = front_end.count(&counter, user, request).await;
        assert!(outcome.is_ok(), "user {user}: {outcome:?}");
        counted.longest = counted.longest.max(begun.elapsed());
        *counted.acknowledged.entry(counter).or_default() += 1;
        answered.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(PAUSE).await;
    }
    counted
}
