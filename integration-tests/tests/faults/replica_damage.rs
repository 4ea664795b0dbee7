//! One of three copies is wiped, flipped, deleted, made unreadable or started twice, on real processes under load: it
//! is detected and reloaded from its peers, the events report it, no operation fails and no acknowledged write is lost.

use crate::EXE;
use archon_client::Client;
use archon_integration_tests::disk::log_trims;
use archon_integration_tests::ports::free_addresses;
use archon_integration_tests::{Cluster, Load, Options, ProcessExt};
use archon_testkit::{check, wait_for, wait_for_async};
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const NODE: &str = "athens";
const PARTITIONS: u32 = 12;
const TIMEOUT: Duration = Duration::from_secs(180);

fn options() -> Options {
    Options { partitions: PARTITIONS, ..Options::replicated() }
}

/// Waits until every partition has three Live copies and a leader.
fn wait_whole(cluster: &Cluster) -> Duration {
    let live = |row: &Value| {
        let copies = row["copies"].as_array().into_iter().flatten();
        copies.filter(|copy| copy["state"] == "live").count()
    };
    let whole = |list: &Value| {
        let whole = |row: &Value| live(row) == 3 && row["status"] == "online";
        list.as_array().is_some_and(|rows| !rows.is_empty() && rows.iter().all(whole))
    };
    cluster.wait_json("every partition to have three Live copies", TIMEOUT, &["partition", "list"], whole).1
}

/// Returns the events as text.
fn events(cluster: &Cluster) -> Vec<String> {
    let list = cluster.json(&["events", "--limit", "10000", "--timeout", "20s"]).expect("events");
    list.as_array().into_iter().flatten().map(Value::to_string).collect()
}

/// Waits for an event that is not in `before` and contains one of these words.
fn wait_told(cluster: &Cluster, before: &[String], words: &[&str]) -> String {
    wait_for("the events to tell what happened", TIMEOUT, || {
        let new: Vec<String> = events(cluster).into_iter().filter(|event| !before.contains(event)).collect();
        let told = new.iter().find(|event| words.iter().any(|word| event.contains(word))).cloned();
        told.ok_or_else(|| format!("one of {words:?} is not in {new:#?}"))
    })
    .0
}

fn newest_segment(data: &Path) -> PathBuf {
    let entries = fs::read_dir(data.join("wal")).expect("the log's directory");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "seg"));
    files.sort();
    files.pop().expect("a log has a segment")
}

/// Returns the end of the written part of a segment.
fn written_end(segment: &Path) -> u64 {
    let bytes = fs::read(segment).expect("the segment is read");
    let zeros = bytes.iter().rev().take_while(|byte| **byte == 0).count();
    (bytes.len() - zeros) as u64
}

fn flip(path: &Path, offset: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("the file opens");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("the byte is there");
    file.write_all_at(&[byte[0] ^ 0x10], offset).expect("the byte is written");
}

/// A change to a node's directory while it is down.
struct Harm {
    what: &'static str,
    /// Stops the load before the kill, so that the last record is an acknowledged one.
    quiet: bool,
    /// The coordinator must know that the node failed before it comes back as another one.
    failed_first: bool,
    act: fn(&Path),
    /// Words of which the later events must contain one.
    told: &'static [&'static str],
}

const LOST: &[&str] =
    &["left the in-sync set", "to be deleted: it is damaged", "to be deleted: its data was lost or damaged"];

/// As [`LOST`]; but while the log still reaches back to the beginning, a missing engine is rebuilt from it without a
/// loss to report.
const LOST_OR_REPLAYED: &[&str] = &[
    "left the in-sync set",
    "to be deleted: it is damaged",
    "to be deleted: its data was lost or damaged",
    "returned in incarnation",
];

