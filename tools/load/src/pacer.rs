//! Starts operations at a fixed rate, to about 50 µs: the runtime's timers have a resolution of a millisecond, which
//! would dominate a latency. So a thread sleeps for the clients of each driving thread.

use crate::failure::Failure;
use std::cell::Cell;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A client to wake at a moment.
type Waiter = (Instant, oneshot::Sender<()>);

/// The pace of one thread.
#[derive(Debug)]
pub(crate) struct Pacer {
    begin: Instant,
    interval: Duration,
    next: Cell<u32>,
    /// Capacity for all clients, so that it is never full.
    waiters: Option<SyncSender<Waiter>>,
    /// Dropped to end the thread during its sleep.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Pacer {
    /// Creates a pacer with one start every `interval`, the first at `begin`, for this many clients.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub(crate) fn new(begin: Instant, interval: Duration, clients: usize) -> Result<Self, Failure> {
        let (waiters, waiting) = sync_channel(clients);
        let (end, ended) = channel();
        let thread = std::thread::Builder::new().name("load-pacer".into()).spawn(move || wake(&waiting, &ended))?;
        let (waiters, end, thread) = (Some(waiters), Some(end), Some(thread));
        Ok(Self { begin, interval, next: Cell::new(0), waiters, end, thread })
    }

    /// Takes the next start; it may have passed already.
    pub(crate) fn next_start(&self) -> Instant {
        let number = self.next.get();
        self.next.set(number.saturating_add(1));
        self.begin + self.interval.mul_f64(f64::from(number))
    }

    /// Waits until `start`, which is later than all earlier waits.
    ///
    /// # Errors
    /// If the sleeping thread is gone.
    pub(crate) async fn until(&self, start: Instant) -> Result<(), Failure> {
        if start <= Instant::now() {
            return Ok(());
        }
        let gone = |why: &str| Failure::new("Pacer", format!("the pacer cannot wake a client: {why}"));
        let (sender, receiver) = oneshot::channel();
        let Some(waiters) = &self.waiters else { return Err(gone("it was ended")) };
        match waiters.try_send((start, sender)) {
            Ok(()) => receiver.await.map_err(|_| gone("it hung up")),
            Err(TrySendError::Full(_)) => Err(gone("more wait than there are clients")),
            Err(TrySendError::Disconnected(_)) => Err(gone("it hung up")),
        }
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        drop((self.waiters.take(), self.end.take()));
        if let Some(thread) = self.thread.take() {
            // A panic in it was reported as an error to every waiting client.
            let _ = thread.join();
        }
    }
}

/// Wakes the clients at their times; they arrive in that order.
fn wake(waiting: &Receiver<Waiter>, ended: &Receiver<()>) {
    while let Ok((start, sender)) = waiting.recv() {
        let left = start.saturating_duration_since(Instant::now());
        if !left.is_zero() && ended.recv_timeout(left) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        // The receiver is gone if the run was ended.
        let _ = sender.send(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_start_is_early_and_starts_keep_their_distance() {
        let begin = Instant::now();
        let interval = Duration::from_micros(300);
        let pacer = Pacer::new(begin, interval, 1).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            for number in 0..100 {
                let start = pacer.next_start();
                assert_eq!(start, begin + interval * number);
                pacer.until(start).await.unwrap();
                assert!(Instant::now() >= start);
            }
        });
    }

    #[test]
    fn pacer_ends_during_a_long_sleep() {
        let begun = Instant::now();
        let hour = Duration::from_secs(3_600);
        let pacer = Pacer::new(begun + hour, hour, 1).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let waiting = pacer.until(pacer.next_start());
            assert!(tokio::time::timeout(Duration::from_millis(20), waiting).await.is_err());
        });
        drop(pacer);
        assert!(begun.elapsed() < hour);
    }
}
