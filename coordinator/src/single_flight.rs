//! Shared computations: one at a time, with its outcome shared by all callers that ask for the same, so that an
//! expensive result is computed once for any number of callers.

use archon_types::{ErrorDetail, ErrorKind};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};

/// Maximum number of waiting callers; each of them finally holds an answer.
const WAITING_MAX: usize = 16;
/// Time after which a refused caller should ask again, in milliseconds.
const RETRY_MS: u64 = 500;

/// A computation off the async threads, identified by its `key`.
pub(crate) struct SingleFlight<K, T> {
    last: Mutex<Option<Flight<K, T>>>,
    places: Semaphore,
}

/// One computation, running or finished.
struct Flight<K, T> {
    key: K,
    number: u64,
    outcome: watch::Receiver<Option<Arc<T>>>,
}

impl<K, T> Flight<K, T> {
    fn is_done(&self) -> bool {
        self.outcome.borrow().is_some()
    }

    /// Returns true if it is running. A failed computation has neither outcome nor sender.
    fn is_under_way(&self) -> bool {
        !self.is_done() && self.outcome.has_changed().is_ok()
    }
}

impl<K, T> Default for SingleFlight<K, T> {
    fn default() -> Self {
        Self { last: Mutex::new(None), places: Semaphore::new(WAITING_MAX) }
    }
}

impl<K: PartialEq, T: Send + Sync + 'static> SingleFlight<K, T> {
    /// Returns the outcome for the present key or a later one: of the running computation if it began after this call
    /// or for the same key, else of one that begins when that has ended. `now` returns the present key; `begin`
    /// captures the input with its key, and returns the work, which runs on a thread for blocking work.
    ///
    /// # Errors
    /// `Overloaded` if too many callers wait, or if `within` passes; the computation goes on. `Internal` if it failed.
    pub(crate) async fn get<W>(
        &self,
        within: Duration,
        now: impl Fn() -> K,
        begin: impl Fn() -> (K, W),
    ) -> Result<Arc<T>, ErrorDetail>
    where
        W: FnOnce() -> T + Send + 'static,
    {
        let overloaded = |why: &str| ErrorDetail::new(ErrorKind::Overloaded, why).with_retry_after_ms(RETRY_MS);
        let Ok(_place) = self.places.try_acquire() else {
            return Err(overloaded("too many wait for a plan already; try again"));
        };
        match tokio::time::timeout(within, self.wait(now, begin)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(overloaded("the plan is still being computed; retry with a longer time-out")),
        }
    }

    async fn wait<W>(&self, now: impl Fn() -> K, begin: impl Fn() -> (K, W)) -> Result<Arc<T>, ErrorDetail>
    where
        W: FnOnce() -> T + Send + 'static,
    {
        let asked_after = self.last.lock().as_ref().map_or(0, |last| last.number);
        loop {
            let (mut outcome, fits) = {
                let mut last = self.last.lock();
                match &*last {
                    Some(flight) if flight.is_under_way() || flight.is_done() && fits(flight, asked_after, &now) => {
                        (flight.outcome.clone(), fits(flight, asked_after, &now))
                    }
                    before => {
                        let number = before.as_ref().map_or(0, |before| before.number) + 1;
                        let flight = start(number, &begin);
                        let outcome = flight.outcome.clone();
                        *last = Some(flight);
                        (outcome, true)
                    }
                }
            };
            let ended = outcome.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone());
            match ended {
                Some(found) if fits => return Ok(found),
                None if fits => {
                    return Err(ErrorDetail::new(ErrorKind::Internal, "planning failed; see the coordinator's log"));
                }
                // It was for an older key; the first caller to check begins another one.
                Some(_) | None => {}
            }
        }
    }
}

/// Returns true if a computation covers the state at the call, or a later one.
fn fits<K: PartialEq, T>(flight: &Flight<K, T>, asked_after: u64, now: impl Fn() -> K) -> bool {
    flight.number > asked_after || flight.key == now()
}

