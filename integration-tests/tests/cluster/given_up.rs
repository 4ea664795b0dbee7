//! Every reason for abandoning a split or a merge, on real processes: the event names it, every key is where it was,
//! and no formed copies remain.

use crate::EXE;
use archon_client::RangeChangeStatus;
use archon_integration_tests::disk::{SmallDisk, fill};
use archon_integration_tests::strike::{Striker, wait_served};
use archon_integration_tests::{Attempt, Cluster, Options};
use archon_testkit::{check, skipped, wait_for};
use futures::TryStreamExt as _;
use std::fs;
use std::time::Duration;
use tokio::runtime::Runtime;

const NODES: [&str; 3] = ["athens", "byzantium", "cyrene"];
const TIMEOUT: Duration = Duration::from_secs(60);
/// So many rows that the copy is still in progress when the test reacts to its begin.
const ROWS: usize = 600;
const ROW_BYTES: usize = 16 * 1024;
/// Partitions of the default table, of which each node has a copy.
const DEFAULT_PARTITIONS: u32 = 4;
/// Number of attempts to hit a phase that lasts for milliseconds.
const TRIES: usize = 4;

/// A table by ranges full of rows, and the operator that splits and merges it.
struct World {
    cluster: Cluster,
    striker: Striker,
    /// Number of partitions when no attempt runs.
    partitions: usize,
}

