//! A server at work: the clock, the store and the callbacks around what is decided.

use super::held::Lease;
use super::partitioning::{Config, Effect, Partitioning};
use super::row::{Etag, Listed, Row};
use super::service::{Held, Service};
use super::store::{Put, Rows};
use crate::counter::boot_clock_ns;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::sleep;

/// A server's place among those that share the rows of a store.
///
/// Dropping it is a death: nothing is given up, and others wait until its leases are over.
pub struct LeaseRows {
    shared: Arc<Shared>,
    work: JoinHandle<()>,
}

/// What is decided, for whoever asks at any time.
struct Shared {
    decides: Mutex<Partitioning>,
    /// Rung when something was decided from outside.
    decided: Notify,
}

impl Shared {
    fn decides(&self) -> MutexGuard<'_, Partitioning> {
        self.decides.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LeaseRows {
    /// Begins to take partitions. A store may take `timeout` to answer; more than a fraction of the lease is of no use.
    ///
    /// # Errors
    /// If the times are not safe.
    pub fn start<R: Rows, S: Service>(config: Config, timeout: Duration, rows: R, service: S) -> Result<Self, String> {
        config.timing.check()?;
        let decides = Mutex::new(Partitioning::new(config, now(), drawn()));
        let shared = Arc::new(Shared { decides, decided: Notify::new() });
        let work = Work {
            shared: Arc::clone(&shared),
            rows: Arc::new(rows),
            service: Arc::new(service),
            timeout,
            tasks: JoinSet::new(),
            callbacks: BTreeMap::new(),
        };
        Ok(Self { shared, work: tokio::spawn(work.run()) })
    }

    /// Whether new work may be taken for a partition now.
    pub fn have_partition(&self, partition: u32) -> Option<Held> {
        let lease = self.shared.decides().have(partition, now())?;
        Some(held(&self.shared, lease))
    }

    /// All for which new work may be taken now.
    pub fn owned(&self) -> Vec<Held> {
        let (decides, now) = (self.shared.decides(), now());
        decides.owned(now).map(|lease| held(&self.shared, lease)).collect()
    }

    /// Gives up a partition, once the service has released it. Returns whether it was owned.
    pub fn drop_partition(&self, partition: u32) -> bool {
        let had = self.shared.decides().drop_partition(partition, now());
        self.shared.decided.notify_one();
        had
    }

    /// What a partition costs: others see it in its row from the next renewal on.
    pub fn set_load(&self, partition: u32, load: u64) {
        self.shared.decides().set_load(partition, load);
        self.shared.decided.notify_one();
    }

    /// Gives up everything and takes nothing more. Returns once others may take it, or the leases are over.
    pub async fn stop(mut self) {
        self.shared.decides().stop();
        self.shared.decided.notify_one();
        // It ends when it holds nothing any more.
        let _ = (&mut self.work).await;
    }
}

impl Drop for LeaseRows {
    fn drop(&mut self) {
        self.work.abort();
    }
}

/// What has come to its end.
enum Done {
    Listed(Option<Vec<Listed>>),
    Written(u32, Put),
    Acquired(Lease, bool),
    Released(Lease),
}

struct Work<R, S> {
    shared: Arc<Shared>,
    rows: Arc<R>,
    service: Arc<S>,
    timeout: Duration,
    /// Each partition has one write and one callback at most.
    tasks: JoinSet<Done>,
    callbacks: BTreeMap<u32, AbortHandle>,
}

impl<R: Rows, S: Service> Work<R, S> {
    async fn run(mut self) {
        loop {
            self.shared.decides().tick(now());
            self.carry_out();
            let (wake_at, is_over) = {
                let decides = self.shared.decides();
                (decides.wake_at(), decides.is_over())
            };
            if is_over && self.tasks.is_empty() {
                return;
            }
            tokio::select! {
                Some(done) = self.tasks.join_next() => {
                    // What was broken off, or panicked, has no result: its lease ends by itself.
                    if let Ok(done) = done {
                        self.done(done);
                    }
                }
                () = self.shared.decided.notified() => {}
                () = sleep(Duration::from_millis(wake_at.saturating_sub(now()))) => {}
            }
        }
    }

    fn carry_out(&mut self) {
        loop {
            let Some(effect) = self.shared.decides().next_effect() else { return };
            match effect {
                Effect::List => self.list(),
                Effect::Put { partition, etag, row } => self.put(partition, etag, row),
                Effect::Acquire(lease) => {
                    let (service, held) = (Arc::clone(&self.service), held(&self.shared, lease));
                    let task = async move { Done::Acquired(lease, service.acquire(held).await.is_ok()) };
                    self.callbacks.insert(lease.partition, self.tasks.spawn(task));
                }
                Effect::Release(lease, _) => {
                    let (service, held) = (Arc::clone(&self.service), held(&self.shared, lease));
                    let task = async move {
                        service.release(held).await;
                        Done::Released(lease)
                    };
                    self.callbacks.insert(lease.partition, self.tasks.spawn(task));
                }
                Effect::Lost(lease) => {
                    if let Some(callback) = self.callbacks.remove(&lease.partition) {
                        callback.abort();
                    }
                    self.service.lost(lease);
                }
            }
        }
    }

    fn list(&mut self) {
        let (rows, timeout) = (Arc::clone(&self.rows), self.timeout);
        self.tasks.spawn(async move {
            match tokio::time::timeout(timeout, rows.list()).await {
                Ok(Ok(listed)) => Done::Listed(Some(listed)),
                Ok(Err(error)) => {
                    eprintln!("the rows could not be read: {error}");
                    Done::Listed(None)
                }
                Err(_) => Done::Listed(None),
            }
        });
    }

    fn put(&mut self, partition: u32, etag: Etag, row: Row) {
        let (rows, timeout) = (Arc::clone(&self.rows), self.timeout);
        self.tasks.spawn(async move {
            Done::Written(
                partition,
                tokio::time::timeout(timeout, rows.put_if(partition, etag, &row)).await.unwrap_or(Put::Unknown),
            )
        });
    }

    fn done(&mut self, done: Done) {
        let mut decides = self.shared.decides();
        match done {
            Done::Listed(rows) => decides.listed(rows, now(), drawn()),
            Done::Written(partition, put) => decides.put(partition, put, now(), drawn()),
            Done::Acquired(lease, well) => decides.acquired(lease, well, now()),
            Done::Released(lease) => decides.released(lease, now()),
        }
    }
}

fn held(shared: &Arc<Shared>, lease: Lease) -> Held {
    let shared = Arc::clone(shared);
    Held::new(lease, move || shared.decides().check(lease, now()))
}

/// Milliseconds on a clock that goes on while the machine sleeps.
fn now() -> u64 {
    boot_clock_ns() / 1_000_000
}

fn drawn() -> u64 {
    RandomState::new().hash_one(())
}