fn start<K, T: Send + Sync + 'static, W>(number: u64, begin: impl Fn() -> (K, W)) -> Flight<K, T>
where
    W: FnOnce() -> T + Send + 'static,
{
    let (give, outcome) = watch::channel(None);
    let (key, work) = begin();
    // It goes on if its first caller goes away. A panic drops the sender, which notifies the waiting callers.
    tokio::task::spawn_blocking(move || give.send_replace(Some(Arc::new(work()))));
    Flight { key, number, outcome }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    use std::sync::mpsc;

    const SOON: Duration = Duration::from_secs(60);

    /// A state with a version only, and the number of computations from it.
    #[derive(Default)]
    struct World {
        shared: SingleFlight<u64, u64>,
        version: AtomicU64,
        computed: AtomicUsize,
    }

    impl World {
        /// Computes once the gate opens.
        async fn get(self: Arc<Self>, gate: Arc<Mutex<mpsc::Receiver<()>>>) -> Result<u64, ErrorDetail> {
            let version = || self.version.load(Ordering::SeqCst);
            let begin = || {
                self.computed.fetch_add(1, Ordering::SeqCst);
                let (version, gate) = (version(), Arc::clone(&gate));
                (version, move || {
                    gate.lock().recv().expect("the test opens the gate");
                    version
                })
            };
            self.shared.get(SOON, version, begin).await.map(|found| *found)
        }

        async fn has_waiting(&self, many: usize) {
            while self.shared.places.available_permits() != WAITING_MAX - many {
                tokio::task::yield_now().await;
            }
        }
    }

    fn gate() -> (mpsc::Sender<()>, Arc<Mutex<mpsc::Receiver<()>>>) {
        let (open, gate) = mpsc::channel();
        (open, Arc::new(Mutex::new(gate)))
    }

    #[tokio::test]
    async fn callers_with_same_key_share_one_computation() {
        let world = Arc::new(World::default());
        let (open, gate) = gate();
        let asked: Vec<_> = (0..WAITING_MAX).map(|_| tokio::spawn(Arc::clone(&world).get(Arc::clone(&gate)))).collect();
        world.has_waiting(WAITING_MAX).await;
        let refused = Arc::clone(&world).get(Arc::clone(&gate)).await.unwrap_err();
        assert!(refused.kind == ErrorKind::Overloaded && refused.kind.is_retryable(), "{refused}");
        open.send(()).unwrap();
        for one in asked {
            assert_eq!(one.await.unwrap().unwrap(), 0);
        }
        // As long as nothing changes there is nothing to compute.
        assert_eq!(Arc::clone(&world).get(Arc::clone(&gate)).await.unwrap(), 0);
        assert_eq!(world.computed.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn caller_after_change_gets_no_older_outcome() {
        let world = Arc::new(World::default());
        let (open, gate) = gate();
        let first = tokio::spawn(Arc::clone(&world).get(Arc::clone(&gate)));
        world.has_waiting(1).await;
        world.version.store(7, Ordering::SeqCst);
        let later: Vec<_> = (0..3).map(|_| tokio::spawn(Arc::clone(&world).get(Arc::clone(&gate)))).collect();
        world.has_waiting(4).await;
        assert_eq!(world.computed.load(Ordering::SeqCst), 1, "one at a time");
        open.send(()).unwrap();
        open.send(()).unwrap();
        assert_eq!(first.await.unwrap().unwrap(), 0);
        for one in later {
            assert_eq!(one.await.unwrap().unwrap(), 7);
        }
        assert_eq!(world.computed.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn failed_computation_is_reported_and_next_one_runs() {
        let world = Arc::new(World::default());
        let (closed, gate_closed) = gate();
        drop(closed);
        let failed = Arc::clone(&world).get(gate_closed).await.unwrap_err();
        assert_eq!(failed.kind, ErrorKind::Internal);
        let (open, gate) = gate();
        open.send(()).unwrap();
        assert_eq!(Arc::clone(&world).get(gate).await.unwrap(), 0);
    }
}