const HARMS: &[Harm] = &[
    Harm {
        what: "a bit flipped in the middle of the log",
        quiet: false,
        failed_first: false,
        act: |data| {
            let segment = newest_segment(data);
            flip(&segment, written_end(&segment) / 2);
        },
        told: LOST,
    },
    Harm {
        what: "a bit flipped in the last record of the log",
        quiet: true,
        failed_first: false,
        act: |data| {
            let segment = newest_segment(data);
            flip(&segment, written_end(&segment) - 3);
        },
        told: LOST,
    },
    Harm {
        what: "a bit flipped in the format number of the log",
        quiet: false,
        failed_first: false,
        act: |data| flip(&newest_segment(data), 8),
        told: LOST,
    },
    Harm {
        what: "the engine's directory deleted",
        quiet: false,
        failed_first: false,
        act: |data| fs::remove_dir_all(data.join("engine")).expect("removed"),
        told: LOST_OR_REPLAYED,
    },
    Harm {
        what: "an engine that does not open",
        quiet: false,
        failed_first: false,
        act: |data| {
            fs::write(data.join("engine/tree/current"), b"no version of a tree").expect("written");
        },
        told: LOST_OR_REPLAYED,
    },
    Harm {
        what: "an empty directory under the same name",
        quiet: false,
        failed_first: true,
        act: |data| fs::remove_dir_all(data).expect("removed"),
        told: &["lost its data"],
    },
];

/// Waits until the engine has been synced, so that recovery rests on it.
async fn wait_flushed(cluster: &Cluster) {
    let before = log_trims(cluster, NODE).await;
    wait_for_async("the engine to be synced", TIMEOUT, || async {
        let now = log_trims(cluster, NODE).await;
        check(now > before, || format!("{now} trims of the log, as before"))
    })
    .await;
}

async fn client(cluster: &Cluster) -> Client {
    let builder = cluster.client();
    builder.timeout(Duration::from_secs(60)).build().await.expect("a client")
}

async fn ends_well(load: Load, client: &Client, what: &str) {
    let report = load.stop().await;
    println!("{what}: {} operations, longest gap {} ms", report.operations, report.longest_gap.as_millis());
    report.assert_no_failure();
    assert_eq!(report.missing(client).await, Vec::<String>::new(), "{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_copy_is_detected_and_reloaded_from_peers() {
    let mut cluster = Cluster::start(EXE, &options());
    let client = client(&cluster).await;
    let kept = Load::start_at_full_speed(&client, "kept", 8);
    tokio::task::block_in_place(|| {
        wait_whole(&cluster);
        kept.wait_more(400);
    });
    let kept = kept.stop().await;
    kept.assert_no_failure();
    for harm in HARMS {
        let data = cluster.node_data(NODE);
        let mut load = Load::start_at_full_speed(&client, harm.what, 8);
        tokio::task::block_in_place(|| load.wait_more(200));
        wait_flushed(&cluster).await;
        if harm.quiet {
            ends_well(load, &client, harm.what).await;
            cluster.take_node(NODE).kill();
            load = Load::start_at_full_speed(&client, "after", 8);
        } else {
            cluster.take_node(NODE).kill();
        }
        let load = tokio::task::block_in_place(|| come_back(&mut cluster, harm, &data, load));
        ends_well(load, &client, harm.what).await;
    }
    assert_eq!(kept.missing(&client).await, Vec::<String>::new());
}

/// Damages the directory, restarts the node and waits until everything is whole and the events report the damage.
fn come_back(cluster: &mut Cluster, harm: &Harm, data: &Path, load: Load) -> Load {
    if harm.failed_first {
        cluster.wait_node(NODE, "failed");
    }
    (harm.act)(data);
    let before = events(cluster);
    cluster.start_node(NODE);
    cluster.wait_node(NODE, "alive");
    let told = wait_told(cluster, &before, harm.told);
    let whole = wait_whole(cluster);
    println!("{}: whole after {whole:?}; {told}", harm.what);
    load.wait_more(200);
    load
}

/// The same directory in use twice: a copy of it, made while the node was down, is started at another address beside
/// it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicate_directory_started_elsewhere_loses_nothing() {
    let mut cluster = Cluster::start(EXE, &options());
    let client = client(&cluster).await;
    let load = Load::start_at_full_speed(&client, "cloned", 8);
    let clone = cluster.directory().join("clone");
    let data = cluster.node_data(NODE);
    tokio::task::block_in_place(|| {
        wait_whole(&cluster);
        load.wait_more(200);
        let former = cluster.wait_incarnation(NODE, 0);
        cluster.take_node(NODE).kill();
        let status = Command::new("cp").arg("-a").arg(&data).arg(&clone).status().expect("cp runs");
        assert!(status.success());
        cluster.start_node(NODE);
        // Until the coordinators notice the restart, everything still counts as whole.
        cluster.wait_incarnation(NODE, former);
        wait_whole(&cluster);
        load.wait_more(200);
        // Under another name it is refused before it contacts a coordinator.
        let arguments = cluster.node_arguments("delos", &free_addresses(1).remove(0), &clone);
        let status = cluster.spawn("delos", &arguments).wait_exit(TIMEOUT);
        assert_eq!(status.code(), Some(4), "refused");
        // Under its own name it is refused while the first one lives, which continues undisturbed.
        let arguments = cluster.node_arguments(NODE, &free_addresses(1).remove(0), &clone);
        let life = cluster.wait_incarnation(NODE, 0);
        let mut second = cluster.spawn("second", &arguments);
        assert_eq!(second.wait_exit(TIMEOUT).code(), Some(4), "{}", second.log_tail(5));
        assert!(second.log().contains("in use by the live node"), "{}", second.log_tail(5));
        assert_eq!(cluster.incarnation(NODE), Ok(life));
        load.wait_more(200);
        // When the first one has died and failed, the copy takes its place. Its replicas are of an older incarnation:
        // those still in sync are lost, and the others are brought up to date by their leaders.
        cluster.take_node(NODE).kill();
        cluster.wait_node(NODE, "failed");
        let before = events(&cluster);
        let second = cluster.spawn("second", &arguments);
        wait_told(&cluster, &before, &["returned in incarnation"]);
        let whole = wait_whole(&cluster);
        println!("whole after {whole:?}");
        load.wait_more(200);
        drop(second);
        cluster.wait_online();
        load.wait_more(200);
    });
    ends_well(load, &client, "cloned").await;
}

