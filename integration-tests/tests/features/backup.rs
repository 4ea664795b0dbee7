//! Backups on real processes: taken under load while nodes die and partitions are split, restored into another cluster,
//! refused when obstructed.

use crate::EXE;
use archon_client::{Client, Role};
use archon_integration_tests::{Cluster, Options, Process, ProcessExt};
use archon_testkit::wait_for;
use archon_types::{partition_of, slot_of};
use futures::TryStreamExt as _;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

const TIMEOUT: Duration = Duration::from_secs(60);
const BACKUP_TIMEOUT: Duration = Duration::from_secs(180);

/// Writers of each table, each with keys of its own that are all in one partition.
const WRITERS: usize = 8;
/// Number of latest values that each writer keeps.
const WINDOW: u64 = 100;
/// Pause of a writer after each number, once it deletes: at full speed the writers would take the machine from the backup.
const PAUSE: Duration = Duration::from_millis(20);
/// Values that make reading a partition take a while.
const FILLERS: usize = 8;
const FILLER_BYTES: usize = 128 * 1024;

/// Returns the key prefix: in a table by ranges in order of writers, in a hashed table with a tag.
fn prefix(table: &str, writer: usize) -> String {
    if table == "times" { format!("w{writer}/") } else { format!("{{w{writer}}}/") }
}

/// Writers that run in one table until stopped: each writes its next number, then records it as its last, then deletes
/// the number `WINDOW` earlier.
struct TableWriters {
    runtime: Runtime,
    stop: Arc<AtomicBool>,
    /// Last acknowledged number of each writer.
    acknowledged: Arc<[AtomicU64; WRITERS]>,
    tasks: Vec<JoinHandle<u64>>,
}

impl TableWriters {
    fn begin(cluster: &Cluster, table: &'static str) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let client = cluster.client().table(table);
        let client = runtime.block_on(client.build()).expect("a client");
        let fill = async {
            for (writer, filler) in (0..WRITERS).flat_map(|writer| (0..FILLERS).map(move |filler| (writer, filler))) {
                let key = format!("{}fill-{filler}", prefix(table, writer));
                client.put(key, vec![filler as u8; FILLER_BYTES]).await.expect("a put");
            }
        };
        runtime.block_on(fill);
        let (stop, acknowledged): (Arc<AtomicBool>, Arc<[AtomicU64; WRITERS]>) = Default::default();
        let task = |writer| {
            runtime.spawn(write(
                client.clone(),
                prefix(table, writer),
                writer,
                Arc::clone(&stop),
                Arc::clone(&acknowledged),
            ))
        };
        let tasks = (0..WRITERS).map(task).collect();
        let writing = Self { runtime, stop, acknowledged, tasks };
        wait_for("the writers to delete, too", TIMEOUT, || {
            let now = writing.acknowledged();
            if now.iter().all(|number| *number > WINDOW) { Ok(()) } else { Err(format!("{now:?}")) }
        });
        writing
    }

    fn acknowledged(&self) -> Vec<u64> {
        self.acknowledged.iter().map(|number| number.load(Ordering::SeqCst)).collect()
    }

    /// Stops the writers; returns the last number that each tried.
    fn end(self) -> Vec<u64> {
        self.stop.store(true, Ordering::SeqCst);
        self.tasks.into_iter().map(|task| self.runtime.block_on(task).expect("no panic")).collect()
    }
}

async fn write(
    client: Client,
    prefix: String,
    writer: usize,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<[AtomicU64; WRITERS]>,
) -> u64 {
    let mut number = 0;
    while !stop.load(Ordering::SeqCst) {
        number += 1;
        // Repeating the write is harmless, so no outcome stays unknown.
        while client.put(format!("{prefix}{number:08}"), number.to_string()).await.is_err() {}
        while client.put(format!("{prefix}last"), number.to_string()).await.is_err() {}
        acknowledged[writer].store(number, Ordering::SeqCst);
        if number > WINDOW {
            while client.delete(format!("{prefix}{:08}", number - WINDOW)).await.is_err() {}
            tokio::time::sleep(PAUSE).await;
        }
    }
    number
}

