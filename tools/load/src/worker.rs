//! One thread's share of a workload.

use crate::failure::Failure;
use crate::keys::{Chooser, KEY_BYTES, KEY_PREFIX, KeyText, Spread, Values};
use crate::pacer::Pacer;
use crate::store::Store;
use crate::tally::{Tally, Verb};
use crate::workload::{End, Mix, Workload};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Consecutive failures after which a client gives up: the store is not there.
const FAILURES_IN_A_ROW_MAX: u32 = 10;

/// State shared by a thread and its observers.
#[derive(Debug, Default)]
pub(crate) struct Board {
    /// Successful operations, those of the warm-up included.
    pub(crate) done: AtomicU64,
    /// Failed operations.
    pub(crate) failed: AtomicU64,
    /// Asks all clients to end after their current operation.
    pub(crate) stop: AtomicBool,
}

/// Result of one thread's share.
#[derive(Debug)]
pub(crate) struct Share {
    pub(crate) tally: Tally,
    /// From the end of the warm-up to the end.
    pub(crate) elapsed: Duration,
    pub(crate) gave_up: bool,
}

/// The part of a workload for one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) number: usize,
    pub(crate) of: usize,
}

impl Part {
    /// Returns this part of `whole` things.
    pub(crate) const fn share(self, whole: u64) -> u64 {
        let (number, of) = (self.number as u64, self.of as u64);
        whole / of + (number < whole % of) as u64
    }
}

pub(crate) struct Worker<S> {
    workload: Workload,
    part: Part,
    stores: Vec<S>,
    chooser: Chooser,
    spread: Spread,
    values: Values,
    measure_from: Instant,
    /// End of a workload of fixed length.
    end: Option<Instant>,
    /// Operations still to start, of a workload of fixed count or one that loads.
    left: Cell<u64>,
    pacer: Option<Pacer>,
    tally: RefCell<Tally>,
    last: Cell<Instant>,
    gave_up: Cell<bool>,
    board: Arc<Board>,
}

impl<S: Store> Worker<S> {
    /// Creates everything a thread needs before it starts.
    ///
    /// # Errors
    /// If the system gives no timer.
    pub(crate) fn new(
        workload: Workload,
        part: Part,
        stores: Vec<S>,
        values: Values,
        board: Arc<Board>,
    ) -> Result<Self, Failure> {
        let now = Instant::now();
        let measure_from = now + workload.warm_up;
        let (end, left) = match (workload.mix, workload.end) {
            (mix, _) if mix.is_each_key_once() => (None, part.share(workload.keys)),
            (_, End::Operations(count)) => (None, part.share(count)),
            (_, End::After(length)) => (Some(measure_from + length), u64::MAX),
        };
        let pacer = match workload.rate {
            Some(rate) => {
                let interval = Duration::from_secs_f64(part.of as f64 / rate);
                Some(Pacer::new(now, interval, workload.clients)?)
            }
            None => None,
        };
        let chooser = Chooser::new(workload.distribution, workload.keys);
        let spread = Spread::new(workload.keys);
        Ok(Self {
            workload,
            part,
            stores,
            chooser,
            spread,
            values,
            measure_from,
            end,
            left: Cell::new(left),
            pacer,
            tally: RefCell::default(),
            last: Cell::new(measure_from),
            gave_up: Cell::new(false),
            board,
        })
    }

    /// Runs all clients of this thread to their end. Must run inside a `LocalSet`.
    pub(crate) async fn run(self) -> Result<Share, Failure> {
        let worker = Rc::new(self);
        let mut clients = JoinSet::new();
        for number in 0..worker.part.share(worker.workload.clients as u64) {
            clients.spawn_local(Rc::clone(&worker).client(number));
        }
        while let Some(ended) = clients.join_next().await {
            ended.map_err(|error| Failure::new("Panicked", error.to_string()))??;
        }
        let until = match worker.end {
            Some(end) if !worker.board.stop.load(Ordering::Relaxed) => end,
            _ => worker.last.get(),
        };
        let elapsed = until.saturating_duration_since(worker.measure_from);
        Ok(Share { tally: worker.tally.take(), elapsed, gave_up: worker.gave_up.get() })
    }