/// Restores the log and the engine of an earlier moment, as an incomplete backup would: the identity stays, so that the
/// registration does not reveal it.
fn roll_back(data: &Path, earlier: &Path) {
    for part in ["wal", "engine"] {
        fs::remove_dir_all(data.join(part)).expect("removed");
        let status = Command::new("cp").arg("-a").arg(earlier.join(part)).arg(data).status().expect("cp runs");
        assert!(status.success());
    }
}

/// A leader that lacks entries that others know as committed: they refuse to follow it, both copies appear in the
/// events (rule 10), and no acknowledged write is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolled_back_log_under_current_identity_is_disputed() {
    let mut cluster = Cluster::start(EXE, &options());
    let client = client(&cluster).await;
    let load = Load::start_at_full_speed(&client, "rolled", 8);
    let earlier = cluster.directory().join("earlier");
    let data = cluster.node_data(NODE);
    tokio::task::block_in_place(|| {
        wait_whole(&cluster);
        load.wait_more(200);
        cluster.take_node(NODE).kill();
        let status = Command::new("cp").arg("-a").arg(&data).arg(&earlier).status().expect("cp runs");
        assert!(status.success());
        cluster.start_node(NODE);
        wait_whole(&cluster);
        load.wait_more(400);
    });
    // The other engines hold more than the earlier log, so that the others know that it was committed.
    for node in ["byzantium", "cyrene"] {
        let before = log_trims(&cluster, node).await;
        wait_for_async(&format!("the engine of {node} to be written"), TIMEOUT, async || {
            let now = log_trims(&cluster, node).await;
            check(now >= before + 3 * u64::from(PARTITIONS), || format!("{before} trims, then {now}"))
        })
        .await;
    }
    let load = load.stop().await;
    load.assert_no_failure();
    cluster.kill_everything();
    roll_back(&data, &earlier);
    cluster.start_everything();
    let told = tokio::task::block_in_place(|| {
        let told = wait_told(&cluster, &[], &["one of them lost data"]);
        println!("{told}; whole after {:?}", wait_whole(&cluster));
        told
    });
    assert!(told.contains(&format!("on {NODE}, leader of epoch")), "{told}");
    assert_eq!(load.missing(&client).await, Vec::<String>::new());
}
