//! One computation at a time, whose outcome is shared by all who ask for the same: what is dear is paid for once, however
//! many ask.

use archon_types::{ErrorDetail, ErrorKind};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};

/// Those who may wait at once; each of them holds an answer in the end.
const WAITING_MAX: usize = 16;
/// When somebody who was refused should ask again.
const RETRY_MS: u64 = 500;

/// Something that is computed beside everything else, from what `key` tells apart.
pub(crate) struct Shared<K, T> {
    last: Mutex<Option<Flight<K, T>>>,
    places: Semaphore,
}

/// One computation, under way or over.
struct Flight<K, T> {
    key: K,
    number: u64,
    outcome: watch::Receiver<Option<Arc<T>>>,
}

impl<K, T> Flight<K, T> {
    fn is_done(&self) -> bool {
        self.outcome.borrow().is_some()
    }

    /// Whether somebody works on it. A computation that failed has neither outcome nor anybody who would give one.
    fn is_under_way(&self) -> bool {
        !self.is_done() && self.outcome.has_changed().is_ok()
    }
}

impl<K, T> Default for Shared<K, T> {
    fn default() -> Self {
        Self { last: Mutex::new(None), places: Semaphore::new(WAITING_MAX) }
    }
}

impl<K: PartialEq, T: Send + Sync + 'static> Shared<K, T> {
    /// The outcome for what is now, or for something later: of the computation under way if it began after this call or
    /// from the same, else of one that begins when it has ended. `now` tells what is now; `begin` takes what is computed
    /// from, along with its key, and gives the work, which runs on a thread for blocking work.
    ///
    /// # Errors
    /// `Overloaded` if too many wait already, or if `within` passes; the computation goes on. `Internal` if it failed.
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
            Err(_) => Err(overloaded("the plan is still being made; try again, with more time")),
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
                    return Err(ErrorDetail::new(
                        ErrorKind::Internal,
                        "planning failed; the coordinator's log says why",
                    ));
                }
                // It was about something older; whoever looks first begins anew.
                Some(_) | None => {}
            }
        }
    }
}

/// Whether a computation tells what was so when somebody asked, or later.
fn fits<K: PartialEq, T>(flight: &Flight<K, T>, asked_after: u64, now: impl Fn() -> K) -> bool {
    flight.number > asked_after || flight.key == now()
}

fn start<K, T: Send + Sync + 'static, W>(number: u64, begin: impl Fn() -> (K, W)) -> Flight<K, T>
where
    W: FnOnce() -> T + Send + 'static,
{
    let (give, outcome) = watch::channel(None);
    let (key, work) = begin();
    // It goes on if whoever asked first goes away. A panic drops the sender, which tells those who wait.
    tokio::task::spawn_blocking(move || give.send_replace(Some(Arc::new(work()))));
    Flight { key, number, outcome }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    use std::sync::mpsc;

    const SOON: Duration = Duration::from_secs(60);

    /// A state of which only the version matters, and how often anything was computed from it.
    #[derive(Default)]
    struct World {
        shared: Shared<u64, u64>,
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
    async fn each_of_many_who_asked_for_the_same_plan_had_one_made_for_himself() {
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
    async fn who_asks_after_a_change_waits_for_the_next_and_never_gets_what_was_before() {
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
    async fn a_computation_that_failed_is_said_and_the_next_one_is_made() {
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
