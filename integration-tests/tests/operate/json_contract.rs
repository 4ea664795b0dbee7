//! Every verb with `-o json` on a real cluster, validated against `docs/reference/json.schema.json`.

use crate::EXE;
use archon_integration_tests::{Cluster, Options, ProcessExt, contract};
use archon_testkit::wait_for;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// Runs verbs, and records which were covered.
struct VerbCoverage<'a> {
    cluster: &'a Cluster,
    verbs: BTreeSet<&'static str>,
}

impl VerbCoverage<'_> {
    /// Runs a verb that ends with `code`, and returns its validated document.
    fn run(&mut self, arguments: &[&str], code: i32) -> Value {
        let verb = contract::verb_of(arguments).unwrap_or_else(|| panic!("{arguments:?} has no document"));
        let ran = self.cluster.archon(&[arguments, &["-o", "json"]].concat());
        assert_eq!(ran.code, code, "{arguments:?}: {}", ran.stderr);
        let document: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
        let name = if document["error"].is_object() { "error" } else { verb };
        contract::check(name, &document).unwrap_or_else(|error| panic!("{error}\n{document:#}"));
        self.verbs.insert(name);
        document
    }

    fn done(&mut self, arguments: &[&str]) -> Value {
        self.run(arguments, 0)
    }
}

/// Waits until every partition of a table is served.
fn wait_served(cluster: &Cluster, table: &str) {
    wait_for("the new table to be served", Duration::from_secs(60), || {
        let rows = cluster.json(&["partition", "list", "--table", table])?;
        let online = |row: &Value| row["status"] == "online";
        if rows.as_array().is_some_and(|rows| rows.iter().all(online)) { Ok(()) } else { Err(rows.to_string()) }
    });
}

/// Runs the verbs that create and read certificate files.
fn certificates(seen: &mut VerbCoverage<'_>, files: &std::path::Path) {
    let file = |name: &str| files.join(name).to_str().expect("UTF-8").to_owned();
    let (ca, athens) = (file("ca"), file("athens"));
    assert_eq!(seen.done(&["cert", "ca", "--out", &ca])["is_authority"], true);
    seen.done(&["cert", "coordinator", "1", "--host", "c1", "--ca", &ca, "--out", &file("c1")]);
    seen.done(&["cert", "node", "athens", "--host", "a", "--ca", &ca, "--out", &athens]);
    for role in ["participant", "client", "operator", "admin"] {
        let made = seen.done(&["cert", role, "x-1", "--ca", &ca, "--out", &file(role)]);
        assert_eq!(made["identity"], format!("{role}/x-1"));
    }
    seen.done(&["cert", "request", "client/shop", "--out", &file("shop")]);
    let signed = seen.done(&["cert", "sign", &file("shop/request.csr"), "--yes", "--ca", &ca]);
    assert_eq!((&signed["identity"], &signed["hosts"]), (&json!("client/shop"), &json!([])));
    assert_eq!(seen.done(&["cert", "show", &athens]).as_array().map(Vec::len), Some(2));
    assert_eq!(seen.done(&["cert", "check", &athens])["authority_ends_soon"], false);
}

/// Runs the backup verbs.
fn backups(seen: &mut VerbCoverage<'_>, directory: &std::path::Path) {
    let backup = directory.join("monday").to_str().expect("UTF-8").to_owned();
    let taken = seen.done(&["backup", "create", "--to", &backup]);
    assert_eq!((&taken["tables_total"], &taken["files_total"]), (&json!(3), &json!(16)), "{taken}");
    let verified = seen.done(&["backup", "verify", &backup]);
    assert!(verified.as_object().is_some_and(|found| found.iter().all(|(key, value)| taken[key] == *value)), "{taken}");
    assert_eq!(seen.done(&["backup", "show", &backup])["tables"][0]["table"], "default");
    assert_eq!(seen.run(&["backup", "restore", &backup], 4)["error"]["kind"], "already_exists");
    let restored = seen.done(&["backup", "restore", &backup, "--table", "single", "--as", "monday"]);
    assert_eq!((&restored[0]["table"], &restored[0]["from_table"]), (&json!("monday"), &json!("single")), "{restored}");
    seen.done(&["table", "drop", "monday", "--yes"]);
}

