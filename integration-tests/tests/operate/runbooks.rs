//! Runbooks tested literally: their commands run on real clusters, with placeholders filled in, and their promised
//! results are checked. An unknown, refused or failing command fails the test.

use crate::EXE;
use crate::operator::Operator;
use crate::operator::programs::Programs;
use archon_client::Client;
use archon_integration_tests::cluster::TIMEOUT;
use archon_integration_tests::disk::{self, SmallDisk};
use archon_integration_tests::ports::free_addresses;
use archon_integration_tests::{Cluster, Load, LoadReport, Options, ProcessExt, Release, Rows};
use archon_testkit::{check, skipped, wait_for};
use futures::future::join_all;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Runbooks are written for plaintext on this machine.
fn options() -> Options {
    Options { partitions: 8, replication: 3, tls: false, ..Options::default() }
}

const KEYS: usize = 200;

/// Starts a cluster with three copies of everything, a client of it, and rows to check at the end.
async fn started(options: &Options) -> (Cluster, Client, Rows) {
    let cluster = Cluster::start_whole(EXE, options);
    let client = cluster.client().build().await.expect("a client");
    let rows = Rows::written(&client, KEYS).await;
    (cluster, client, rows)
}

/// Returns the nodes that hold a Live copy, for every partition, once each is served by three: a follower that was slow
/// for a moment returns by itself.
fn holders(cluster: &Cluster, coordinators: &str) -> Vec<String> {
    let whole = || {
        let ran = cluster.archon_at(coordinators, &["partition", "list", "-o", "json"]);
        let rows: Value = serde_json::from_str(&ran.stdout).map_err(|error| format!("{error}: {ran:?}"))?;
        let mut names = Vec::new();
        for row in rows.as_array().into_iter().flatten() {
            let copies = row["copies"].as_array().into_iter().flatten();
            let live: Vec<&Value> = copies.filter(|copy| copy["state"] == "live").collect();
            check(row["status"] == "online" && live.len() == 3, || row.to_string())?;
            names.extend(live.iter().filter_map(|copy| copy["node"].as_str()).map(str::to_owned));
        }
        names.sort();
        names.dedup();
        Ok::<_, String>(names)
    };
    wait_for("three copies of every partition", TIMEOUT, whole).0
}

