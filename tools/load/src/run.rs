//! A running workload, and its outcome.

use crate::failure::Failure;
use crate::keys::Values;
use crate::process::own_cpu;
use crate::store::Connector;
use crate::tally::{FailureCount, Latency, Tally, Verb};
use crate::worker::{Board, Part, Share, Worker};
use crate::workload::Workload;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::task::LocalSet;

/// The outcome of a workload.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WorkloadOutcome {
    /// Measured time.
    pub seconds: f64,
    /// Successful operations, without the warm-up.
    pub ops: u64,
    /// Successful operations within the measured time, per second.
    pub ops_per_second: f64,
    /// Failed operations.
    pub failed: u64,
    /// The failures, by kind.
    pub failures: BTreeMap<String, FailureCount>,
    /// The latency of reads.
    pub get: Option<Latency>,
    /// The latency of writes.
    pub put: Option<Latency>,
    /// The latency of scans.
    pub scan: Option<Latency>,
    /// Entries that scans found.
    pub entries_scanned: u64,
    /// Bytes of keys and values read.
    pub bytes_read: u64,
    /// Bytes of keys and values written.
    pub bytes_written: u64,
    /// Successful operations, warm-up included: divisor for counters of the whole run.
    pub ops_with_warm_up: u64,
    /// CPU time of this process per operation, over the whole run, in microseconds.
    pub client_cpu_us_per_op: f64,
    /// True if clients gave up after repeated failures.
    pub gave_up: bool,
}

/// A workload running on threads of its own.
#[derive(Debug)]
pub struct Run {
    boards: Vec<Arc<Board>>,
    threads: Vec<JoinHandle<Result<Share, Failure>>>,
    cpu_before: Duration,
}

impl Run {
    /// Connects and starts. Returns at once.
    ///
    /// # Errors
    /// If the workload is impossible or the system cannot start a thread.
    pub fn start<C: Connector>(connect: &Arc<C>, workload: &Workload) -> Result<Self, Failure> {
        workload.check().map_err(|error| Failure::new("Workload", error.to_string()))?;
        let values = Values::new(workload.value_bytes);
        // Clients of all threads start together, once all are connected.
        let barrier = Arc::new(Barrier::new(workload.threads));
        let boards: Vec<Arc<Board>> = (0..workload.threads).map(|_| Arc::default()).collect();
        let cpu_before = own_cpu();
        let mut threads = Vec::new();
        for (number, board) in boards.iter().enumerate() {
            let part = Part { number, of: workload.threads };
            let share = Job {
                connect: Arc::clone(connect),
                workload: workload.clone(),
                part,
                values: values.clone(),
                board: Arc::clone(board),
                barrier: Arc::clone(&barrier),
            };
            let thread = std::thread::Builder::new().name(format!("load-{number}")).spawn(move || share.run())?;
            threads.push(thread);
        }
        Ok(Self { boards, threads, cpu_before })
    }

    /// Returns the successful and the failed operations so far.
    pub fn progress(&self) -> (u64, u64) {
        let sum = |of: fn(&Board) -> u64| self.boards.iter().map(|board| of(board)).sum();
        (sum(|board| board.done.load(Ordering::Relaxed)), sum(|board| board.failed.load(Ordering::Relaxed)))
    }

    /// Asks all clients to end after their current operation.
    pub fn stop(&self) {
        self.boards.iter().for_each(|board| board.stop.store(true, Ordering::Relaxed));
    }

    /// Returns true if every thread has ended, so that [`Run::wait`] returns at once.
    pub fn is_over(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// If no connection could be made; failed operations are counted instead.
    pub fn wait(mut self) -> Result<WorkloadOutcome, Failure> {
        let mut total = Tally::default();
        let (mut elapsed, mut gave_up, mut failed) = (Duration::ZERO, false, None);
        for thread in self.threads.drain(..) {
            let panicked = |_| Err(Failure::new("Panicked", "a thread of the measurement panicked"));
            match thread.join().unwrap_or_else(panicked) {
                Ok(share) => {
                    elapsed = elapsed.max(share.elapsed);
                    gave_up |= share.gave_up;
                    total.add(share.tally)?;
                }
                Err(failure) => failed = failed.or(Some(failure)),
            }
        }
        if let Some(failure) = failed {
            return Err(failure);
        }
        let cpu = own_cpu().saturating_sub(self.cpu_before);
        let (ops_with_warm_up, _) = self.progress();
        let latencies = [Verb::Get, Verb::Put, Verb::Scan].map(|verb| total.latency(verb));
        let ops = latencies.iter().flatten().map(|latency| latency.ops).sum();
        let [get, put, scan] = latencies;
        let seconds = elapsed.as_secs_f64();
        Ok(WorkloadOutcome {
            seconds,
            ops,
            ops_per_second: if seconds > 0.0 { total.in_time as f64 / seconds } else { 0.0 },
            failed: total.failed.values().map(|failed| failed.count).sum(),
            failures: total.failed,
            get,
            put,
            scan,
            entries_scanned: total.entries_scanned,
            bytes_read: total.bytes_read,
            bytes_written: total.bytes_written,
            ops_with_warm_up,
            client_cpu_us_per_op: cpu.as_secs_f64() * 1e6 / (ops_with_warm_up.max(1)) as f64,
            gave_up,
        })
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // The caller is gone: the threads end by themselves after their current operations.
        self.stop();
    }
}

/// Input of a thread.
struct Job<C> {
    connect: Arc<C>,
    workload: Workload,
    part: Part,
    values: Values,
    board: Arc<Board>,
    barrier: Arc<Barrier>,
}

impl<C: Connector> Job<C> {
    fn run(self) -> Result<Share, Failure> {
        let Self { connect, workload, part, values, board, barrier } = self;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let connections = part.share(workload.connections as u64);
        let connected = runtime.map_err(Failure::from).and_then(|runtime| {
            let local = LocalSet::new();
            let stores = local.block_on(&runtime, async {
                let mut stores = Vec::new();
                for _ in 0..connections {
                    stores.push(connect.connect().await?);
                }
                Ok::<_, Failure>(stores)
            })?;
            Ok((runtime, local, stores))
        });
        // Also after a failure, or the others would wait indefinitely.
        barrier.wait();
        let (runtime, local, stores) = connected?;
        let share = local.block_on(&runtime, async { Worker::new(workload, part, stores, values, board)?.run().await });
        drop(local);
        // Background work of connections ends with their runtime.
        runtime.shutdown_background();
        share
    }
}
