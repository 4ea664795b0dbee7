//! Incremental backups, which take over unchanged files of an earlier one, on real processes.

use crate::EXE;
use archon_client::Client;
use archon_integration_tests::{Cluster, Options, ProcessExt};
use archon_testkit::wait_for;
use archon_types::{partition_of, slot_of};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);
const KEYS: usize = 40;
const PARTITIONS: u32 = 8;

fn in_directory(directory: &Path, name: &str) -> String {
    directory.join(name).to_str().expect("UTF-8").to_owned()
}

/// Starts a cluster with rows in a hashed table and in one by ranges, and a lease table.
async fn with_rows() -> (Cluster, Client, Client) {
    let options = Options { coordinators: 1, nodes: vec!["delos"], partitions: 4, nodes_min: 1, ..Options::default() };
    let cluster = Cluster::start(EXE, &options);
    cluster.done(&["table", "create", "orders", "--partitions", &PARTITIONS.to_string(), "--replication", "1"]);
    cluster.done(&["table", "create", "times", "--range", "--split-at", "key/2", "--replication", "1"]);
    cluster.done(&["table", "create", "jobs", "--partitions", "4", "--lease"]);
    let orders = cluster.client().table("orders").timeout(TIMEOUT).build().await.expect("a client");
    let times = orders.table("times").await.expect("a client");
    for number in 0..KEYS {
        for client in [&orders, &times] {
            client.put(format!("key/{number:02}"), vec![7; 8 * 1024]).await.expect("a put");
        }
    }
    (cluster, orders, times)
}

fn data(backup: &str) -> BTreeSet<PathBuf> {
    let listed = fs::read_dir(Path::new(backup).join("data")).expect("a directory");
    listed.map(|entry| entry.expect("an entry").path()).collect()
}

