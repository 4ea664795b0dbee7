//! Clusters whose machines all lose power at once, in the middle of writes.

use crate::cluster::{Cluster, TIMEOUT};
use crate::image::DiskImage;
use crate::load::{Load, LoadReport};
use crate::options::Options;
use crate::strike::Striker;
use archon_testkit::{Random, wait_for};
use archon_types::DEFAULT_TABLE;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest value written, above what an engine stores in one piece.
const LONG_VALUE_BYTES: usize = 200_000;
const WRITERS: usize = 12;
/// Key prefix.
const KEYS: &str = "power";
/// The load continues across rounds; an operation may wait for a whole round.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(180);
const WRITE_BACK_INTERVAL: Duration = Duration::from_millis(3);

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub struct PowerLoss {
    /// Number of power failures.
    pub rounds: u32,
    /// Decides when, and how much had been written back by then.
    pub seed: u64,
    /// Copies of each partition.
    pub replication: u8,
    /// Storage engine of the nodes, if not the default.
    pub engine: Option<&'static str>,
    /// Writes go to a table by ranges, of which one partition is split in every round: the power fails as soon as the
    /// split is done.
    pub ranges: bool,
}

/// The table by ranges.
const TIMES: &str = "times";

/// Returns mostly small values, some of several pages, some longer than an engine stores in one piece.
fn value(number: u64) -> String {
    let bytes = match number % 64 {
        0 => LONG_VALUE_BYTES,
        1..=4 => 5_000,
        _ => 40,
    };
    let mut text = format!("value-{number}-");
    while text.len() < bytes {
        text.push_str(&format!("{:x}.", number.wrapping_mul(text.len() as u64 + 1)));
    }
    text
}

impl PowerLoss {
    /// Returns the cluster options.
    pub fn options(&self) -> Options {
        let options = if self.replication > 1 { Options::replicated() } else { Options::default() };
        Options { partitions: 12, replication: self.replication, engine: self.engine, disks: true, ..options }
    }

    /// Repeatedly writes, cuts the power of everything and restarts everything; the clients keep running. Returns the
    /// load report, and the writes missing at the end.
    ///
    /// # Panics
    /// If the cluster does not come back, or the system refuses something.
    pub fn run(&self, exe: &str, runtime: &tokio::runtime::Runtime) -> (LoadReport, Vec<String>) {
        let mut dice = Random::new(self.seed);
        let mut cluster = Cluster::start(exe, &self.options());
        let table = if self.ranges { TIMES } else { DEFAULT_TABLE };
        if self.ranges {
            cluster.done(&["table", "create", TIMES, "--range", "--replication", &self.replication.to_string()]);
            wait_one_more(&cluster, 0);
        }
        let client = cluster.client().table(table).timeout(CLIENT_TIMEOUT);
        let client = runtime.block_on(client.build()).expect("a client");
        let load = runtime.block_on(async { Load::start_with(&client, KEYS, WRITERS, value) });
        for round in 1..=self.rounds {
            load.wait_more(100);
            match self.ranges {
                true => {
                    let (count, striker) = (cluster.partitions(TIMES).len(), Striker::new(&cluster, TIMES));
                    write_back_while(cluster.disks().values(), &mut dice, || split_last(&striker, count));
                }
                false => {
                    let until = Instant::now() + dice.millis(0, 3_000);
                    write_back_until(cluster.disks().values(), &mut dice, until);
                }
            }
            cluster.cut_power();
            let answered = load.operations();
            cluster.start_everything();
            let online = cluster.wait_online();
            if self.ranges {
                wait_one_more(&cluster, round as usize);
            }
            println!("round {round}: the power failed after {answered} operations, Online after {online:?}");
        }
        let report = runtime.block_on(load.stop());
        let missing = runtime.block_on(report.missing(&client));
        (report, missing)
    }
}

/// Splits the last of the `count` partitions of the table by ranges, in front of or amid the next writer's keys;
/// returns once that is done.
///
/// # Panics
/// If it is not done, or was done for every writer.
fn split_last(striker: &Striker, count: usize) {
    let points = (0..WRITERS).flat_map(|writer| ["", "-5"].map(|amid| format!("{KEYS}-{writer}{amid}")));
    let at = points.collect::<BTreeSet<_>>().into_iter().nth(count).expect("a writer that was not split yet");
    // The last partition has the newest number: each was split off the one before.
    let last = u32::try_from(count - 1).expect("a small number");
    // A split is refused while a copy catches up, which a busy machine may cause at any time.
    let (begun, _) = wait_for("a split to begin", TIMEOUT, || striker.split(last, &at));
    let end = striker.end(&begun);
    assert_eq!(end.code, begun.reshape.done(), "{}", end.message);
}

/// Waits until the table by ranges has one partition more than were split off, and each is served.
fn wait_one_more(cluster: &Cluster, splits: usize) {
    cluster.wait_json("each part to be served", TIMEOUT, &["partition", "list", "--table", TIMES], |listed| {
        let rows = listed.as_array();
        rows.is_some_and(|rows| rows.len() == splits + 1 && rows.iter().all(|row| row["status"] == "online"))
    });
}

/// Lets the users of the disks run until a deadline, while the system writes back some dirty pages.
pub fn write_back_until<'a>(disks: impl Iterator<Item = &'a DiskImage>, dice: &mut Random, until: Instant) {
    write_back_while(disks, dice, || std::thread::sleep(until.saturating_duration_since(Instant::now())));
}

/// Makes the system write back some dirty pages of these disks while a condition lasts.
fn write_back_while<'a>(disks: impl Iterator<Item = &'a DiskImage>, dice: &mut Random, lasts: impl FnOnce()) {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for disk in disks {
            let mut dice = Random::new(dice.below(u64::MAX));
            let ended = &ended;
            scope.spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    disk.write_back_some(&mut dice);
                    std::thread::sleep(WRITE_BACK_INTERVAL);
                }
            });
        }
        let lasted = catch_unwind(AssertUnwindSafe(lasts));
        ended.store(true, Ordering::Relaxed);
        lasted.unwrap_or_else(|panic| resume_unwind(panic));
    });
}