    async fn client(self: Rc<Self>, number: u64) -> Result<(), Failure> {
        let store = &self.stores[number as usize % self.stores.len()];
        // The same draws in every run, different ones for every client.
        let seed = (self.part.number as u64) << 32 | number;
        let mut random = SmallRng::seed_from_u64(seed);
        let mut failures_in_a_row = 0;
        let mut now = Instant::now();
        while !self.board.stop.load(Ordering::Relaxed) {
            let Some(begun) = self.turn(now).await? else { break };
            let key = self.key(&mut random);
            let verb = self.verb(&mut random);
            let outcome = self.operate(store, verb, key).await;
            now = Instant::now();
            match outcome {
                Ok(bytes) => {
                    failures_in_a_row = 0;
                    self.board.done.fetch_add(1, Ordering::Relaxed);
                    self.succeeded(verb, bytes, begun, now)?;
                }
                Err(failure) => {
                    failures_in_a_row += 1;
                    self.board.failed.fetch_add(1, Ordering::Relaxed);
                    self.tally.borrow_mut().failure(failure);
                    if failures_in_a_row >= FAILURES_IN_A_ROW_MAX {
                        self.gave_up.set(true);
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the start of the next operation, possibly in the past; `None` if there is none.
    async fn turn(&self, now: Instant) -> Result<Option<Instant>, Failure> {
        if self.left.get() == 0 || self.end.is_some_and(|end| now >= end) {
            return Ok(None);
        }
        let mut begin = now;
        if let Some(pacer) = &self.pacer {
            begin = pacer.next_start();
            if self.end.is_some_and(|end| begin >= end) {
                return Ok(None);
            }
            pacer.until(begin).await?;
        }
        // Those of the warm-up are not counted.
        if self.end.is_none() && begin >= self.measure_from {
            // Another client may have taken the last one while this one waited for its start.
            let Some(left) = self.left.get().checked_sub(1) else { return Ok(None) };
            self.left.set(left);
        }
        Ok(Some(begin))
    }

    fn key(&self, random: &mut SmallRng) -> u64 {
        match self.workload.mix {
            Mix::Load | Mix::ReadBack => self.next_in_order(),
            Mix::LoadSpread => self.spread.of(self.next_in_order()),
            _ => self.chooser.choose(random),
        }
    }

    /// Returns the next key of this thread's share. `left` is the number of operations after it.
    fn next_in_order(&self) -> u64 {
        let done = self.part.share(self.workload.keys) - 1 - self.left.get();
        done * self.part.of as u64 + self.part.number as u64
    }

    fn verb(&self, random: &mut SmallRng) -> Verb {
        match self.workload.mix {
            Mix::Load | Mix::LoadSpread | Mix::Put => Verb::Put,
            Mix::Get | Mix::ReadBack => Verb::Get,
            Mix::Mixed { get_percent } => {
                if random.random_range(0..100) < u32::from(get_percent) {
                    Verb::Get
                } else {
                    Verb::Put
                }
            }
            Mix::Scan { .. } => Verb::Scan,
        }
    }

    /// Runs one operation; returns the bytes of keys and values that it read or wrote, and the number of entries.
    async fn operate(&self, store: &S, verb: Verb, number: u64) -> Result<(u64, u64), Failure> {
        let key = KeyText::new(number);
        match verb {
            Verb::Put => {
                store.put(key.bytes(), self.values.of(number)).await?;
                Ok(((KEY_BYTES + self.workload.value_bytes) as u64, 1))
            }
            Verb::Get => match store.get(key.bytes()).await? {
                Some(value) if self.values.is(number, &value) => Ok(((KEY_BYTES + value.len()) as u64, 1)),
                Some(value) => {
                    let text = format!("key {number} has another value than was written, of {} bytes", value.len());
                    Err(Failure::new("WrongValue", text))
                }
                None => Err(Failure::new("Missing", format!("key {number} was written and is not there"))),
            },
            Verb::Scan => {
                let Mix::Scan { limit } = self.workload.mix else { return Ok((0, 0)) };
                let found = store.scan(KEY_PREFIX, key.bytes(), limit).await?;
                // All keys exist, and possibly older ones too, so a minimum of following entries is known.
                let at_least = (self.workload.keys - 1 - number).min(u64::from(limit));
                if !(at_least..=u64::from(limit)).contains(&(found.entries as u64)) {
                    let text = format!("{} entries after key {number}, expected {at_least}", found.entries);
                    return Err(Failure::new("WrongScan", text));
                }
                Ok((found.bytes as u64, found.entries as u64))
            }
        }
    }

    fn succeeded(
        &self,
        verb: Verb,
        (bytes, entries): (u64, u64),
        begun: Instant,
        ended: Instant,
    ) -> Result<(), Failure> {
        // With a fixed number of operations, exactly those taken from the count are counted.
        let counts_from = if self.end.is_none() { begun } else { ended };
        if counts_from < self.measure_from {
            return Ok(());
        }
        self.last.set(ended);
        let mut tally = self.tally.borrow_mut();
        // An operation that ends after the end ran during it: its latency counts, its throughput does not.
        if self.end.is_none_or(|end| ended <= end) {
            tally.in_time += 1;
        }
        match verb {
            Verb::Put => tally.bytes_written += bytes,
            Verb::Get => tally.bytes_read += bytes,
            Verb::Scan => {
                tally.bytes_read += bytes;
                tally.entries_scanned += entries;
            }
        }
        tally.success(verb, ended - begun)
    }
}
