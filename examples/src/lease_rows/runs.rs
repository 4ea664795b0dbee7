//! A running server: the clock, the store and the callbacks around the decisions.

use super::held::Lease;
use super::partitioning::{Config, Effect, Partitioning};
use super::row::{Etag, ListedRow, Row};
use super::service::{Ownership, Service};
use super::store::{Put, Rows};
use crate::counter::boot_clock_ns;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, Id, JoinHandle, JoinSet};
use tokio::time::sleep;

/// A server among those that share the rows of a store.
///
/// Dropping it is a death: nothing is released, and others wait until its leases have ended.
pub struct LeaseRows {
    shared: Arc<RunState>,
    work: JoinHandle<()>,
}

/// State and decisions, for queries at any time.
struct RunState {
    state: Mutex<Partitioning>,
    /// Wakes the task after a change from outside.
    wake: Notify,
}

impl RunState {
    fn lock(&self) -> MutexGuard<'_, Partitioning> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LeaseRows {
    /// Starts taking partitions. `timeout` bounds an answer of the store; more than a fraction of the lease is useless.
    ///
    /// # Errors
    /// If the times are not safe.
    pub fn start<R: Rows, S: Service>(config: Config, timeout: Duration, rows: R, service: S) -> Result<Self, String> {
        config.timing.check()?;
        let state = Mutex::new(Partitioning::new(config, now(), random()));
        let shared = Arc::new(RunState { state, wake: Notify::new() });
        let work = Work {
            shared: Arc::clone(&shared),
            rows: Arc::new(rows),
            service: Arc::new(service),
            timeout,
            tasks: JoinSet::new(),
            if_panicked: BTreeMap::new(),
            callbacks: BTreeMap::new(),
        };
        Ok(Self { shared, work: tokio::spawn(work.run()) })
    }

    /// Returns the held lease, if new work may be accepted for a partition now.
    pub fn have_partition(&self, partition: u32) -> Option<Ownership> {
        let lease = self.shared.lock().have(partition, now())?;
        Some(held(&self.shared, lease))
    }

    /// Returns all leases for which new work may be accepted now.
    pub fn owned(&self) -> Vec<Ownership> {
        let (state, now) = (self.shared.lock(), now());
        state.owned(now).map(|lease| held(&self.shared, lease)).collect()
    }

    /// Drops a partition, once the service has released it. Returns true if it was owned.
    pub fn drop_partition(&self, partition: u32) -> bool {
        let had = self.shared.lock().drop_partition(partition, now());
        self.shared.wake.notify_one();
        had
    }

    /// Sets the load of a partition: others see it in its row from the next renewal on.
    pub fn set_load(&self, partition: u32, load: u64) {
        self.shared.lock().set_load(partition, load);
        self.shared.wake.notify_one();
    }

    /// Releases everything and takes nothing more. Returns once others may take the partitions, or the leases have
    /// ended.
    pub async fn stop(mut self) {
        self.shared.lock().stop();
        self.shared.wake.notify_one();
        // It ends when it holds nothing.
        let _ = (&mut self.work).await;
    }
}

impl Drop for LeaseRows {
    fn drop(&mut self) {
        self.work.abort();
    }
}

/// A completed task.
enum CompletedTask {
    Listed(Option<Vec<ListedRow>>),
    Written(u32, Put),
    Acquired(Lease, bool),
    Released(Lease),
}

struct Work<R, S> {
    shared: Arc<RunState>,
    rows: Arc<R>,
    service: Arc<S>,
    timeout: Duration,
    /// Each partition has at most one write and one callback.
    tasks: JoinSet<CompletedTask>,
    /// The result assumed for a task that panics.
    if_panicked: BTreeMap<Id, CompletedTask>,
    callbacks: BTreeMap<u32, AbortHandle>,
}

