//! Tests of the pool and its helper on a disk in memory.

use super::*;
use crate::disk::{Fault, FaultDisk, FaultPoint, MemoryDisk, Operation};
use std::thread;
use std::time::Instant;

const BYTES: u64 = 4096;
const LIMIT: Duration = Duration::from_secs(20);

/// A pool that prepares two files and keeps four, with its helper; stopped and joined on drop.
struct Rig {
    disk: MemoryDisk,
    pool: Arc<SegmentPool>,
    helper: Option<thread::JoinHandle<()>>,
}

impl Rig {
    fn stopped(surplus_after: Duration) -> Rig {
        let disk = MemoryDisk::new();
        let config = WalConfig { segment_bytes: BYTES, recycled_segments_max: 3, ..WalConfig::default() };
        let mut pool = SegmentPool::new(Arc::new(disk.clone()), &config, VecDeque::new(), 0);
        pool.surplus_after = surplus_after;
        Rig { disk, pool: Arc::new(pool), helper: None }
    }

    fn start(surplus_after: Duration) -> Rig {
        let mut rig = Rig::stopped(surplus_after);
        rig.run();
        rig.wait_for("two files are made", 2, 0);
        rig
    }

    /// Starts a thread that waits for a file.
    fn taker(&self) -> thread::JoinHandle<Result<String, WalError>> {
        let pool = self.pool.clone();
        let taker = thread::spawn(move || pool.take(false).map(|spare| spare.name));
        while self.pool.state.lock().waiting == 0 && !taker.is_finished() {
            thread::yield_now();
        }
        taker
    }

    fn run(&mut self) {
        let pool = self.pool.clone();
        self.helper = Some(thread::spawn(move || pool.run()));
    }

    /// Creates segments as the writer leaves them.
    fn segments(&self, generations: std::ops::Range<u64>) -> Vec<(u64, SegmentEntry)> {
        let segment = |generation| {
            let file = self.disk.create(&segment_name(generation)).unwrap();
            file.write_at(0, &[0; BYTES as usize]).unwrap();
            (generation, SegmentEntry { file, size: BYTES, live: 0 })
        };
        generations.map(segment).collect()
    }

    /// Returns the numbers of spare files and of segments.
    fn files(&self) -> (usize, usize) {
        let files = self.disk.list().unwrap();
        let count = |end: &str| files.iter().filter(|(name, _)| name.ends_with(end)).count();
        (count(".free"), count(".seg"))
    }

    fn wait_for(&self, what: &str, spares: usize, segments: usize) {
        let until = Instant::now() + LIMIT;
        while self.files() != (spares, segments) || self.pool.bytes() != spares as u64 * BYTES {
            assert!(Instant::now() < until, "{what}: there are {:?}, {} B", self.files(), self.pool.bytes());
            thread::yield_now();
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.pool.stop();
        let ended = self.helper.take().map(thread::JoinHandle::join);
        assert!(thread::panicking() || matches!(ended, Some(Ok(()))));
    }
}

#[test]
fn freed_segments_are_kept_up_to_a_bound_and_reused_first() {
    let rig = Rig::start(LIMIT);
    let mut unneeded = rig.segments(1..6);
    let read = unneeded[4].1.file.clone();
    rig.pool.retire_later(unneeded.drain(4..));
    rig.wait_for("one that is read is not used again", 2, 4);
    drop(read);
    rig.pool.retire_later(unneeded);
    rig.wait_for("two are kept and two are not", 4, 0);
    let taken: Vec<_> = (0..2).map(|_| rig.pool.take(false).unwrap().name).collect();
    assert_eq!(rig.pool.bytes(), 2 * BYTES, "two wait for use");
    assert!(taken.iter().all(|name| rig.disk.contents(name).is_some()), "{taken:?}");
    assert_eq!(rig.pool.state.lock().next_id, 4, "two were made, two are segments of before");
}

#[test]
fn surplus_files_are_removed_after_a_while_or_on_demand() {
    let rig = Rig::start(LIMIT);
    rig.pool.retire_later(rig.segments(1..3));
    rig.wait_for("they are kept", 4, 0);
    rig.pool.shed();
    rig.wait_for("the surplus is shed", 2, 0);
    drop(rig);
    let rig = Rig::start(Duration::from_millis(1));
    rig.pool.retire_later(rig.segments(1..3));
    rig.wait_for("the surplus goes", 2, 0);
}

#[test]
fn waiting_caller_gets_recycled_segment_on_full_disk() {
    let mut rig = Rig::stopped(LIMIT);
    rig.pool.fail(&io::ErrorKind::StorageFull.into());
    rig.pool.retire_later(rig.segments(1..3));
    let taker = rig.taker();
    rig.run();
    assert_eq!(taker.join().unwrap().unwrap(), spare_name(1));
}

#[test]
fn waiting_caller_fails_on_power_loss_during_recycling() {
    let mut rig = Rig::stopped(LIMIT);
    rig.pool.retire_later(rig.segments(1..2));
    rig.disk.fail_power_after(0);
    let taker = rig.taker();
    rig.run();
    assert!(matches!(taker.join().unwrap(), Err(WalError::Closed)));
}

/// Collects the log events of this thread.
#[derive(Clone, Default)]
struct LogCollector(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for LogCollector {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = String::new();
        event.record(&mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            line.push_str(&format!("{field}={value:?} "));
        });
        self.0.lock().push(line);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn refusal_names_the_actual_system_error() {
    for (number, said) in [(24, "Too many open files"), (13, "Permission denied"), (28, "No space left on device")] {
        let pool = SegmentPool::new(Arc::new(MemoryDisk::new()), &WalConfig::default(), VecDeque::new(), 0);
        let heard = LogCollector::default();
        tracing::subscriber::with_default(heard.clone(), || pool.fail(&io::Error::from_raw_os_error(number)));
        let lines = heard.0.lock().clone();
        assert!(lines.iter().any(|line| line.contains("read-only") && line.contains(said)), "{lines:?}");
        let blames_space = lines.iter().any(|line| line.contains("no space") || line.contains("No space"));
        assert_eq!(blames_space, number == 28, "{lines:?}");
        // The first refused batch, and later ones.
        for refused in [pool.take(false).unwrap_err(), pool.refusal().unwrap()] {
            match refused {
                WalError::NoSpace { .. } => assert_eq!(number, 28),
                WalError::Io { source, .. } => assert!(source.to_string().contains(said), "{source}"),
                other => panic!("{other}"),
            }
        }
    }
}

#[test]
fn disk_failure_during_large_batch_is_fatal() {
    let faults = [
        (Operation::Create, Fault::System(5), true),
        (Operation::Write, Fault::System(5), true),
        (Operation::Sync, Fault::System(5), true),
        (Operation::Create, Fault::System(24), false),
        (Operation::Write, Fault::System(28), false),
    ];
    for (operation, fault, fatal) in faults {
        let memory = MemoryDisk::new();
        let disk = FaultDisk::new(Arc::new(memory.clone()));
        disk.arm(Some(FaultPoint { operation: Some(operation), nth: 0, fault }));
        let pool = SegmentPool::new(Arc::new(disk), &WalConfig::default(), VecDeque::new(), 0);
        let unmade = pool.make_large(BYTES).unwrap_err();
        assert_eq!(matches!(unmade, ActivateError::Fatal(..)), fatal, "{operation:?}, {fault:?}: {unmade:?}");
        assert!(fatal || memory.list().unwrap().is_empty(), "{operation:?}: half a file is left");
        assert_eq!(pool.make_large(BYTES).map(|spare| spare.name).unwrap(), spare_name(2));
    }
}
