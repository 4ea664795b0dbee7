//! A bounded number of seeds: all properties hold, and the runs cover their features.

use archon_simulator::{Coverage, run};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// Seeds of an ordinary test run; `ARCHON_SEEDS` overrides the number: `.ci/run` sets three times as many.
const SEEDS: u64 = 100;

/// First seeds about splits, merges, recoveries of the coordinators, upgrades, changes of the quorum, relays,
/// reachability, ending sessions, values that expire, engines that refuse reads, operations on several keys and reads at
/// replicas; a third as many are run of each.
const OTHERS_FROM: [u64; 12] = [
    100_000_000,
    200_000_000,
    300_000_000,
    400_000_000,
    500_000_000,
    600_000_000,
    700_000_000,
    800_000_000,
    900_000_000,
    950_000_000,
    1_000_000_000,
    1_100_000_000,
];

/// Seeds with a rare event, one in hundreds: a cut-off side answers after its writes were discarded.
const RARE: [u64; 1] = [557];

#[test]
fn properties_hold_under_faults_and_worlds_converge() {
    let seeds = std::env::var("ARCHON_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SEEDS);
    let others = seeds.div_ceil(3);
    let others = OTHERS_FROM.into_iter().flat_map(|from| from..from + others);
    let rare = RARE.into_iter().filter(|seed| *seed >= seeds);
    let seeds: Vec<u64> = (0..seeds).chain(rare).chain(others).collect();
    let next = AtomicUsize::new(0);
    let (sender, outcomes) = mpsc::channel();
    let (mut total, mut failed) = (Coverage::default(), Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (sender, next, seeds) = (sender.clone(), &next, &seeds);
            scope.spawn(move || {
                while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if sender.send(run(*seed, None, 0)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for outcome in outcomes {
            total.add(&outcome.coverage);
            if let Some(violation) = outcome.violation {
                failed.push((outcome.seed, violation));
            }
        }
    });
    if let Some((seed, violation)) = failed.iter().min_by_key(|(seed, _)| *seed) {
        for line in run(*seed, None, 60).trace {
            eprintln!("{line}");
        }
        panic!(
            "{} of {} seeds failed; seed {seed}: {violation}\n\
             repeat: cargo run --release -p archon-simulator --bin simulate -- --seed {seed}",
            failed.len(),
            seeds.len()
        );
    }
    println!("{total:#?}");
    let missing: Vec<&str> =
        total.counters().into_iter().filter(|(_, count)| *count == 0).map(|(name, _)| name).collect();
    assert!(missing.is_empty(), "{} seeds never came across {missing:?}", seeds.len());
}

/// Regressions. 5166: the late registration of a wiped directory took its successor's name permanently. 12306: a
/// coordinator that was succeeded without noticing made a node forget a report. 5006073: a participant's release was
/// refused since the next owner had just failed, and forgotten: the partition had no owner. 5015994: an epoch that a
/// participant never knew was listed as withdrawn permanently. 7011963: as the first one, when the next owner had begun
/// another incarnation. 100000023: a node reported that a copy of a partition being split off was formed before any
/// coordinator accepted its new incarnation. 100000861: an in-sync copy was formed again, over its rows, since the row
/// of the split partition was an old one. The next four: an answer came after its key had been split off and merged
/// back, and was compared with the partition's intermediate writes to other keys. 230492464003126: a page of a copy
/// came to the next incarnation of the requesting machine, and was taken for an answer to its own request.
/// 240922573061183: a paused former leader told live nodes that their incarnations were fenced. 269921294757865: the
/// check took the rows of a dropped table on a disk that was set back for undeleted ones, as its engine refused accesses.
/// 2421542377741 and 180259441610910: the check let a value expire by the log time of an entry that a merge source wrote
/// after its end. 198323394577770: the simulated node formed a copy of a split again after it had deleted it, by an old
/// row; the flusher of a node refuses this.
#[test]
fn regression_seeds_hold() {
    let early = [5_166, 12_306, 5_006_073, 5_015_994, 7_011_963, 100_000_023, 100_000_861];
    let returned = [23_837_386_296_171, 82_016_111_940_124, 103_385_323_804_222, 106_005_459_656_364];
    let late = [230_492_464_003_126, 240_922_573_061_183, 269_921_294_757_865, 2_421_542_377_741, 180_259_441_610_910];
    let latest = [198_323_394_577_770];
    for seed in early.into_iter().chain(returned).chain(late).chain(latest) {
        let violation = run(seed, None, 0).violation;
        assert!(violation.is_none(), "seed {seed}: {violation:?}");
    }
}
