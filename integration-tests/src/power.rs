//! Clusters whose machines all lose their power at once, in the middle of writes.

use crate::cluster::Cluster;
use crate::dice::Dice;
use crate::image::DiskImage;
use crate::load::{Load, LoadReport};
use crate::options::Options;
use crate::wait::{check, wait_for};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest value written, above what an engine keeps in one piece.
const LONG_VALUE_BYTES: usize = 200_000;
const WRITERS: usize = 12;
/// The rounds go on while the load does; an operation may wait for a whole round.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(180);
const WRITE_BACK_INTERVAL: Duration = Duration::from_millis(3);

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct PowerLoss {
    /// How often the power fails.
    pub rounds: u32,
    /// Decides when, and what had been written back by then.
    pub seed: u64,
    /// Copies of each partition.
    pub replication: u8,
    /// The nodes' storage engine, if not the default one.
    pub engine: Option<&'static str>,
}

/// Small values mostly, some of several pages, some longer than an engine keeps in one piece.
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
    /// What the cluster looks like.
    pub fn options(&self) -> Options {
        let options = if self.replication > 1 { Options::replicated() } else { Options::default() };
        Options { partitions: 12, replication: self.replication, engine: self.engine, disks: true, ..options }
    }

    /// Writes, cuts the power of everything, starts everything again, and so on; the clients go on all the while. What
    /// they were told, and what is missing at the end.
    ///
    /// # Panics
    /// If the cluster does not come back, or the system refuses something.
    pub fn run(&self, exe: &str, runtime: &tokio::runtime::Runtime) -> (LoadReport, Vec<String>) {
        let mut dice = Dice::new(self.seed);
        let mut cluster = Cluster::start(exe, &self.options());
        let client = runtime.block_on(cluster.client().timeout(CLIENT_TIMEOUT).build()).expect("a client");
        let load = runtime.block_on(async { Load::start_with(&client, "power", WRITERS, value) });
        for round in 1..=self.rounds {
            let before = load.operations();
            wait_for("the load to go on", Duration::from_secs(120), || {
                let now = load.operations();
                check(now > before + 100, || format!("{now} operations"))
            });
            let until = Instant::now() + dice.millis(0, 3_000);
            write_back_until(cluster.disks().values(), &mut dice, until);
            cluster.cut_power();
            let answered = load.operations();
            cluster.start_everything();
            let online = cluster.wait_online();
            println!("round {round}: the power failed after {answered} operations, Online after {online:?}");
        }
        let report = runtime.block_on(load.stop());
        let missing = runtime.block_on(report.missing(&client));
        (report, missing)
    }
}

/// Lets whoever uses the disks go on until a moment, while the system writes back some of what it holds.
pub fn write_back_until<'a>(disks: impl Iterator<Item = &'a DiskImage>, dice: &mut Dice, until: Instant) {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for disk in disks {
            let mut dice = Dice::new(dice.roll(u64::MAX));
            let ended = &ended;
            scope.spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    disk.write_back_some(&mut dice);
                    std::thread::sleep(WRITE_BACK_INTERVAL);
                }
            });
        }
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
        ended.store(true, Ordering::Relaxed);
    });
}
