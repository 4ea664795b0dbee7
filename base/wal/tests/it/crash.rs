//! Real processes that abort at every kind of operation, and the state found afterwards.
//!
//! The test starts itself as a child (`child`), which reports acknowledged numbers on standard output.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::support::{LIMIT, read_all};
use archon_testkit::skipped;
use archon_testkit::wait_for;
use archon_wal::disk::{Disk, Fault, FaultDisk, FaultPoint, Operation, RealDisk};
use archon_wal::{StreamId, Wal, WalBatch, WalConfig};

const STREAMS: u64 = 3;
const COUNTER: StreamId = StreamId(99);
const BATCHES: u64 = 40;

fn config() -> WalConfig {
    WalConfig { segment_bytes: 8192, ..WalConfig::default() }
}

fn content(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(1 + (number % 60) as usize)
}

fn counter(wal: &Wal) -> u64 {
    let value = wal.meta(COUNTER, 0);
    value.map_or(0, |value| u64::from_le_bytes(value.as_ref().try_into().unwrap()))
}

fn parse_fault(text: &str) -> Option<FaultPoint> {
    let mut words = text.split(' ');
    let nth = words.next()?.parse().ok()?;
    let (operation, fault) = match words.next()? {
        "before" => (None, Fault::AbortBefore),
        "half" => (None, Fault::AbortHalfway),
        "after" => (None, Fault::AbortAfter),
        // A different pattern of sectors for each number.
        "torn" => (None, Fault::AbortTorn(0x9e37_79b9_7f4a_7c15_u64.rotate_left(nth as u32))),
        "durable-error" => (Some(Operation::WriteDurable), Fault::Error(std::io::ErrorKind::Other)),
        "durable-torn" => (Some(Operation::WriteDurable), Fault::ErrorTorn(0b101, std::io::ErrorKind::Other)),
        "sync-error" => (Some(Operation::Sync), Fault::Error(std::io::ErrorKind::Other)),
        "write-error" => (Some(Operation::Write), Fault::Error(std::io::ErrorKind::Other)),
        "create-eio" => (Some(Operation::Create), Fault::System(5)),
        "create-emfile" => (Some(Operation::Create), Fault::System(24)),
        _ => return None,
    };
    Some(FaultPoint { operation, nth, fault })
}

/// Not a separate test: the code of the child processes.
#[test]
#[ignore = "started by the other tests as a child process"]
fn child() {
    let Ok(directory) = std::env::var("WAL_CHILD_DIRECTORY") else { return };
    let fault = std::env::var("WAL_CHILD_FAULT").unwrap();
    let real = if std::env::var_os("WAL_CHILD_BUFFERED").is_some() { RealDisk::open_buffered } else { RealDisk::open };
    let disk = FaultDisk::new(Arc::new(real(Path::new(&directory)).unwrap()));
    let disk = Arc::new(disk);
    let late = fault.strip_prefix("late ");
    if late.is_none() {
        disk.arm(parse_fault(&fault));
    }
    let (wal, _) = Wal::open_on(disk.clone(), config()).unwrap();
    if let Some(fault) = late {
        // Otherwise the fault may hit a file that is prepared before anything is written.
        wait_for("a segment in use, one ready and one in reserve", LIMIT, || match wal.disk_bytes() {
            bytes if bytes >= 3 * config().segment_bytes => Ok(()),
            bytes => Err(format!("{bytes} bytes")),
        });
        disk.arm(parse_fault(fault));
    }
    let first = counter(&wal) + 1;
    for number in first..first + BATCHES {
        let stream = StreamId(number % STREAMS);
        let next = number / STREAMS + 1;
        let mut batch = WalBatch::new();
        batch.put(stream, next, content(number).into());
        batch.meta(COUNTER, 0, number.to_le_bytes().to_vec().into());
        let report = move |result: Result<(), _>| {
            if result.is_ok() {
                // One write, so that the line is out if the process dies next.
                let _ = std::io::stdout().lock().write_all(format!("ACK {number}\n").as_bytes());
                let _ = std::io::stdout().flush();
            }
        };
        wal.append(batch, Box::new(report)).unwrap();
        if number % 5 == 0 {
            wal.append_wait(WalBatch::new()).unwrap();
        }
        if number % 12 == 0 {
            (0..STREAMS).for_each(|stream| wal.trim(StreamId(stream), next.saturating_sub(8)));
        }
    }
    wal.close(Duration::from_secs(20)).unwrap();
}

