//! Keys that are not UTF-8, by every interface of a cluster of real processes.

use crate::EXE;
use crate::redis::{NODES, ok, options, start};
use crate::redis_client::{ClusterClient, Reply};
use archon_integration_tests::cluster::TIMEOUT;
use archon_integration_tests::{Cluster, Options, http};
use archon_types::hex;
use serde_json::{Value, json};
use std::fs;

/// A key as Java's serialization writes it, with a hash tag.
const KEY: &[u8] = b"\xac\xed\x00\x05{\xff}cart";
const OTHER: &[u8] = b"{\xff}\xfe";

/// Returns the status and the body of a `GET`.
fn get(address: &str, path: &str) -> (u16, String) {
    let answer = http::get(address, path).expect("an answer");
    (answer.status, answer.body)
}

#[test]
fn binary_keys_are_the_same_at_every_interface() {
    let cluster = start(&Options { consoles: true, ..options(NODES) });
    let mut redis = ClusterClient::new(cluster.redis_address("athens"));
    assert_eq!(redis.ask_until_answered(&[&b"SET"[..], KEY, b"one"]), ok());
    assert_eq!(redis.ask_until_answered(&[&b"MSET"[..], KEY, b"two", OTHER, b"three"]), ok());
    let both = [Reply::bulk("two"), Reply::bulk("three")];
    assert_eq!(redis.ask_until_answered(&[&b"MGET"[..], KEY, OTHER]).array(), both);

    // The command line, in text, in hexadecimal digits, and as documents.
    assert_eq!(cluster.done(&["kv", "--hex", "get", &hex::encode(KEY)]), "two");
    let found = cluster.json(&["kv", "get", "--hex", &hex::encode(KEY)]).expect("a document");
    assert_eq!(found["key"], json!({"hex": hex::encode(KEY)}));
    let listed = cluster.json(&["kv", "scan"]).expect("a list");
    let keys: Vec<&Value> = listed.as_array().into_iter().flatten().map(|row| &row["key"]).collect();
    assert_eq!(keys, [&json!({"hex": hex::encode(OTHER)}), &json!({"hex": hex::encode(KEY)})]);
    let table = cluster.done(&["kv", "scan"]);
    assert!(table.contains(r"\xac\xed\0\u{5}{\xff}cart") && table.is_ascii(), "{table}");
    let page = cluster.done(&["kv", "scan", "--hex", "aced", "--limit", "5"]);
    assert!(page.contains(&hex::encode(KEY)) && !page.contains(&hex::encode(OTHER)), "{page}");
    cluster.done(&["kv", "--hex", "put", &hex::encode(OTHER), "four"]);
    assert_eq!(redis.ask_until_answered(&[&b"GET"[..], OTHER]), Reply::bulk("four"));
    let located = cluster.json(&["partition", "locate", "--hex", &hex::encode(KEY)]).expect("a document");
    let slot =
        cluster.json(&["partition", "locate", "--hex", &hex::encode(OTHER)]).expect("a document")["slot"].clone();
    assert_eq!((&located["key"], &located["slot"]), (&json!({"hex": hex::encode(KEY)}), &slot), "they have one tag");

    // HTTP.
    let at = cluster.console_address(0);
    let percent = |key: &[u8]| key.iter().map(|byte| format!("%{byte:02X}")).collect::<String>();
    assert_eq!(get(at, &format!("/api/v1/rows/default/{}", percent(KEY))), (200, "two".to_owned()));
    let (status, rows) = get(at, &format!("/api/v1/rows/default?prefix={}", percent(&KEY[..2])));
    let rows: Value = serde_json::from_str(&rows).expect("a document");
    assert_eq!(
        (status, &rows["rows"][0]["key"], &rows["rows"][1]),
        (200, &json!({"hex": hex::encode(KEY)}), &Value::Null)
    );
    assert_eq!(get(at, "/api/v1/rows/default/%FF%FE").0, 404);

    assert_eq!(redis.ask_until_answered(&[&b"DEL"[..], KEY, OTHER]), Reply::Integer(2));
    let absent = cluster.archon(&["kv", "get", "--hex", &hex::encode(KEY)]);
    assert!(absent.code == 3 && absent.stderr.contains(r#"key "\xac\xed"#), "{}", absent.stderr);
}

#[test]
fn range_table_is_split_at_binary_keys() {
    let cluster = Cluster::start(EXE, &Options { coordinators: 1, ..Options::default() });
    let create = ["table", "create", "times", "--range", "--hex", "--split-at", "80,ff00", "--replication", "1"];
    cluster.done(&create);
    let list = ["partition", "list", "--table", "times"];
    cluster.wait_json("the table to be served", TIMEOUT, &list, |listed| {
        listed.as_array().is_some_and(|rows| rows.len() == 3 && rows.iter().all(|row| row["status"] == "online"))
    });
    let listed = cluster.done(&list);
    assert!(listed.contains(r"\x80") && listed.contains(r"\xff\0") && listed.is_ascii(), "{listed}");
    for key in ["00", "7fff", "80", "ff", "ff00", "ffff"] {
        cluster.done(&["kv", "--table", "times", "--hex", "put", key, key]);
    }
    cluster.done(&["partition", "split", "0", "--table", "times", "--at", "40ff", "--hex", "--wait"]);
    let described = cluster.json(&["partition", "describe", "0", "--table", "times"]).expect("a document");
    assert_eq!(described["range"], json!({"begin": "", "end": {"hex": "40ff"}}));
    let events = cluster.done(&["events"]);
    assert!(events.contains(r#"the keys from "@\xff" on"#), "{events}");

    // Exports keep keys, and a backup restores them.
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_str().expect("a path").to_owned();
    let (rows, csv, backup) = (path("rows.jsonl"), path("rows.csv"), path("backup"));
    cluster.done(&["kv", "export", "times", "--to", &rows]);
    assert!(fs::read_to_string(&rows).expect("text").contains(r#"{"key":{"hex":"ff00"},"value":"ff00"}"#));
    cluster.done(&["kv", "export", "times", "--to", &csv]);
    cluster.done(&["kv", "import", "default", &csv]);
    assert_eq!(cluster.done(&["kv", "export", "default"]), fs::read_to_string(&rows).expect("text"));
    cluster.done(&["backup", "create", "--to", &backup, "--table", "times"]);
    cluster.done(&["table", "drop", "times", "--yes"]);
    cluster.done(&["backup", "restore", &backup]);
    assert_eq!(cluster.done(&["kv", "export", "times"]), fs::read_to_string(&rows).expect("text"));
}