#[test]
fn every_verb_prints_its_documented_json() {
    let options = Options { partitions: 8, ..Options::replicated() };
    let mut cluster = Cluster::start(EXE, &options);
    cluster.wait_whole(3);
    cluster.wait_protocol(2);
    let mut seen = VerbCoverage { cluster: &cluster, verbs: BTreeSet::new() };

    assert!(seen.done(&["version"])["archon_version"].is_string());

    let files = tempfile::tempdir().expect("a directory");
    certificates(&mut seen, files.path());

    // Keys, including absent ones and binary values.
    seen.done(&["kv", "put", "k", "v"]);
    let found = seen.done(&["kv", "get", "k"]);
    assert_eq!((&found["existed"], &found["value"]), (&json!(true), &json!("v")));
    let revision = found["revision"].to_string();
    seen.done(&["kv", "cas", "k", "w", "--revision", &revision]);
    let failed = seen.run(&["kv", "cas", "k", "x", "--revision", &revision], 4);
    assert_eq!(failed["error"]["kind"], "condition_failed");
    assert_eq!(seen.done(&["kv", "incr", "n"])["value"], "1");
    assert_eq!(seen.run(&["kv", "get", "nothing"], 3), json!({"key": "nothing", "existed": false}));
    assert_eq!(seen.done(&["kv", "del", "k"]), json!({"key": "k", "existed": true}));
    assert_eq!(seen.run(&["kv", "del", "k"], 3), json!({"key": "k", "existed": false}));
    // A batch is unordered: keys it reads exist before.
    seen.done(&["kv", "put", "b", "1"]);
    seen.done(&["kv", "scan"]);
    let directory = tempfile::tempdir().expect("a directory");
    let lines = directory.path().join("lines");
    std::fs::write(&lines, "put a 1\nget b\nget absent\nincr n 2\ndel c\ncas b 1 x\n").expect("written");
    let rows = directory.path().join("rows.csv");
    let rows = rows.to_str().expect("UTF-8");
    assert_eq!(seen.done(&["kv", "export", "default", "--to", rows])["table"], "default");
    assert_eq!(seen.done(&["kv", "import", "default", rows, "--dry-run"])["rows_written"], 0);
    let outcomes = seen.run(&["kv", "batch", lines.to_str().expect("UTF-8")], 4);
    let of = |line: usize, key: &str| outcomes[line][key].clone();
    assert_eq!([of(1, "value"), of(2, "existed"), of(3, "value")], [json!("1"), json!(false), json!("3")]);
    assert_eq!(outcomes[5]["error"]["kind"], "condition_failed");

    // The protocol.
    assert_eq!(seen.done(&["upgrade", "status"])["protocol"], 2);
    assert_eq!(seen.done(&["upgrade", "hold"])["changed"], true);
    assert_eq!(seen.done(&["upgrade", "release"])["changed"], true);
    assert_eq!(seen.done(&["upgrade", "finalize"])["changed"], false);

    // The settings.
    let granted = seen.done(&["access", "grant", "write", "--client", "shop", "--table", "default"]);
    assert_eq!((&granted["granted"], &granted["nodes_behind"]), (&json!("write"), &json!([])));
    let listed = seen.done(&["access", "list", "--client", "shop", "--table", "default"]);
    // With TLS, the cluster starts with a grant of every table to every client.
    let is_listed = listed["rights"].as_array().into_iter().flatten().any(|right| right["table_id"] == 1);
    assert!(listed["may"] == "write" && is_listed, "{listed}");
    let revoked = seen.done(&["access", "revoke", "read", "--client", "shop", "--table", "default"]);
    assert_eq!((&revoked["changed"], &revoked["granted"]), (&json!(true), &Value::Null));
    let withdrawn = seen.done(&["access", "withdraw", "client/shop"]);
    assert!(withdrawn["changed"] == true && withdrawn["withdrawn_now"]["begins_before_at_ms"].is_u64(), "{withdrawn}");
    assert_eq!(seen.done(&["access", "list"])["withdrawn"][0], withdrawn["withdrawn_now"]);
    assert_eq!(seen.done(&["access", "readmit", "client/shop"])["withdrawn_now"], Value::Null);

    let settings = seen.done(&["config", "show"]);
    assert_eq!(settings["settings"].as_array().map(Vec::len), Some(14), "{settings}");
    let changed = seen.done(&["config", "set", "copies_per_node_max=3", "--dry-run"]);
    assert_eq!(changed["changes"][0]["after"], 3, "{changed}");
    assert_eq!(seen.run(&["config", "set", "lease_ms=900"], 4)["error"]["kind"], "refused");

    // State of the cluster.
    let status = seen.done(&["status"]);
    assert_eq!((&status["nodes_alive"], &status["partitions_total"]), (&json!(3), &json!(8)), "{status}");
    let nodes = seen.done(&["node", "list"]);
    let names = nodes.as_array().expect("a list").iter().map(|node| node["node"].as_str().expect("a name").to_owned());
    let name = names.into_iter().next().expect("a node");
    let described = seen.done(&["node", "describe", &name]);
    assert_eq!(
        described["copies"].as_array().map(Vec::len),
        described["copies_held"].as_u64().map(|held| held as usize)
    );
    // The node's number names it as well.
    let number = described["node_id"].to_string();
    assert_eq!(seen.done(&["node", "describe", &number])["node"], described["node"]);
    assert_eq!(seen.done(&["node", "set", &name, "--weight", "90", "--zone", "none"])["weight"], 90);
    assert_eq!(seen.done(&["node", "cordon", &number])["node"], described["node"]);
    assert_eq!(seen.done(&["node", "uncordon", &name])["goal"], "serve");
    seen.run(&["node", "drain", &name], 4);
    assert_eq!(seen.done(&["node", "undrain", &name])["goal"], "serve");
    for table in ["orders", "single"] {
        seen.done(&["table", "create", table, "--partitions", "4", "--replication", "1"]);
    }
    wait_served(&cluster, "single");
    assert_eq!(seen.done(&["table", "alter", "default", "--replication", "3"])["replication"], 3);
    assert_eq!(seen.done(&["table", "list"]).as_array().map(Vec::len), Some(3));
    let described = seen.done(&["table", "describe", "single", "--partitions"]);
    let partitions = described["partitions"].as_array().map(Vec::len);
    assert_eq!((&described["partitions_online"], partitions), (&json!(4), Some(4)), "{described}");
    assert_eq!(seen.run(&["table", "describe", "absent"], 3)["error"]["kind"], "not_found");
    seen.done(&["partition", "list", "--table", "single"]);
    backups(&mut seen, directory.path());
    let located = seen.done(&["partition", "locate", "k"]);
    let partition = located["partition"].to_string();
    assert_eq!(seen.done(&["partition", "describe", &partition])["leader"], located["leader"]);
    seen.run(&["partition", "force-leader", &partition, "--accept-data-loss"], 4);
    seen.run(&["partition", "split", &partition, "--at", "m"], 2);
    seen.done(&["table", "create", "times", "--range", "--replication", "1"]);
    wait_served(&cluster, "times");
    let split = seen.done(&["partition", "split", "0", "--table", "times", "--at", "m", "--wait"]);
    assert_eq!((&split["right"], &split["right_keys"]["begin"]), (&json!(1), &json!("m")));
    seen.done(&["partition", "describe", "1", "--table", "times"]);
    wait_served(&cluster, "times");
    seen.run(&["partition", "merge", "1", "--table", "times"], 4);
    let merge = seen.done(&["partition", "merge", "0", "--table", "times", "--wait"]);
    assert_eq!((&merge["right"], &merge["range"]["end"]), (&json!(1), &json!(null)));
    seen.done(&["rebalance", "status"]);
    assert_eq!(seen.run(&["rebalance", "cancel"], 4)["error"]["kind"], "nothing_running");
    let dropped = seen.done(&["table", "drop", "orders", "--yes"]);
    assert_eq!((&dropped["table"], &dropped["copies_deleted"]), (&json!("orders"), &json!(4)));
    seen.done(&["events"]);
    let mut verbs = seen.verbs;

    // A fourth node, to which partitions can move: a plan, its file, and its progress.
    cluster.start_node("delos");
    cluster.wait_node("delos", "alive");
    let mut seen = VerbCoverage { cluster: &cluster, verbs: BTreeSet::new() };
    let file = directory.path().join("plan.json");
    let file = file.to_str().expect("UTF-8");
    let plan = seen.done(&["rebalance", "plan", "--out", file]);
    let written: Value = serde_json::from_str(&std::fs::read_to_string(file).expect("a file")).expect("JSON");
    contract::check("plan file", &written).unwrap_or_else(|error| panic!("{error}"));
    assert!(plan["moves"].as_array().is_some_and(|moves| !moves.is_empty()), "{plan}");
    let dry = seen.done(&["rebalance", "apply", file, "--dry-run"]);
    assert_eq!((&dry["moves_started"], &dry["table_version"]), (&json!(0), &plan["table_version"]), "{dry}");
    let applied = seen.done(&["rebalance", "apply", "--wait"]);
    assert_eq!(applied["result"]["summary"]["moves_total"], applied["moves_started"], "{applied}");
    assert!(applied["result"]["moves"][0]["phase"].is_string(), "{applied}");
    // Orders, each reverted.
    assert_eq!(seen.done(&["check"])["severity"], "notice");
    let looked = seen.done(&["doctor"]);
    assert!(looked["findings"].as_array().is_some_and(|findings| findings.len() > 10), "{looked}");
    assert_eq!(seen.done(&["node", "maintain", "delos", "--for", "10m"])["node"], "delos");
    assert_eq!(seen.done(&["node", "resume", "delos"])["changed"], true);
    assert_eq!(seen.done(&["node", "bar", "delos", "--table", "default"])["table"], "default");
    assert_eq!(seen.done(&["node", "unbar", "delos", "--table", "default"])["changed"], true);
    assert_eq!(seen.done(&["partition", "bar", "0", "--node", "delos"])["node"], "delos");
    assert_eq!(seen.done(&["partition", "unbar", "0", "--node", "delos"])["changed"], true);
    assert_eq!(seen.done(&["partition", "bump", &partition])["partition"].to_string(), partition);
    assert_eq!(seen.done(&["partition", "offline", &partition])["changed"], true);
    assert_eq!(seen.done(&["partition", "online", &partition])["changed"], true);
    assert_eq!(seen.done(&["node", "drain", "delos", "--dry-run"])["goal"], Value::Null);
    let drained = seen.done(&["node", "drain", "delos", "--wait"]);
    assert_eq!((&drained["goal"], &drained["copies_held"]), (&json!("drain"), &json!(0)), "{drained}");
    verbs.extend(seen.verbs);
    assert!(cluster.take_node("delos").terminate(Duration::from_secs(60)).success());
    cluster.wait_node("delos", "failed");
    let mut seen = VerbCoverage { cluster: &cluster, verbs: BTreeSet::new() };
    seen.done(&["status"]);
    assert_eq!(seen.done(&["node", "remove", "delos"])["node"], "delos");
    verbs.extend(seen.verbs);

    // Lost nodes, and a forced leader of one of their partitions.
    let lost: Vec<String> = ["athens", "byzantium"].map(str::to_owned).into();
    lost.iter().for_each(|name| cluster.take_node(name).kill());
    for name in &lost {
        cluster.wait_node(name, "failed");
    }
    let mut seen = VerbCoverage { cluster: &cluster, verbs: BTreeSet::new() };
    for name in &lost {
        let gone = seen.done(&["node", "lost", name, "--accept-data-loss"]);
        assert!(gone["loss"]["copies_lost"].as_u64() > Some(0), "{gone}");
    }
    let rows = seen.done(&["partition", "list", "--table", "single"]);
    let without = rows.as_array().into_iter().flatten().find(|row| row["status"] != "online");
    let without = without.unwrap_or_else(|| panic!("a partition of one copy on two dead nodes: {rows}"));
    let number = without["partition"].to_string();
    seen.done(&["partition", "describe", &number, "--table", "single"]);
    let forced = seen.done(&["partition", "force-leader", &number, "--table", "single", "--accept-data-loss"]);
    assert_eq!((&forced["table"], &forced["leader"]), (&json!("single"), &Value::Null), "it begins empty: {forced}");
    verbs.extend(seen.verbs);

    // The coordinators.
    let mut seen = VerbCoverage { cluster: &cluster, verbs: BTreeSet::new() };
    let quorum = seen.done(&["quorum", "list"]);
    let kept = tempfile::tempdir().expect("a directory");
    let file = kept.path().join("quorum").display().to_string();
    let saved = seen.done(&["quorum", "snapshot", "save", "--to", &file]);
    assert_eq!(seen.done(&["quorum", "snapshot", "verify", &file]), saved);
    assert_eq!(saved["cluster_id"], quorum["cluster_id"]);
    assert_eq!((&quorum["spare_voters"], &quorum["retired_ids"]), (&json!(1), &json!([])), "{quorum}");
    assert_eq!(seen.done(&["quorum", "demote", "3", "--force", "--wait"])["coordinators"][2]["learner"], true);
    assert_eq!(seen.done(&["quorum", "promote", "3", "--wait"])["coordinators"][2]["learner"], false);
    let address = quorum["coordinators"][2]["address"].as_str().expect("an address");
    assert_eq!(seen.done(&["quorum", "set-address", "3", address])["changed"], false);
    assert_eq!(seen.done(&["quorum", "transfer-leader", "3"])["leader_id"], 3);
    assert_eq!(seen.run(&["quorum", "cancel"], 4)["error"]["kind"], "refused");
    assert_eq!(seen.run(&["quorum", "remove", "3"], 4)["error"]["kind"], "refused");
    assert_eq!(seen.done(&["quorum", "remove", "3", "--force", "--wait"])["retired_ids"], json!([3]));
    verbs.extend(seen.verbs);

    // Excluded: documents without a verb; those that need TLS, a coordinator that joined, or a lost quorum
    // (`quorum_recovery`); and cancellations, whose target ends too early, so that only the refusal is tested.
    let unseen: Vec<&str> = contract::names().filter(|name| !verbs.contains(name)).collect();
    assert_eq!(
        unseen,
        [
            "cert members",
            "error kind",
            "plan file",
            "quorum cancel",
            "quorum recover",
            "quorum replace",
            "quorum settle",
            "rebalance cancel",
            "row"
        ]
    );
}