impl<R: Rows, S: Service> Work<R, S> {
    async fn run(mut self) {
        loop {
            self.shared.lock().tick(now());
            self.carry_out();
            let (wake_at, is_over) = {
                let state = self.shared.lock();
                (state.wake_at(), state.is_over())
            };
            if is_over && self.tasks.is_empty() {
                return;
            }
            tokio::select! {
                Some(joined) = self.tasks.join_next_with_id() => {
                    let id = joined.as_ref().map_or_else(tokio::task::JoinError::id, |(id, _)| *id);
                    let if_panicked = self.if_panicked.remove(&id);
                    match joined {
                        Ok((_, done)) => self.done(done),
                        // Otherwise a lease whose callback panicked would be renewed indefinitely, and neither owned
                        // nor released.
                        Err(error) if error.is_panic() => if_panicked.into_iter().for_each(|done| self.done(done)),
                        // It was cancelled because its lease is lost.
                        Err(_) => {}
                    }
                }
                () = self.shared.wake.notified() => {}
                () = sleep(Duration::from_millis(wake_at.saturating_sub(now()))) => {}
            }
        }
    }

    fn carry_out(&mut self) {
        loop {
            let Some(effect) = self.shared.lock().next_effect() else { return };
            match effect {
                Effect::List => self.list(),
                Effect::Put { partition, etag, row } => self.put(partition, etag, row),
                Effect::Acquire(lease) => {
                    let (service, held) = (Arc::clone(&self.service), held(&self.shared, lease));
                    let task = async move { CompletedTask::Acquired(lease, service.acquire(held).await.is_ok()) };
                    let callback = self.spawn(task, CompletedTask::Acquired(lease, false));
                    self.callbacks.insert(lease.partition, callback);
                }
                Effect::Release(lease, _) => {
                    let (service, held) = (Arc::clone(&self.service), held(&self.shared, lease));
                    let task = async move {
                        service.release(held).await;
                        CompletedTask::Released(lease)
                    };
                    let callback = self.spawn(task, CompletedTask::Released(lease));
                    self.callbacks.insert(lease.partition, callback);
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

    /// Runs a task whose panic counts as `if_panicked`.
    fn spawn(
        &mut self,
        task: impl Future<Output = CompletedTask> + Send + 'static,
        if_panicked: CompletedTask,
    ) -> AbortHandle {
        let handle = self.tasks.spawn(task);
        self.if_panicked.insert(handle.id(), if_panicked);
        handle
    }

    fn list(&mut self) {
        let (rows, timeout) = (Arc::clone(&self.rows), self.timeout);
        let task = async move {
            match tokio::time::timeout(timeout, rows.list()).await {
                Ok(Ok(listed)) => CompletedTask::Listed(Some(listed)),
                Ok(Err(error)) => {
                    eprintln!("the rows could not be read: {error}");
                    CompletedTask::Listed(None)
                }
                Err(_) => CompletedTask::Listed(None),
            }
        };
        self.spawn(task, CompletedTask::Listed(None));
    }

    fn put(&mut self, partition: u32, etag: Etag, row: Row) {
        let (rows, timeout) = (Arc::clone(&self.rows), self.timeout);
        let task = async move {
            let put = tokio::time::timeout(timeout, rows.put_if(partition, etag, &row)).await;
            CompletedTask::Written(partition, put.unwrap_or(Put::Unknown))
        };
        self.spawn(task, CompletedTask::Written(partition, Put::Unknown));
    }

    fn done(&mut self, done: CompletedTask) {
        let mut state = self.shared.lock();
        match done {
            CompletedTask::Listed(rows) => state.listed(rows, now(), random()),
            CompletedTask::Written(partition, put) => state.put(partition, put, now(), random()),
            CompletedTask::Acquired(lease, well) => state.acquired(lease, well, now()),
            CompletedTask::Released(lease) => state.released(lease, now()),
        }
    }
}

fn held(shared: &Arc<RunState>, lease: Lease) -> Ownership {
    let shared = Arc::clone(shared);
    Ownership::new(lease, move || shared.lock().check(lease, now()))
}

/// Returns milliseconds on a clock that continues while the machine sleeps.
fn now() -> u64 {
    boot_clock_ns() / 1_000_000
}

fn random() -> u64 {
    RandomState::new().hash_one(())
}

#[cfg(test)]
#[path = "runs_tests.rs"]
mod tests;