/// Returns addresses of this machine, each under its name in a runbook.
fn addresses<const N: usize>(names: [&'static str; N]) -> Vec<(&'static str, String)> {
    names.into_iter().zip(free_addresses(N)).collect()
}

/// Returns the initial coordinators, under their names in runbooks.
fn old_ones(cluster: &Cluster) -> Vec<(&'static str, String)> {
    ["A:7101", "B:7101", "C:7101"].into_iter().zip(cluster.coordinator_addresses()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runbook_for_lost_node_works() {
    let (mut cluster, client, rows) = started(&options()).await;
    cluster.take_node("athens").kill();
    cluster.wait_node("athens", "failed");
    let places = [old_ones(&cluster), addresses(["NEW:7201"])].concat();
    let mut operator = Operator::new(EXE, &mut cluster, &places);
    operator.follow("node-lost.md", &["# A node is lost"]);
    let coordinators = operator.coordinators.clone();
    assert_eq!(holders(operator.cluster, &coordinators), ["byzantium", "cyrene", "delos"]);
    rows.assert_there(&client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runbook_for_lost_coordinator_works() {
    let mut cluster = Cluster::start_whole(EXE, &options());
    cluster.take_coordinator(2).kill();
    let new = addresses(["NEW:7101"]).remove(0);
    // Here a host's external name is its address.
    let mut places = [old_ones(&cluster), vec![("IP:7101", new.1.clone()), new]].concat();
    places.retain(|(place, _)| *place != "C:7101");
    let mut operator = Operator::new(EXE, &mut cluster, &places);
    operator.follow("README.md", &["## A coordinator is lost"]);
    let quorum = operator.cluster.json(&["quorum", "list"]).expect("a quorum");
    let voters = quorum["coordinators"].as_array().expect("a list").iter().map(|one| one["coordinator_id"].as_u64());
    assert_eq!(voters.collect::<Vec<_>>(), [Some(1), Some(2), Some(4)], "{quorum}");
    assert_eq!((&quorum["spare_voters"], &quorum["retired_ids"][0]), (&1.into(), &3.into()), "{quorum}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runbook_for_lost_majority_works() {
    let (mut cluster, client, rows) = started(&options()).await;
    for lost in [0, 2] {
        cluster.take_coordinator(lost).kill();
    }
    assert!(cluster.take_coordinator(1).terminate(TIMEOUT).success());
    let old = ("OLD", cluster.directory().join("coordinator-2").display().to_string());
    let places = [old_ones(&cluster), vec![old]].concat();
    let mut operator = Operator::new(EXE, &mut cluster, &places);
    operator.follow("majority-lost.md", &["# The majority is lost"]);
    let quorum = operator.cluster.json(&["quorum", "list"]).expect("a quorum");
    assert_eq!((&quorum["spare_voters"], &quorum["generation"]), (&1.into(), &2.into()), "{quorum}");
    let coordinators = operator.coordinators.clone();
    assert_eq!(holders(operator.cluster, &coordinators), ["athens", "byzantium", "cyrene"]);
    rows.assert_there(&client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runbook_for_moving_to_other_hosts_works() {
    let (mut cluster, client, rows) = started(&options()).await;
    let load = Load::start(&client, "hosts", 4);
    let new = addresses(["D:7101", "E:7101", "F:7101", "D:7201", "E:7201", "F:7201"]);
    let places = [old_ones(&cluster), new].concat();
    let mut operator = Operator::new(EXE, &mut cluster, &places);
    operator.follow("other-hosts.md", &["# The cluster moves to other hosts"]);
    // Replaced coordinators have stopped by themselves.
    for index in 0..3 {
        let ended = operator.cluster.take_coordinator(index).wait_exit(TIMEOUT);
        assert_eq!(ended.code(), Some(4), "coordinator {}", index + 1);
    }
    let coordinators = operator.coordinators.clone();
    assert_eq!(holders(operator.cluster, &coordinators), ["delos", "ephesus", "florence"]);
    let listed = operator.cluster.archon_at(&coordinators, &["quorum", "list", "-o", "json"]);
    let quorum: Value = serde_json::from_str(&listed.stdout).expect("JSON");
    assert_eq!(
        (&quorum["spare_voters"], &quorum["retired_ids"]),
        (&1.into(), &serde_json::json!([1, 2, 3])),
        "{quorum}"
    );
    // An early client continues, and a new one finds everything.
    let report = load.stop().await;
    report.assert_no_failure();
    assert_eq!(report.missing(&client).await, Vec::<String>::new());
    println!("longest gap of a writer: {:?} over {} operations", report.longest_gap, report.operations);
    rows.assert_there(&client).await;
    rows.assert_there(&Client::builder(coordinators.split(',')).build().await.expect("a client")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runbook_for_new_addresses_works() {
    let (mut cluster, _, rows) = started(&options()).await;
    let before = cluster.json(&["quorum", "list"]).expect("a quorum");
    let new = addresses(["D:7101", "E:7101", "F:7101", "D:7201", "E:7201", "F:7201"]);
    let data = |member: &str| cluster.directory().join(member).display().to_string();
    let coordinators =
        [("C1", data("coordinator-1")), ("C2", data("coordinator-2")), ("C3", data("coordinator-3"))].to_vec();
    let nodes = [("N1", data("node-athens")), ("N2", data("node-byzantium")), ("N3", data("node-cyrene"))].to_vec();
    let mut operator = Operator::new(EXE, &mut cluster, &[new, coordinators, nodes].concat());
    operator.follow("other-addresses.md", &["# All machines get other addresses"]);
    let coordinators = operator.coordinators.clone();
    assert_eq!(holders(operator.cluster, &coordinators), ["athens", "byzantium", "cyrene"]);
    let listed = operator.cluster.archon_at(&coordinators, &["quorum", "list", "-o", "json"]);
    let quorum: Value = serde_json::from_str(&listed.stdout).expect("JSON");
    let told: Vec<&str> =
        quorum["coordinators"].as_array().into_iter().flatten().filter_map(|one| one["address"].as_str()).collect();
    assert_eq!(told.join(","), coordinators, "{quorum}");
    assert_eq!((&quorum["generation"], &quorum["cluster"]), (&before["generation"], &before["cluster"]), "{quorum}");
    rows.assert_there(&Client::builder(coordinators.split(',')).build().await.expect("a client")).await;
}

/// A cluster in which athens has a full disk of its own, beside some other nodes.
struct FullDiskCluster {
    /// Dropped first: otherwise the directory of the cluster cannot be removed.
    _disk: SmallDisk,
    cluster: Cluster,
    client: Client,
    rows: Rows,
    /// Data directory of athens.
    data: PathBuf,
    /// File that fills its disk, if not its own data.
    file: Option<PathBuf>,
}

impl FullDiskCluster {
    /// Starts it; `None` if this machine does not let a test mount a file system.
    async fn start(others: &[&'static str], by_a_file: bool) -> Option<Self> {
        // Nothing is assigned before athens is there.
        let nodes_min = others.len() + 1;
        let mut cluster = Cluster::start(EXE, &Options { nodes: others.to_vec(), nodes_min, ..options() });
        let mounted = cluster.directory().join("small");
        let Some(disk) = SmallDisk::mount(&mounted, if by_a_file { 512 } else { 256 }) else {
            skipped("this machine does not let a test mount a file system");
            return None;
        };
        let data = mounted.join("athens");
        fs::create_dir(&data).expect("a directory");
        symlink(&data, cluster.directory().join("node-athens")).expect("a link");
        cluster.start_node("athens");
        cluster.wait_whole(3);
        let client = cluster.client().build().await.expect("a client");
        let rows = Rows::written(&client, KEYS).await;
        let file = by_a_file.then(|| disk::fill(&mounted));
        let full = Self { cluster, client, rows, data, file, _disk: disk };
        full.write_until_it_is_told().await;
        Some(full)
    }

    /// Writes rows until a write is refused: on a full disk, as many as fit the log's prepared space. A busy node may
    /// lose its leaderships before that, and then only `status` reports the full disk.
    async fn write_until_it_is_told(&self) {
        let hasty = self.client.with_timeout(Duration::from_millis(500));
        let (value, began) = ("x".repeat(200_000), Instant::now());
        for round in 0.. {
            let puts = (0..32).map(|number| hasty.put(format!("ballast/{round}/{number}"), value.clone()));
            let refused = join_all(puts).await.into_iter().filter_map(Result::err);
            let refuses = refused.into_iter().any(|error| format!("{error:?}").contains("ReadOnly"));
            if refuses || self.cluster.archon(&["status"]).stdout.contains("DiskFull") {
                break;
            }
            assert!(began.elapsed() < TIMEOUT, "it was never full");
        }
        wait_for("the node to be said to be full", TIMEOUT, || {
            let status = self.cluster.archon(&["status"]);
            check(status.stdout.contains("DiskFull"), || status.stdout)
        });
    }

    /// Follows some parts of the page, and returns the holders afterwards.
    async fn follow(&mut self, places: &[(&'static str, String)], headings: &[&str]) -> Vec<String> {
        let places = [places, &[("OLD", self.data.display().to_string())]].concat();
        let mut operator = Operator::new(EXE, &mut self.cluster, &places);
        operator.follow("full-disk.md", &[&["## Which one, and what fills it"], headings].concat());
        let coordinators = operator.coordinators.clone();
        let holders = holders(operator.cluster, &coordinators);
        self.rows.assert_there(&self.client).await;
        // Everything can be written again, under any leader.
        self.rows.write(&self.client).await;
        let check = operator.cluster.archon(&["check"]);
        assert_eq!(check.code, 0, "{check:?}");
        holders
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runbook_for_full_disk_frees_space() {
    let Some(mut full) = FullDiskCluster::start(&["byzantium", "cyrene"], true).await else { return };
    let file = ("FILE", full.file.take().expect("a file").display().to_string());
    assert_eq!(full.follow(&[file], &["## Space can be freed"]).await, ["athens", "byzantium", "cyrene"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runbook_for_full_disk_replaces_the_disk() {
    let Some(mut full) = FullDiskCluster::start(&["byzantium", "cyrene"], true).await else { return };
    let larger = full.cluster.directory().join("larger");
    fs::create_dir(&larger).expect("a directory");
    let address = full.cluster.node_address("athens").to_owned();
    let places = [vec![("NEW", larger.display().to_string()), ("A:7201", address)], old_ones(&full.cluster)].concat();
    assert_eq!(full.follow(&places, &["## There is a larger disk"]).await, ["athens", "byzantium", "cyrene"]);
    assert!(!full.data.exists(), "nobody starts the old one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runbook_for_full_disk_moves_data_to_others() {
    let Some(mut full) = FullDiskCluster::start(&["byzantium", "cyrene", "delos"], false).await else { return };
    let address = full.cluster.node_address("athens").to_owned();
    let places = [vec![("A:7201", address)], old_ones(&full.cluster)].concat();
    let holders = full.follow(&places, &["## Others take its data"]).await;
    assert_eq!(holders, ["athens", "byzantium", "cyrene", "delos"]);
    let listed = full.cluster.json(&["node", "describe", "athens"]).expect("a node");
    let copies = listed["copies"].as_array().map_or(0, Vec::len);
    assert!((1..=2).contains(&copies), "{listed}");
}

/// Fills `orders`, backs it up, and lets an unauthorised writer overwrite it.
async fn backed_up(cluster: &Cluster) -> (String, Rows) {
    cluster.done(&["table", "create", "orders", "--partitions", "6", "--replication", "3"]);
    let orders = cluster.client().table("orders").timeout(TIMEOUT).build().await.expect("a client");
    let rows = Rows::written(&orders, KEYS).await;
    let backup = cluster.directory().join("monday").display().to_string();
    cluster.done(&["backup", "create", "--to", &backup]);
    rows.spoil(&orders).await;
    (backup, rows)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runbook_restores_a_table_in_place() {
    let mut cluster = Cluster::start_whole(EXE, &options());
    let (backup, rows) = backed_up(&cluster).await;
    let coordinators = cluster.coordinator_list();
    let mut programs = Programs::new("orders", coordinators);
    programs.obey("start");
    let kept = cluster.directory().join("kept").display().to_string();
    let mut operator = Operator::new(EXE, &mut cluster, &[("BACKUP", backup), ("KEPT", kept.clone())])
        .with_programs(|order| programs.obey(order));
    operator.follow("restore.md", &["## One table, where it was"]);
    operator.order_programs("stop");
    drop(operator);
    let [before, after] = &programs.reports[..] else { panic!("they were stopped and started once") };
    [before, after].into_iter().for_each(LoadReport::assert_no_failure);
    let orders = cluster.client().table("orders").build().await.expect("a client");
    rows.assert_there(&orders).await;
    assert_eq!(after.missing(&orders).await, Vec::<String>::new());
    // No row written meanwhile is in the table, and all of them are in the kept one.
    assert_eq!(before.missing(&orders).await.len(), before.acknowledged.len());
    cluster.done(&["backup", "restore", &kept, "--table", "orders", "--as", "kept"]);
    let kept = cluster.client().table("kept").build().await.expect("a client");
    assert_eq!(before.missing(&kept).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runbook_restores_all_tables_in_a_new_cluster() {
    let mut cluster = Cluster::start_whole(EXE, &options());
    let (backup, rows) = backed_up(&cluster).await;
    cluster.kill_everything();
    let new = addresses(["A:7101", "B:7101", "C:7101", "A:7201", "B:7201", "C:7201"]);
    let coordinators: Vec<String> = new[..3].iter().map(|(_, address)| address.clone()).collect();
    let coordinators = coordinators.join(",");
    let places = [new, vec![("BACKUP", backup)]].concat();
    let mut programs = Programs::new("orders", coordinators.clone());
    let mut operator = Operator::new(EXE, &mut cluster, &places).with_programs(|order| programs.obey(order));
    operator.follow("restore.md", &["## All tables, in a new cluster"]);
    assert_eq!(holders(operator.cluster, &coordinators), ["athens", "byzantium", "cyrene"]);
    let orders = Client::builder(coordinators.split(',')).table("orders").build().await.expect("a client");
    rows.assert_there(&orders).await;
    operator.order_programs("stop");
    drop(operator);
    programs.reports[0].assert_no_failure();
}

/// Returns the versions named by an upgrade runbook.
fn releases() -> BTreeMap<String, Release> {
    [("OLD".to_owned(), Release::speaking(1)), ("NEW".to_owned(), Release::default())].into()
}

fn protocol(cluster: &Cluster) -> Value {
    cluster.json(&["upgrade", "status"]).expect("upgrade status")["protocol"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runbook_for_upgrade_works() {
    let old = Options { release: Some(Release::speaking(1)), ..options() };
    let (mut cluster, client, rows) = started(&old).await;
    let load = Load::start(&client, "upgrade", 4);
    assert_eq!(protocol(&cluster), 1);
    let mut operator = Operator::new(EXE, &mut cluster, &[]);
    operator.releases = releases();
    operator.follow("upgrade.md", &["## Member by member"]);
    assert_eq!(protocol(operator.cluster), 2);
    let report = load.stop().await;
    report.assert_no_failure();
    println!("longest gap of a writer: {:?} over {} operations", report.longest_gap, report.operations);
    rows.assert_there(&client).await;
    operator.follow("upgrade.md", &["## To try the new version first"]);
    assert_eq!(operator.cluster.json(&["upgrade", "status"]).expect("upgrade status")["held"], false);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runbook_for_rollback_works() {
    let old = Options { release: Some(Release::speaking(1)), ..options() };
    let (mut cluster, client, rows) = started(&old).await;
    // All but one node run the new version.
    for index in 0..3 {
        assert!(cluster.take_coordinator(index).terminate(TIMEOUT).success());
        cluster.install(&format!("coordinator-{}", index + 1), &Release::default());
        cluster.start_coordinator(index);
        cluster.wait_leader();
    }
    for node in ["athens", "byzantium"] {
        assert!(cluster.take_node(node).terminate(TIMEOUT).success());
        cluster.install(node, &Release::default());
        cluster.start_node(node);
        cluster.wait_whole(3);
    }
    let mut operator = Operator::new(EXE, &mut cluster, &[]);
    operator.releases = releases();
    operator.follow("upgrade.md", &["## Back to the version before"]);
    let status = operator.cluster.json(&["upgrade", "status"]).expect("upgrade status");
    assert_eq!((&status["protocol"], &status["protocol_newest"]), (&1.into(), &1.into()), "{status}");
    rows.assert_there(&client).await;
}