fn run_child(directory: &Path, fault: &str, buffered: bool) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    if buffered {
        command.env("WAL_CHILD_BUFFERED", "1");
    }
    command
        .args(["--exact", "crash::child", "--ignored", "--nocapture"])
        .env("WAL_CHILD_DIRECTORY", directory)
        .env("WAL_CHILD_FAULT", fault)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn last_acknowledged(output: &Output) -> Option<u64> {
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers = text.lines().filter_map(|line| line.split_once("ACK ")?.1.parse().ok());
    numbers.max()
}

/// Opens the log of the child and compares it with what every child writes.
fn check(directory: &Path, before: u64, output: &Output, what: &str) -> u64 {
    let (wal, recovered) = Wal::open(directory, config()).unwrap();
    assert!(recovered.damaged.is_empty(), "{what}: {:?}", recovered.damaged);
    let found = counter(&wal);
    let acknowledged = last_acknowledged(output).unwrap_or(before);
    assert!(found >= acknowledged, "{what}: {acknowledged} acknowledged, {found} found");
    assert!(found <= before + BATCHES, "{what}: {found} was never asked");
    for stream in 0..STREAMS {
        let records = read_all(&wal, stream).unwrap();
        for (seq, data) in &records {
            assert_eq!(data, &content((seq - 1) * STREAMS + stream), "{what}: {stream}/{seq}");
        }
        // The newest record of the stream according to the counter: batches are whole.
        if found >= STREAMS {
            let newest = (found - (found + STREAMS - stream) % STREAMS) / STREAMS + 1;
            assert_eq!(records.keys().next_back(), Some(&newest), "{what}: stream {stream}");
        }
    }
    wal.close(Duration::from_secs(20)).unwrap();
    found
}

fn ends_at_any_operation(buffered: bool) {
    let directory = tempfile::tempdir().unwrap();
    let mut found = 0;
    let mut ended = 0;
    let mut lives = 0;
    for nth in 0..55 {
        for kind in ["before", "half", "torn", "after"] {
            // Every third run counts from after the opening, to reach later operations.
            let late = if (nth + lives) % 3 == 0 { "late " } else { "" };
            let fault = format!("{late}{nth} {kind}");
            let output = run_child(directory.path(), &fault, buffered);
            ended += u32::from(output.status.signal() == Some(6));
            assert!(
                output.status.success() || output.status.signal() == Some(6),
                "{fault}: {}\n{}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            );
            found = check(directory.path(), found, &output, &fault);
            lives += 1;
        }
    }
    assert!(found > 500, "only {found} batches were written in {lives} lives");
    assert!(ended > 80, "only {ended} of {lives} lives ended by a fault");
}

#[test]
fn acknowledged_data_survives_abort_at_any_operation() {
    ends_at_any_operation(false);
}

#[test]
fn buffered_acknowledged_data_survives_abort_at_any_operation() {
    ends_at_any_operation(true);
}

#[test]
fn failed_sync_or_write_aborts_without_acknowledgement() {
    let buffered = [("late 3 sync-error", true), ("late 3 write-error", true)];
    let direct = [("late 3 durable-error", false), ("late 3 durable-torn", false)];
    let allowed = takes_direct_writes();
    for (fault, buffered) in buffered.into_iter().chain(direct.into_iter().filter(|_| allowed)) {
        let directory = tempfile::tempdir().unwrap();
        let output = run_child(directory.path(), fault, buffered);
        assert_eq!(output.status.signal(), Some(6), "{fault}: {}", output.status);
        let acknowledged = last_acknowledged(&output);
        assert!(acknowledged.is_some_and(|last| last < BATCHES), "{fault}: {acknowledged:?}");
        check(directory.path(), 0, &output, fault);
    }
}

#[test]
fn disk_failure_during_segment_preparation_aborts() {
    // The first file of a new log is created like all others.
    for fault in ["late 0 create-eio", "0 write-error", "0 sync-error"] {
        let directory = tempfile::tempdir().unwrap();
        let output = run_child(directory.path(), fault, false);
        assert_eq!(output.status.signal(), Some(6), "{fault}: {}", output.status);
        check(directory.path(), 0, &output, fault);
    }
    let directory = tempfile::tempdir().unwrap();
    let fault = "late 0 create-emfile";
    let output = run_child(directory.path(), fault, false);
    assert!(output.status.success(), "it is no failure of the disk: {}", output.status);
    assert_eq!(check(directory.path(), 0, &output, fault), BATCHES);
}

fn takes_direct_writes() -> bool {
    let directory = tempfile::tempdir().unwrap();
    let disk = RealDisk::open(directory.path()).unwrap();
    disk.create("probe").unwrap();
    let allowed = disk.open_durable("probe").unwrap().block_bytes() > 1;
    if !allowed {
        skipped(format_args!("in part: the file system of {} takes no direct writes", directory.path().display()));
    }
    allowed
}