/// Three nodes, of which these start at once.
fn options(nodes: &[&'static str]) -> Options {
    Options { nodes: nodes.to_vec(), nodes_min: 3, partitions: DEFAULT_PARTITIONS, ..Options::replicated() }
}

fn key(row: usize) -> String {
    format!("key-{row:04}")
}

impl World {
    /// Starts with its partitions split at these keys.
    fn begin(split_at: &[&str]) -> Self {
        Self::on(Cluster::start(EXE, &options(&NODES)), split_at)
    }

    fn on(cluster: Cluster, split_at: &[&str]) -> Self {
        cluster.wait_whole(3);
        let striker = Striker::new(&cluster, "times");
        let world = Self { cluster, striker, partitions: split_at.len() + 1 };
        world.make_table(split_at);
        world
    }

    fn make_table(&self, split_at: &[&str]) {
        let split_at = split_at.join(",");
        let split_at: &[&str] = if split_at.is_empty() { &[] } else { &["--split-at", &split_at] };
        self.cluster.done(&[&["table", "create", "times", "--range", "--replication", "3"], split_at].concat());
        wait_served(&self.cluster, "times", self.partitions);
        Runtime::new().expect("a runtime").block_on(async {
            let client = self.cluster.client().table("times").build().await.expect("a client");
            let put = |row: usize| client.put(key(row), vec![b'v'; ROW_BYTES]);
            futures::future::try_join_all((0..ROWS).map(put)).await.expect("puts");
        });
    }

    /// Asserts that an attempt was abandoned for this reason and left no trace.
    fn assert_given_up(&self, attempt: &Attempt, why: &str) {
        let end = self.striker.end(attempt);
        println!("{}", end.message);
        assert!(end.code == attempt.reshape.given_up() && end.message.contains(why), "{why:?}, but {end:?}");
        self.assert_in_order();
    }

    /// Asserts that every key is in its partition, and that no other copies exist.
    fn assert_in_order(&self) {
        wait_served(&self.cluster, "times", self.partitions);
        self.cluster.wait_condemned(0);
        // No orphaned copies are left either.
        let held = NODES.map(|_| u64::from(DEFAULT_PARTITIONS) + self.partitions as u64);
        wait_for("the nodes to hold the copies of all partitions and no more", TIMEOUT, || {
            let address = |node| self.cluster.node_address(node);
            let found = NODES.map(|node| self.striker.counted(address(node), "archon_node_placements"));
            check(found == held, || format!("{found:?}, not {held:?}"))
        });
        Runtime::new().expect("a runtime").block_on(async {
            let client = self.cluster.client().table("times").build().await.expect("a client");
            // Writes also at the ends of both halves.
            for row in [0, ROWS - 1] {
                client.put(key(row), vec![b'w'; ROW_BYTES]).await.expect("a put");
            }
            let found: Vec<_> = client.scan("").entries().try_collect().await.expect("a listing");
            let keys: Vec<String> =
                found.iter().map(|entry| String::from_utf8_lossy(&entry.key).into_owned()).collect();
            assert_eq!(keys, (0..ROWS).map(key).collect::<Vec<_>>());
        });
    }

    /// Kills these nodes at once; an attempt must end before they are back.
    fn killed(&mut self, nodes: &[&str], attempt: &Attempt) {
        for node in nodes {
            self.cluster.take_node(node).kill();
        }
        self.striker.end(attempt);
        for node in nodes {
            self.cluster.start_node(node);
        }
    }

    fn leader(&self, partition: u32) -> String {
        self.striker.describe(partition).and_then(|of| of.leader).expect("somebody leads it")
    }

    /// Pauses a node that follows the first partition: no split of it ends before the node runs again. Returns its name.
    fn pause_follower(&self) -> String {
        let leader = self.leader(0);
        let follower = NODES.into_iter().find(|node| *node != leader).expect("three nodes hold it");
        self.cluster.node(follower).pause();
        follower.to_owned()
    }

    /// Disables failover of paused nodes from now on, for as long as this test pauses them.
    fn be_patient(&self) {
        self.cluster.done(&["config", "set", "failure_timeout_ms=30000"]);
    }
}

/// Begins a split that has nearly all rows to copy.
fn begin_split(world: &World) -> Attempt {
    world.striker.split(0, &key(20)).expect("a split")
}

/// Begins a merge. A node counts rows twice while it moves them from its memtable to the engine, and a merge of so many bytes is refused.
fn begin_merge(world: &World) -> Attempt {
    wait_for("a merge to begin", TIMEOUT, || world.striker.merge(0)).0
}

#[test]
fn split_is_abandoned_if_cancelled_or_offline() {
    let world = World::begin(&[]);
    world.be_patient();
    let paused = world.pause_follower();
    let split = begin_split(&world);
    let again = world.cluster.archon(&["partition", "split", "0", "--table", "times", "--at", "key-0300"]);
    assert!(again.code == 4 && again.stderr.contains("is being split already, into times/1"), "{again:?}");
    let merged = world.cluster.archon(&["partition", "merge", "0", "--table", "times"]);
    assert!(merged.code == 4 && merged.stderr.contains("is the only one of its table"), "{merged:?}");
    let describe = ["partition", "describe", "1", "--table", "times"];
    let ran = world.cluster.archon(&describe);
    assert!(ran.code == 3 && ran.stderr.contains("it is being split off partition times/0"), "{ran:?}");
    world.striker.cancel(&split).expect("it is not done yet");
    world.cluster.node(&paused).resume();
    world.assert_given_up(&split, "the split into times/1 was abandoned: cancelled by an operator");
    let ran = world.cluster.archon(&describe);
    let says = "the split of partition times/0 that was to create it was abandoned";
    assert!(ran.code == 3 && ran.stderr.contains(says), "{ran:?}");

    let paused = world.pause_follower();
    let split = begin_split(&world);
    world.cluster.done(&["partition", "offline", "0", "--table", "times", "--why", "poisoned"]);
    world.cluster.node(&paused).resume();
    world.striker.end(&split);
    world.cluster.done(&["partition", "online", "0", "--table", "times"]);
    world.assert_given_up(&split, "an operator took the partition offline");

    // Numbers are not reused: the third attempt creates the third partition.
    let split = begin_split(&world);
    assert_eq!((world.striker.end(&split).code.known(), split.right), (Some(split.reshape.done()), 3));
    World { partitions: 2, ..world }.assert_in_order();
}

#[test]
fn split_is_abandoned_if_too_few_copies_can_be_formed() {
    let mut world = World::begin(&[]);
    let leader = world.leader(0);
    let others: Vec<&str> = NODES.into_iter().filter(|node| *node != leader).collect();
    let split = begin_split(&world);
    world.killed(&others, &split);
    world.assert_given_up(&split, "only 1 of 2 replicas can be formed");
}

/// The event names the node being waited for, and its partitions are served throughout.
#[test]
fn split_waits_for_a_full_disk_until_cancelled() {
    let mut cluster = Cluster::start(EXE, &options(&NODES[..2]));
    let data = cluster.node_data(NODES[2]);
    let Some(disk) = SmallDisk::mount(&data, 256) else {
        skipped("this machine does not let a test mount a file system");
        return;
    };
    cluster.start_node(NODES[2]);
    let world = World::on(cluster, &[]);
    // Dropped before its parent directory.
    let _disk = disk;
    let ballast = fill(&data);
    let split = begin_split(&world);
    wait_for("the others to have the keys", TIMEOUT, || {
        let progress = world.striker.describe(0).and_then(|of| of.reshaping);
        let space = format!("too little space on {}", NODES[2]);
        let waits = |split: &RangeChangeStatus| split.waits_for == [NODES[2]] && split.message.ends_with(&space);
        check(progress.as_ref().is_some_and(waits), || format!("{progress:?}"))
    });
    let listed = world.cluster.done(&["rebalance", "status"]);
    let row = listed.lines().find(|line| line.starts_with("times/0")).unwrap_or_else(|| panic!("{listed}"));
    assert!(
        row.contains("split, 1 from \"key-") && row.contains("2 of 3") && row.contains("too little space"),
        "{row}"
    );
    world.striker.cancel(&split).expect("it waits");
    fs::remove_file(ballast).expect("the ballast is there");
    world.assert_given_up(&split, "cancelled by an operator");
}

#[test]
fn split_is_abandoned_if_its_leader_pauses_after_the_cut() {
    let world = World::begin(&[]);
    world.be_patient();
    let (mut partitions, mut row) = (1, 40);
    loop {
        let leader = world.leader(0);
        let split = world.striker.split(0, &key(ROWS - row)).expect("a split");
        let cut = world.striker.wait_cut(&split);
        world.cluster.node(&leader).pause();
        let end = world.striker.end(&split);
        world.cluster.node(&leader).resume();
        if cut && end.code == split.reshape.given_up() {
            let world = World { partitions, ..world };
            return world.assert_given_up(&split, "it was not formed within 5000 ms; waited for: ");
        }
        // The split was completed before the leader paused.
        partitions += 1;
        row += 40;
        assert!(partitions <= TRIES, "the leader stood still too late {TRIES} times: {end:?}");
        wait_served(&world.cluster, "times", partitions);
    }
}

#[test]
fn merge_is_abandoned_if_cancelled_or_offline() {
    let world = World::begin(&["key-0020"]);
    let merge = begin_merge(&world);
    let again = world.cluster.archon(&["partition", "merge", "0", "--table", "times"]);
    assert!(again.code == 4 && again.stderr.contains("is being merged already"), "{again:?}");
    world.striker.cancel(&merge).expect("it is not done yet");
    world.assert_given_up(
        &merge,
        "is not merged with times/1, which keeps its keys: the merge was abandoned: cancelled by an operator",
    );
    for side in ["0", "1"] {
        let merge = begin_merge(&world);
        world.cluster.done(&["partition", "offline", side, "--table", "times", "--why", "poisoned"]);
        world.striker.end(&merge);
        world.cluster.done(&["partition", "online", side, "--table", "times"]);
        world.assert_given_up(&merge, "an operator took the partition offline");
    }
    let merge = begin_merge(&world);
    assert_eq!(world.striker.end(&merge).code, merge.reshape.done());
    World { partitions: 1, ..world }.assert_in_order();
}

#[test]
fn merge_is_abandoned_if_source_leader_pauses_or_nodes_die() {
    let mut world = World::begin(&["key-0020"]);
    let merge = begin_merge(&world);
    world.killed(&NODES, &merge);
    world.assert_given_up(&merge, "within 10000 ms; no leader of times/0 and times/1");

    world.be_patient();
    let leader = world.leader(1);
    let merge = begin_merge(&world);
    world.cluster.node(&leader).pause();
    world.striker.end(&merge);
    world.cluster.node(&leader).resume();
    world.assert_given_up(&merge, "the keys were not transferred within 10000 ms");
}

#[test]
fn table_drop_ends_its_splits_and_merges() {
    let world = World::begin(&["key-0020"]);
    let drop_it = || {
        let told = world.cluster.done(&["table", "drop", "times", "--yes"]);
        assert!(told.contains("dropped table times"), "{told}");
        world.cluster.wait_condemned(0);
    };
    let split = world.striker.split(1, "key-0040").expect("a split");
    drop_it();
    world.make_table(&["key-0020"]);
    world.assert_in_order();
    let merge = begin_merge(&world);
    drop_it();
    world.make_table(&["key-0020"]);
    world.assert_in_order();
    wait_for("the events of the drops", TIMEOUT, || {
        let events = world.cluster.done(&["events"]);
        let dropped = events.lines().filter(|line| line.contains("dropped with its 2 partitions")).count();
        let done = events.lines().any(|line| line.contains("is split: ") || line.contains("is merged: "));
        check(dropped == 2 && !done, || format!("{split:?}, {merge:?}: {events}"))
    });
}