/// Asserts that the table contains of each writer its state at some moment between `acknowledged` and `tried`.
fn check_prefixes(cluster: &Cluster, restored: &str, table: &str, acknowledged: &[u64], tried: &[u64]) {
    let runtime = Runtime::new().expect("a runtime");
    let client = cluster.client().table(restored).timeout(TIMEOUT);
    let client = runtime.block_on(client.build()).expect("a client");
    let entries: Vec<_> = runtime.block_on(client.scan("").entries().try_collect()).expect("all entries");
    let mut found: BTreeMap<String, Vec<u8>> = entries
        .into_iter()
        .map(|entry| (String::from_utf8_lossy(&entry.key).into_owned(), entry.value.to_vec()))
        .collect();
    for writer in 0..WRITERS {
        let prefix = prefix(table, writer);
        for filler in 0..FILLERS {
            let value = found.remove(&format!("{prefix}fill-{filler}"));
            assert_eq!(value, Some(vec![filler as u8; FILLER_BYTES]), "{restored}: filler {filler} of writer {writer}");
        }
        let text = |value: Vec<u8>| String::from_utf8_lossy(&value).parse::<u64>().expect("a number");
        let last = found.remove(&format!("{prefix}last")).map(text).expect("every writer had written");
        let of_writer = |key: &String| key.starts_with(&prefix);
        let keys: Vec<String> = found.keys().filter(|key| of_writer(key)).cloned().collect();
        let numbers: Vec<u64> = keys.iter().filter_map(|key| found.remove(key).map(text)).collect();
        let (least, most) = (numbers[0], numbers[numbers.len() - 1]);
        let told = format!("{restored}: writer {writer} has {least} to {most}, its last is {last}, {numbers:?}");
        assert_eq!(numbers, (least..=most).collect::<Vec<_>>(), "no gaps: {told}");
        assert!((acknowledged[writer]..=tried[writer]).contains(&most), "{acknowledged:?} {tried:?}: {told}");
        // States between the three writes of a round, in their order.
        let states = [(most - 1, most - WINDOW), (most, most - WINDOW), (most, most - WINDOW + 1)];
        assert!(states.contains(&(last, least)), "{told}");
    }
    assert!(found.is_empty(), "what nobody wrote: {:?}", found.keys());
}

fn in_directory(directory: &Path, name: &str) -> String {
    directory.join(name).to_str().expect("UTF-8").to_owned()
}

/// Starts `archon backup create`.
fn begin_backup(cluster: &Cluster, to: &str, flags: &[&str]) -> Process {
    let name = Path::new(to).file_name().and_then(|name| name.to_str()).expect("a name");
    begin(cluster, &format!("backup-{name}"), &[&["backup", "create", "--to", to], flags].concat())
}

/// Starts a command.
fn begin(cluster: &Cluster, name: &str, words: &[&str]) -> Process {
    let coordinators = cluster.coordinator_list();
    let arguments = [words, &["--coordinators", &coordinators, "--timeout", "20s"]].concat();
    let mut arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
    if std::env::var_os("ARCHON_TEST_TLS").is_some() {
        let credentials = cluster.credentials(Role::Admin, "backups");
        arguments.extend(["--tls-dir".to_owned(), credentials.to_str().expect("UTF-8").to_owned()]);
    }
    cluster.spawn(name, &arguments)
}

fn end_backup(mut backup: Process) {
    let ended = backup.wait_exit(BACKUP_TIMEOUT);
    assert!(ended.success(), "{ended}: {}", backup.log());
}

