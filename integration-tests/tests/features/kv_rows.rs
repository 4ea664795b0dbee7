//! `archon kv export` and `import` on a real cluster: a table's rows survive, and errors are reported without a partial
//! loss.

use crate::EXE;
use archon_client::Client;
use archon_integration_tests::cluster::TIMEOUT;
use archon_integration_tests::{Cluster, Options};
use archon_testkit::{check, wait_for};
use futures::TryStreamExt as _;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Stdio;

fn text(path: &Path) -> &str {
    path.to_str().expect("paths of tests are text")
}

/// Creates tables; each is served on return.
fn with_tables(options: &Options, tables: &[&[&str]]) -> Cluster {
    let cluster = Cluster::start(EXE, options);
    for arguments in tables {
        cluster.done(&[&["table", "create"], *arguments].concat());
        let list = ["partition", "list", "--table", arguments[0]];
        cluster.wait_json("the new table to be served", TIMEOUT, &list, |listed| {
            listed.as_array().is_some_and(|rows| !rows.is_empty() && rows.iter().all(|row| row["status"] == "online"))
        });
    }
    cluster
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Returns all rows of a table, as the client library lists them.
fn rows(cluster: &Cluster, table: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    runtime().block_on(async {
        let client = cluster.client().table(table).build().await.expect("a client");
        let found = client.scan("").entries().map_ok(|entry| (entry.key.to_vec(), entry.value.to_vec()));
        found.try_collect().await.expect("a scan")
    })
}

async fn put(client: &Client, key: &str, value: &[u8]) {
    client.put(key, value.to_vec()).await.expect("written");
}

#[test]
fn export_and_import_copy_a_table() {
    let tables: [&[&str]; 3] = [
        &["by-range", "--range", "--split-at", "k/2,m", "--replication", "1"],
        &["csv", "--partitions", "4", "--replication", "1"],
        &["piped", "--partitions", "4", "--replication", "1"],
    ];
    let cluster = with_tables(&Options { coordinators: 1, ..Options::default() }, &tables);
    runtime().block_on(async {
        let client = cluster.client().build().await.expect("a client");
        for number in 0..700 {
            put(&client, &format!("k/{number}"), format!("value {number}").as_bytes()).await;
        }
        put(&client, "empty", b"").await;
        put(&client, "bytes", &(0..=255).collect::<Vec<u8>>()).await;
        put(&client, "lines \"and\", commas\r\n", b"a,\"b\"\r\nc\n").await;
        put(&client, "\u{1f3db} athens", "\u{feff}\u{0}text".as_bytes()).await;
        client.put(b"\xff\0binary", "any key").await.expect("written");
        put(&client, "large", &vec![b'"'; 1024 * 1024]).await;
        client.increment("counter", 41).await.expect("counted");
    });
    let held = rows(&cluster, "default");
    assert_eq!(held.len(), 707);

    let directory = tempfile::tempdir().expect("a directory");
    let (json, csv) = (directory.path().join("rows.jsonl"), directory.path().join("rows.csv"));
    let exported = cluster.json(&["kv", "export", "default", "--to", text(&json)]).expect("exported");
    let length = fs::metadata(&json).expect("a file").len();
    assert_eq!((&exported["rows_written"], &exported["bytes_written"]), (&707.into(), &length.into()));
    let imported = cluster.json(&["kv", "import", "by-range", text(&json)]).expect("imported");
    assert_eq!((&imported["rows_read"], &imported["rows_written"]), (&707.into(), &707.into()));
    assert_eq!(rows(&cluster, "by-range"), held);

    // From a table by ranges, by CSV, and back to JSON lines: the same file.
    cluster.done(&["kv", "export", "by-range", "--to", text(&csv)]);
    assert!(fs::read_to_string(&csv).expect("text").starts_with("key,key_hex,value,value_hex\nbytes,,,000102"));
    cluster.done(&["kv", "import", "csv", text(&csv)]);
    assert_eq!(cluster.done(&["kv", "export", "csv"]), fs::read_to_string(&json).expect("text"));

    let piped =
        cluster.shell("\"$ARCHON\" kv export default --format csv | \"$ARCHON\" kv import piped --format csv").output();
    let piped = piped.expect("a shell");
    assert!(piped.status.success(), "{}", String::from_utf8_lossy(&piped.stderr));
    assert!(String::from_utf8_lossy(&piped.stderr).contains("imported 707 rows"), "{piped:?}");
    assert_eq!(rows(&cluster, "piped"), held);
    // A counter continues from its value.
    assert_eq!(cluster.done(&["kv", "--table", "piped", "incr", "counter"]), "42\n");
    // The output of a scan can be imported.
    let scanned = cluster.json(&["kv", "scan", "k/1"]).expect("a list");
    let lines: Vec<String> = scanned.as_array().expect("a list").iter().map(Value::to_string).collect();
    fs::write(&json, lines.join("\n")).expect("written");
    assert_eq!(cluster.json(&["kv", "import", "csv", text(&json)]).expect("imported")["rows_written"], lines.len());
}

#[test]
fn import_stops_at_a_bad_line_and_reports_written_rows() {
    let mut cluster = with_tables(
        &Options { coordinators: 1, ..Options::default() },
        &[&["orders", "--partitions", "4", "--replication", "1"]],
    );
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("rows.jsonl");
    let line = |number: usize| format!("{{\"key\":\"k/{number:05}\",\"value\":\"{number}\"}}\n");
    let before: String = (0..1_700).map(line).collect();
    let after: String = (1_700..3_000).map(line).collect();
    fs::write(&file, format!("{before}{{\"key\":\"k\",\"valeu\":\"1\"}}\n{after}")).expect("written");

    // A check contacts no server.
    let checked = cluster.archon_at("127.0.0.1:1", &["kv", "import", "orders", text(&file), "--dry-run"]);
    assert_eq!(checked.code, 2, "{}", checked.stderr);
    assert!(
        checked.stderr.contains("line 1701: ") && checked.stderr.contains("nothing was written"),
        "{}",
        checked.stderr
    );
    assert_eq!(rows(&cluster, "orders"), []);

    let ran = cluster.archon(&["kv", "import", "orders", text(&file), "-o", "json"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    let document: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let message = document["error"]["message"].as_str().expect("a message");
    for part in ["rows.jsonl, line 1701: ", "valeu", "imported 1700 rows", "nothing after it"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(rows(&cluster, "orders").len(), 1_700);

    // Of two lines with one key the later one wins, at any distance.
    let twice: String =
        (0..2_000).map(|number| format!("{{\"key\":\"k/{:05}\",\"value\":\"{number}\"}}\n", number % 7)).collect();
    fs::write(&file, twice).expect("written");
    cluster.done(&["kv", "import", "orders", text(&file)]);
    let values = rows(&cluster, "orders").into_iter().take(7).map(|(_, value)| String::from_utf8(value).expect("text"));
    assert_eq!(values.collect::<Vec<_>>(), ["1995", "1996", "1997", "1998", "1999", "1993", "1994"]);

    // A line that the cluster refuses is reported with its number, too.
    cluster.take_node("athens").kill();
    let ran = cluster.archon(&["kv", "import", "orders", text(&file), "--timeout", "300ms"]);
    assert!([5, 6].contains(&ran.code), "{}: {}", ran.code, ran.stderr);
    assert!(ran.stderr.contains("line ") && ran.stderr.contains("it was not written: "), "{}", ran.stderr);
    cluster.start_node("athens");
    cluster.wait_online();

    // A missing table is reported before anything is read.
    let none = cluster.archon(&["kv", "import", "nothing", text(&file)]);
    assert_eq!(none.code, 3, "{}", none.stderr);
    assert_eq!(cluster.archon(&["kv", "import", "orders", "/not/there"]).code, 2);
    assert_eq!(cluster.archon(&["kv", "export", "orders", "-o", "json"]).code, 2);
    let nowhere = cluster.archon(&["kv", "export", "orders", "--to", "/not/there/rows.csv"]);
    assert!(nowhere.code == 1 && nowhere.stderr.contains("/not/there/rows.csv"), "{}", nowhere.stderr);
}

#[test]
fn broken_pipe_ends_export_quietly_and_import_with_error() {
    let tables: [&[&str]; 2] =
        [&["copy", "--partitions", "4", "--replication", "1"], &["slow", "--partitions", "4", "--replication", "1"]];
    let cluster = with_tables(&Options { coordinators: 1, ..Options::default() }, &tables);
    runtime().block_on(async {
        let client = cluster.client().build().await.expect("a client");
        for number in 0..40 {
            put(&client, &format!("k/{number:02}"), &vec![b'v'; 64 * 1024]).await;
        }
    });
    // The reader of the export exits early.
    let mut command = cluster.shell("exec \"$ARCHON\" kv export default");
    let mut export = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a shell");
    let mut head = vec![0; 100];
    let mut out = export.stdout.take().expect("piped");
    out.read_exact(&mut head).expect("the first row");
    drop(out);
    let ended = export.wait_with_output().expect("it ends");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(!String::from_utf8_lossy(&ended.stderr).contains("error"), "{ended:?}");

    // Ctrl-C ends an import that waits for its pipe, and the written rows are reported.
    let mut command = cluster.shell("exec \"$ARCHON\" kv import slow");
    let mut import = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a shell");
    let mut rows_of = import.stdin.take().expect("piped");
    let line = |number: usize| format!("{{\"key\":\"i/{number}\",\"value\":\"v\"}}\n");
    rows_of.write_all((0..700).map(line).collect::<String>().as_bytes()).expect("written");
    wait_for("the first part to be written", TIMEOUT, || {
        let held = rows(&cluster, "slow").len();
        check(held == 500, || format!("{held} rows"))
    });
    let process = Pid::from_child(&import);
    kill_process(process, Signal::INT).expect("it runs");
    let ended = import.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("interrupted; imported 500 rows"), "{said}");

    // The writer of the import exits early: a truncated value is not taken for a whole one.
    for (format, line) in [("csv", 6), ("jsonl", 5)] {
        let script = format!(
            "\"$ARCHON\" kv export default --format {format} | head -c 300000 | \"$ARCHON\" kv import copy --format {format}"
        );
        let ran = cluster.shell(&script).output().expect("a shell");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("line {line}: ")) && said.contains("imported 4 rows"), "{said}");
        let held = rows(&cluster, "copy");
        assert!(held.len() == 4 && held.iter().all(|(_, value)| value.len() == 64 * 1024), "{}", held.len());
    }
}