fn refused(cluster: &Cluster, arguments: &[&str], says: &str) {
    let ran = cluster.archon(arguments);
    assert!(ran.code == 4 && ran.stderr.contains(says), "{arguments:?}: {}{}", ran.stdout, ran.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn incremental_backup_takes_over_unchanged_partitions() {
    let (mut cluster, orders, times) = with_rows().await;
    let kept = tempfile::tempdir().expect("a directory");
    let [monday, tuesday, wednesday] = ["monday", "tuesday", "wednesday"].map(|name| in_directory(kept.path(), name));
    let first = cluster.json(&["backup", "create", "--to", &monday]).expect("a backup");
    assert_eq!((&first["files_taken_over"], &first["files_total"]), (&0.into(), &14.into()), "{first}");

    // Nothing was written to the partitions of `default`; in each of the others one row was deleted or overwritten.
    orders.put("key/07", "newer").await.expect("a put");
    times.delete("key/30").await.expect("a delete");
    let second = cluster.json(&["backup", "create", "--to", &tuesday, "--since", &monday]).expect("a backup");
    assert_eq!((&second["files_taken_over"], &second["files_total"]), (&12.into(), &14.into()), "{second}");
    let manifest = cluster.json(&["backup", "show", &monday]).expect("a manifest");
    let files = |table: usize| manifest["tables"][table]["pieces"].as_array().cloned().unwrap_or_default();
    let changed = partition_of(slot_of(b"key/07"), PARTITIONS);
    let bytes = |piece: &Value| piece["file_bytes"].as_u64().expect("bytes");
    let at = |name: &str| {
        let tables = manifest["tables"].as_array().into_iter().flatten();
        tables.enumerate().find(|(_, table)| table["table"] == name).expect("a table").0
    };
    let of_orders = files(at("orders")).iter().filter(|piece| piece["partition"] != changed).map(bytes).sum::<u64>();
    let saved = files(at("default")).iter().map(bytes).sum::<u64>() + of_orders + bytes(&files(at("times"))[0]);
    assert_eq!(second["bytes_taken_over"], saved, "{second}");

    // It is self-contained.
    fs::remove_dir_all(&monday).expect("the earlier one goes");
    let verified = cluster.json(&["backup", "verify", &tuesday]).expect("it is as it was written");
    assert_eq!(verified["entries_total"], 2 * KEYS - 1, "{verified}");
    for (table, changed, value) in [("orders", "key/07", Some(b"newer".to_vec())), ("times", "key/30", None)] {
        let restored = format!("{table}_restored");
        cluster.done(&["backup", "restore", &tuesday, "--table", table, "--as", &restored]);
        let client = orders.table(&restored).await.expect("a client");
        for number in 0..KEYS {
            let key = format!("key/{number:02}");
            let expected = if key == changed { value.clone() } else { Some(vec![7; 8 * 1024]) };
            let found = client.get(&key).await.expect("a get").map(|found| found.value.to_vec());
            assert!(found == expected, "{key} of {table}");
        }
        cluster.done(&["table", "drop", &restored, "--yes"]);
    }

    // A split divides the keys, a recreated table is another one, and a restart of the node changes nothing.
    cluster.done(&["partition", "split", "1", "--table", "times", "--at", "key/3", "--wait"]);
    cluster.done(&["table", "drop", "orders", "--yes"]);
    cluster.done(&["table", "create", "orders", "--partitions", &PARTITIONS.to_string(), "--replication", "1"]);
    assert!(cluster.take_node("delos").terminate(TIMEOUT).success());
    cluster.start_node("delos");
    for (table, partitions) in [("default", 4), ("orders", 8), ("times", 3)] {
        cluster.wait_json("the table to be served", TIMEOUT, &["partition", "list", "--table", table], |listed| {
            let rows = listed.as_array();
            rows.is_some_and(|rows| rows.len() == partitions && rows.iter().all(|row| row["status"] == "online"))
        });
    }
    let third = cluster.json(&["backup", "create", "--to", &wednesday, "--since", &tuesday]).expect("a backup");
    println!("after a restart: {third}");
    assert_eq!(third["files_total"], 15, "{third}");
    cluster.done(&["backup", "verify", &wednesday]);
    let shown = cluster.archon(&["backup", "create", "--to", &in_directory(kept.path(), "x"), "--since", &wednesday]);
    assert!(shown.stdout.contains("reused from"), "{shown:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unusable_base_backup_is_not_used() {
    let (cluster, ..) = with_rows().await;
    let kept = tempfile::tempdir().expect("a directory");
    let [monday, to] = ["monday", "to"].map(|name| in_directory(kept.path(), name));
    let create = ["backup", "create", "--to", &to, "--since", &monday];
    refused(&cluster, &create, "holds no finished backup");
    cluster.done(&["backup", "create", "--to", &monday, "--table", "orders"]);
    refused(&cluster, &["backup", "create", "--to", &to, "--since", &monday, "--table", "times"], "none of the tables");
    for file in data(&monday) {
        let whole = fs::read(&file).expect("a file");
        let mut damaged = whole.clone();
        damaged[whole.len() / 2] ^= 4;
        for content in [&damaged[..], &whole[..whole.len() - 1]] {
            let _ = fs::remove_dir_all(&to);
            fs::write(&file, content).expect("damage");
            let name = file.file_name().and_then(|name| name.to_str()).expect("a name");
            refused(&cluster, &create, name);
        }
        // A new file: the begun backup may have the other one.
        fs::remove_file(&file).expect("removed");
        fs::write(&file, &whole).expect("mended");
    }
    let taken = cluster.json(&create).expect("it goes on with what is done");
    assert_eq!(taken["files_taken_over"], PARTITIONS, "{taken}");
    cluster.done(&["backup", "verify", &to]);
    let manifest = Path::new(&monday).join("manifest.json");
    let mut damaged = fs::read(&manifest).expect("a manifest");
    damaged[40] ^= 4;
    fs::write(&manifest, damaged).expect("damage");
    let other = in_directory(kept.path(), "other");
    refused(&cluster, &["backup", "create", "--to", &other, "--since", &monday], "manifest.json is damaged");

    let options = Options { coordinators: 1, nodes: vec!["delos"], partitions: 4, nodes_min: 1, ..Options::default() };
    drop(cluster);
    let stranger = Cluster::start(EXE, &options);
    wait_for("the other cluster to serve", TIMEOUT, || stranger.json(&["kv", "put", "a", "b"]));
    refused(&stranger, &["backup", "create", "--to", &other, "--since", &to], "it is of cluster");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn base_backup_of_another_generation_is_not_used() {
    let (mut cluster, orders, _) = with_rows().await;
    let kept = tempfile::tempdir().expect("a directory");
    let [monday, tuesday] = ["monday", "tuesday"].map(|name| in_directory(kept.path(), name));
    cluster.done(&["backup", "create", "--to", &monday]);
    assert!(cluster.take_coordinator(0).terminate(TIMEOUT).success());
    let (into, old) = (cluster.directory().join("coordinator-1"), cluster.directory().join("old"));
    fs::rename(&into, &old).expect("the directory moves");
    let (from, into) = (old.display().to_string(), into.display().to_string());
    let address = cluster.coordinator_addresses()[0].clone();
    let recover = ["quorum", "recover", "--from", &from, "--into", &into, "--id", "1", "--address", &address];
    cluster.done(&[&recover[..], &["--accept-data-loss"]].concat());
    cluster.start_coordinator(0);
    cluster.wait_json("the recovery to end", TIMEOUT, &["quorum", "list"], |quorum| quorum["recovery"].is_null());
    orders.put("key/07", "newer").await.expect("a put");
    refused(&cluster, &["backup", "create", "--to", &tuesday, "--since", &monday], "it is of generation 1");
}