fn files(directory: &str, folder: &str) -> BTreeSet<PathBuf> {
    let listed = fs::read_dir(Path::new(directory).join(folder)).into_iter().flatten();
    listed.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

#[test]
fn backup_under_load_restores_a_committed_prefix() {
    let options = Options {
        coordinators: 1,
        nodes: vec!["athens", "byzantium", "cyrene"],
        partitions: 8,
        ..Options::replicated()
    };
    let mut cluster = Cluster::start(EXE, &options);
    cluster.wait_whole(3);
    cluster.done(&["table", "create", "times", "--range", "--split-at", "w4", "--replication", "3"]);
    cluster.done(&["table", "create", "jobs", "--partitions", "4", "--lease"]);
    cluster.wait_settled("times", "the table to be served", TIMEOUT, |rows| rows.len() == 2);
    let kept = tempfile::tempdir().expect("a directory");
    let [one, other] = ["one", "other"].map(|name| in_directory(kept.path(), name));
    let writing = ["times", "default"].map(|table| TableWriters::begin(&cluster, table));
    let acknowledged = writing.each_ref().map(TableWriters::acknowledged);

    // Each backup flushes committed rows to the storage engine when it begins, under the other one.
    let mut backups = [&one, &other].map(|to| begin_backup(&cluster, to, &["--max-rate", "1MiB"]));
    wait_for("the backups to have come to some part", BACKUP_TIMEOUT, || {
        let done = [&one, &other].map(|to| files(to, "journal").len());
        if done.iter().all(|done| *done > 0) { Ok(()) } else { Err(format!("{done:?}")) }
    });
    cluster.done(&["partition", "split", "1", "--table", "times", "--at", "w6", "--wait"]);
    cluster.wait_settled("times", "the parts to be served", TIMEOUT, |rows| rows.len() == 3);
    cluster.done(&["partition", "merge", "0", "--table", "times", "--wait", "--timeout", "20s"]);
    let leader = cluster.partitions("default")[7]["leader"].as_str().expect("led").to_owned();
    cluster.take_node(&leader).kill();
    cluster.start_node(&leader);
    let under_way = backups.each_mut().map(|backup| backup.exited().is_none());
    println!("after a split, a merge and a killed node these go on: {under_way:?}");
    backups.into_iter().for_each(end_backup);
    let tried = writing.map(TableWriters::end);
    drop(cluster);

    let options = Options { coordinators: 1, nodes: vec!["delos"], partitions: 3, nodes_min: 1, ..Options::default() };
    let cluster = Cluster::start(EXE, &options);
    for (number, backup) in [&one, &other].into_iter().enumerate() {
        let verified = cluster.json(&["backup", "verify", backup]).expect("it is as it was written");
        assert_eq!(verified["tables_total"], 3, "{verified}");
        for (table, acknowledged, tried) in
            [("times", &acknowledged[0], &tried[0]), ("default", &acknowledged[1], &tried[1])]
        {
            let restored = format!("{table}_{number}");
            let flags = ["--table", table, "--as", &restored, "--replication", "1", "--timeout", "20s"];
            let hashed: &[&str] = if table == "default" { &["--partitions", "5"] } else { &[] };
            cluster.done(&[&["backup", "restore", backup][..], &flags, hashed].concat());
            check_prefixes(&cluster, &restored, table, acknowledged, tried);
        }
    }
    let copies = cluster.archon(&["backup", "restore", &one, "--table", "times", "--as", "x"]);
    assert!(copies.code == 4 && copies.stderr.contains("--replication 1"), "three copies on one node: {copies:?}");
    cluster.done(&["backup", "restore", &one, "--table", "jobs"]);
    let tables = cluster.json(&["table", "list"]).expect("tables");
    let holds = |name: &str| tables.as_array().into_iter().flatten().find(|table| table["table"] == name).cloned();
    assert_eq!(holds("jobs").map(|table| table["holds"].clone()), Some(Value::from("lease")));
    assert_eq!(holds("default_0").map(|table| table["partitions_total"].clone()), Some(Value::from(5)));
}

fn small_cluster() -> Cluster {
    let options = Options { coordinators: 1, nodes: vec!["delos"], partitions: 4, nodes_min: 1, ..Options::default() };
    Cluster::start(EXE, &options)
}

#[test]
fn obstructed_backup_or_restore_changes_nothing() {
    let cluster = small_cluster();
    (0..20).for_each(|number| drop(cluster.done(&["kv", "put", &format!("key/{number}"), "value"])));
    let kept = tempfile::tempdir().expect("a directory");
    let backup = in_directory(kept.path(), "monday");
    let refused = |arguments: &[&str], code: i32, says: &str| {
        let ran = cluster.archon(arguments);
        assert_eq!(ran.code, code, "{arguments:?}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains(says), "{arguments:?}: {}", ran.stderr);
    };
    refused(&["backup", "verify", &backup], 3, "holds no finished backup");
    refused(&["backup", "create", "--to", "ftp://host/monday"], 2, "is not known");
    #[cfg(not(feature = "object-store"))]
    refused(&["backup", "create", "--to", "s3://bucket/monday"], 2, "--features object-store");
    refused(&["backup", "create", "--to", &backup, "--table", "nothing"], 3, "the cluster has no table nothing");
    cluster.done(&["backup", "create", "--to", &backup]);
    refused(&["backup", "create", "--to", &backup], 4, "a finished backup is there");
    refused(&["backup", "create", "--to", &in_directory(kept.path(), "")], 4, "something else is there");
    refused(
        &["backup", "create", "--to", &in_directory(&Path::new(&backup).join("data"), "sub")],
        4,
        "inside the backup",
    );
    let manifest = Path::new(&backup).join("manifest.json");
    refused(&["backup", "verify", &manifest.display().to_string()], 2, "a backup is a directory");
    let aside = Path::new(&backup).join("aside");
    fs::rename(&manifest, &aside).expect("it is lost");
    refused(&["backup", "verify", &backup], 1, "manifest.json is damaged: it is missing");
    fs::rename(&aside, &manifest).expect("it is brought back");

    let tables = cluster.json(&["table", "list"]).expect("tables");
    refused(&["backup", "restore", &backup], 4, "--as default_restored");
    refused(&["backup", "restore", &backup, "--table", "nothing", "--as", "x"], 3, "the backup has no table nothing");
    for file in files(&backup, "data").into_iter().chain([Path::new(&backup).join("manifest.json")]) {
        let whole = fs::read(&file).expect("a file");
        let mut damaged = whole.clone();
        damaged[whole.len() / 2] ^= 4;
        for content in [&damaged[..], &whole[..whole.len() - 1], &[]] {
            fs::write(&file, content).expect("damage");
            let name = file.file_name().and_then(|name| name.to_str()).expect("a name");
            refused(&["backup", "verify", &backup], 1, name);
            refused(&["backup", "restore", &backup, "--table", "default", "--as", "x"], 4, "nothing was restored");
        }
        fs::write(&file, &whole).expect("mended");
    }
    assert_eq!(cluster.json(&["table", "list"]).expect("tables"), tables, "nothing was changed");
    cluster.done(&["backup", "verify", &backup]);
    cluster.done(&["backup", "restore", &backup, "--table", "default", "--as", "x"]);
    let found = cluster.json(&["kv", "scan", "--table", "x"]).expect("keys");
    assert_eq!(found.as_array().map(Vec::len), Some(20));
}

#[test]
fn killed_backup_resumes() {
    let cluster = small_cluster();
    let runtime = Runtime::new().expect("a runtime");
    let client = runtime.block_on(cluster.client().build()).expect("a client");
    for number in 0..16 {
        runtime.block_on(client.put(format!("key/{number}"), vec![7; 512 * 1024])).expect("a put");
    }
    let kept = tempfile::tempdir().expect("a directory");
    let backup = in_directory(kept.path(), "monday");
    let mut killed = begin_backup(&cluster, &backup, &["--max-rate", "1MiB", "--parallel", "1"]);
    wait_for("a piece to be done", TIMEOUT, || {
        let done = files(&backup, "journal").len();
        if done > 0 { Ok(()) } else { Err(killed.log()) }
    });
    killed.kill();
    let done = files(&backup, "journal").len();
    assert!(done < 4, "it was killed before its end");
    let unfinished = cluster.archon(&["backup", "verify", &backup]);
    assert!(unfinished.code == 3 && unfinished.stderr.contains("is unfinished"), "{unfinished:?}");
    let kept_files: Vec<PathBuf> =
        files(&backup, "data").into_iter().filter(|file| file.extension().is_some_and(|of| of == "entries")).collect();
    let written = |file: &PathBuf| fs::metadata(file).and_then(|found| found.modified()).expect("a file");
    let before: Vec<_> = kept_files.iter().map(written).collect();
    cluster.done(&["backup", "create", "--to", &backup]);
    assert_eq!(kept_files.iter().map(written).collect::<Vec<_>>(), before, "what was done stays");
    let manifest = cluster.json(&["backup", "show", &backup]).expect("a manifest");
    assert_eq!(manifest["tables"][0]["pieces"].as_array().map(Vec::len), Some(4), "{manifest}");
    let verified = cluster.json(&["backup", "verify", &backup]).expect("it is as it was written");
    assert_eq!(verified["entries_total"], 16, "{verified}");
    assert_eq!(files(&backup, "data").len(), 4, "nothing else is left");
}

#[test]
fn killed_restore_marks_its_table_and_resumes() {
    const KEYS: usize = 32;
    let cluster = small_cluster();
    cluster.done(&["table", "create", "orders", "--partitions", "16", "--replication", "1"]);
    cluster.done(&["table", "create", "jobs", "--partitions", "4", "--lease"]);
    let runtime = Runtime::new().expect("a runtime");
    let of = |table: &str| runtime.block_on(cluster.client().table(table).build()).expect("a client");
    let orders = of("orders");
    for number in 0..KEYS {
        runtime.block_on(orders.put(format!("key/{number}"), vec![7; 256 * 1024])).expect("a put");
    }
    let kept = tempfile::tempdir().expect("a directory");
    let [backup, other] = ["monday", "tuesday"].map(|name| in_directory(kept.path(), name));
    for to in [&backup, &other] {
        cluster.done(&["backup", "create", "--to", to, "--table", "orders,jobs"]);
    }
    for table in ["orders", "jobs"] {
        cluster.done(&["table", "drop", table, "--yes"]);
    }
    let mut killed = begin(&cluster, "restore", &["backup", "restore", &backup, "--max-rate", "1MiB"]);
    let told = "a restore has not ended";
    // The list of files to write is stored in a row; for a hashed table they are numbered like its partitions.
    let noted = || {
        let rows = cluster.json(&["kv", "scan", "--table", "orders", "--limit", "1"])?;
        let note: Value =
            rows[0]["value"].as_str().and_then(|note| serde_json::from_str(note).ok()).unwrap_or_default();
        let done = note["files_done"].as_str().unwrap_or_default().to_owned();
        let number = |text: &str| text.parse::<u32>().expect("a number");
        let range = |part: &str| {
            part.split_once('-').map_or_else(|| number(part)..=number(part), |(a, b)| number(a)..=number(b))
        };
        let done: BTreeSet<u32> = done.split(',').filter(|part| !part.is_empty()).flat_map(range).collect();
        if done.is_empty() { Err(rows.to_string()) } else { Ok(done) }
    };
    wait_for("a file to be written and noted", TIMEOUT, || noted().map_err(|error| format!("{error}{}", killed.log())));
    killed.kill();

    // Listings and backups report the table as incomplete.
    let refused = |arguments: &[&str], says: &str| {
        let ran = cluster.archon(arguments);
        assert!(ran.code == 4 && ran.stderr.contains(says), "{arguments:?}: {}{}", ran.stdout, ran.stderr);
    };
    let listed = cluster.archon(&["kv", "scan", "--table", "orders", "--limit", "1"]);
    assert!(listed.stdout.contains(told), "{listed:?}");
    refused(&["backup", "restore", &backup, "--table", "orders"], "of 16 files");
    refused(&["backup", "restore", &backup, "--table", "orders"], "--resume");
    refused(&["backup", "restore", &other, "--resume"], "is not its backup");
    refused(
        &["backup", "create", "--to", &in_directory(kept.path(), "half"), "--table", "orders"],
        "table orders is incomplete",
    );
    // Regression: one incomplete table kept all other tables from being backed up.
    let without = cluster.archon(&["backup", "create", "--to", &in_directory(kept.path(), "without")]);
    assert!(without.code == 10 && without.stdout.contains("skipped: table orders"), "{without:?}");
    let held = cluster.json(&["backup", "show", &in_directory(kept.path(), "without")]).expect("a backup");
    let held: Vec<&Value> = held["tables"].as_array().into_iter().flatten().map(|table| &table["table"]).collect();
    assert!(held.contains(&&Value::from("default")) && !held.contains(&&Value::from("orders")), "{held:?}");

    // An unauthorised writer has overwritten some restored rows, and deleted some.
    let (orders, done) = (of("orders"), noted().expect("files that are written"));
    let is_done = |number: usize| done.contains(&partition_of(slot_of(format!("key/{number}").as_bytes()), 16));
    let present: Vec<usize> = (0..KEYS)
        .filter(|number| runtime.block_on(orders.get(format!("key/{number}"))).expect("a get").is_some())
        .collect();
    assert!(!present.is_empty() && present.len() < KEYS, "it was killed in the middle: {present:?}");
    for number in &present {
        let key = format!("key/{number}");
        match is_done(*number) {
            true => drop(runtime.block_on(orders.delete(key)).expect("a delete")),
            false => drop(runtime.block_on(orders.put(key, "newer")).expect("a put")),
        }
    }
    let restored = cluster.json(&["backup", "restore", &backup, "--resume"]).expect("it goes on");
    let orders_restored = restored.as_array().into_iter().flatten().find(|table| table["table"] == "orders");
    assert_eq!(orders_restored.map(|table| &table["entries_total"]), Some(&Value::from(KEYS)), "{restored}");
    for number in 0..KEYS {
        let found = runtime.block_on(orders.get(format!("key/{number}"))).expect("a get");
        let found = found.map(|found| found.value.to_vec());
        let expected = match (is_done(number), present.contains(&number)) {
            (true, _) => None,
            (false, true) => Some(b"newer".to_vec()),
            (false, false) => Some(vec![7; 256 * 1024]),
        };
        assert!(
            found == expected,
            "key/{number} has {:?} bytes, {:?}",
            found.map(|found| found.len()),
            is_done(number)
        );
    }
    let listed = cluster.archon(&["kv", "scan", "--table", "orders", "--limit", "1"]);
    assert!(!listed.stdout.contains(told), "nothing says any more that it is not whole: {listed:?}");
    let tables = cluster.json(&["table", "list"]).expect("tables");
    assert!(tables.as_array().into_iter().flatten().any(|table| table["table"] == "jobs"), "{tables}");
    refused(&["backup", "restore", &backup, "--table", "orders", "--resume"], "exists already");
    cluster.done(&["backup", "restore", &backup, "--table", "orders", "--as", "made_by_resume", "--resume"]);
}
