//! Audit trail of a cluster: changes and refusals, with their callers.

use crate::EXE;
use archon_client::{Admin, NodeGoal, Role, Tls, Transport};
use archon_integration_tests::{Cluster, Options, ProcessExt};
use archon_testkit::wait_for;
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);
/// Refusals of one caller that are recorded individually: five in a minute, of which a test may see the end of one and
/// the begin of another.
const TOLD_MAX: usize = 10;

fn start() -> Cluster {
    Cluster::start(EXE, &Options { tls: true, replication: 2, ..Options::default() })
}

fn audit_file(cluster: &Cluster, coordinator: usize) -> PathBuf {
    cluster.directory().join(format!("coordinator-{}", coordinator + 1)).join("audit.jsonl")
}

/// Returns the complete lines of a coordinator's file.
fn lines(cluster: &Cluster, coordinator: usize) -> Vec<Value> {
    let text = fs::read_to_string(audit_file(cluster, coordinator)).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line:?}: {error}"))).collect()
}

/// Waits for a line of the file and returns it.
fn line(cluster: &Cluster, coordinator: usize, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let (line, _) = wait_for(what, TIMEOUT, || {
        let all = lines(cluster, coordinator);
        all.iter().find(|line| is(line)).cloned().ok_or_else(|| format!("{all:#?}"))
    });
    line
}

/// Asserts that the lines are numbered consecutively, from 1.
fn are_numbered(lines: &[Value]) {
    let numbers: Vec<u64> = lines.iter().filter_map(|line| line["seq"].as_u64()).collect();
    assert_eq!(numbers, (1..=lines.len() as u64).collect::<Vec<_>>(), "{lines:#?}");
}

/// Asks one coordinator to cordon a node.
fn cordon(cluster: &Cluster, coordinator: usize, (role, name): (Role, &str), node: &str) -> Result<(), String> {
    let transport = Tls::open(&cluster.credentials(role, name)).map(Transport::Tls).expect("credentials");
    let address = cluster.coordinator_addresses()[coordinator].clone();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let admin = Admin::with_transport(vec![address], TIMEOUT, transport).expect("an address");
        admin.set_node(node, NodeGoal::Cordon).await.map_err(|error| error.to_string())
    })
}

#[test]
fn change_names_its_caller_in_events_and_audit_file() {
    let cluster = start();
    let (leader, _) = cluster.wait_leader();
    let alice = cluster.credentials(Role::Admin, "alice");
    let ran = cluster.archon_as(Some(&alice), &["node", "drain", "cyrene"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let events = cluster.json(&["events"]).expect("events");
    let draining = events.as_array().into_iter().flatten().find(|event| event["code"] == "node_draining");
    let by = &draining.expect("an event tells of the drain")["by"];
    assert_eq!(*by, serde_json::json!({"kind": "admin", "admin": "admin/alice", "from": "127.0.0.1"}));
    let text = cluster.archon(&["events"]).stdout;
    assert!(text.lines().any(|line| line.contains("admin/alice") && line.contains("cyrene")), "{text}");
    let done = line(&cluster, leader, "the change in the leader's file", |line| line["subject"] == "node cyrene");
    assert_eq!(done["who"], "admin/alice");
    assert_eq!(done["from"], "127.0.0.1");
    assert_eq!(done["call"], "/archon.v1.Admin/SetNode");
    assert_eq!((&done["subject"], &done["asked"]), (&"node cyrene".into(), &"drain".into()));
    assert_eq!(done["outcome"], "done");
    assert!(done["request_id"].as_str().is_some_and(|id| uuid::Uuid::parse_str(id).is_ok()), "{done}");
    let mode = fs::metadata(audit_file(&cluster, leader)).expect("the file is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it is nobody else's");
    // A refusal by the state is recorded as well, with its reason.
    cordon(&cluster, leader, (Role::Admin, "alice"), "nowhere").expect_err("there is no such node");
    let refused = line(&cluster, leader, "the refusal of the state", |line| line["subject"] == "node nowhere");
    assert_eq!((&refused["outcome"], &refused["kind"]), (&"refused".into(), &"not_found".into()), "{refused}");
    for other in (0..3).filter(|other| *other != leader) {
        assert!(lines(&cluster, other).iter().all(|line| line["what"] != "change"), "it did not lead");
    }
}

#[test]
fn refusal_flood_is_counted_and_numbering_survives_restart() {
    const FLOOD: usize = 200;
    let mut cluster = start();
    let (leader, _) = cluster.wait_leader();
    let asks_in_vain = |cluster: &Cluster, name: &str| {
        let refused = cordon(cluster, leader, (Role::Client, name), "athens").expect_err("a client may not");
        assert!(refused.contains("may not run archon node cordon"), "{refused}");
    };
    (0..FLOOD).for_each(|_| asks_in_vain(&cluster, "mallory"));
    let first = line(&cluster, leader, "a refusal", |line| line["who"] == "client/mallory");
    assert_eq!((&first["what"], &first["outcome"]), (&"refusal".into(), &"refused".into()));
    assert_eq!((&first["call"], &first["from"]), (&"/archon.v1.Admin/SetNode".into(), &"127.0.0.1".into()));
    let status = cluster.take_coordinator(leader).terminate(TIMEOUT);
    assert!(status.success(), "{status}");
    let before = lines(&cluster, leader);
    are_numbered(&before);
    let of_mallory: Vec<u64> = before
        .iter()
        .filter(|line| line["who"] == "client/mallory")
        .filter_map(|line| line["left_out"].as_u64())
        .collect();
    let one_by_one = of_mallory.iter().filter(|left_out| **left_out == 0).count();
    assert!((1..=TOLD_MAX).contains(&one_by_one), "{before:#?}");
    assert_eq!(
        one_by_one as u64 + of_mallory.iter().sum::<u64>(),
        FLOOD as u64,
        "each was told or counted: {before:#?}"
    );
    assert!(before.iter().all(|line| line["dropped"] == 0), "{before:#?}");
    // As a crash would leave it.
    let mut file = OpenOptions::new().append(true).open(audit_file(&cluster, leader)).expect("the file is there");
    file.write_all(b"{\"seq\":99,\"at\":\"20").expect("a torn line");
    cluster.start_coordinator(leader);
    cluster.wait_leader();
    asks_in_vain(&cluster, "oscar");
    line(&cluster, leader, "the refusal after the restart", |line| line["who"] == "client/oscar");
    let after = lines(&cluster, leader);
    are_numbered(&after);
    assert_eq!(after[..before.len()], before, "nothing is forgotten");
    let log = cluster.coordinator(leader).log();
    assert!(
        log.lines().any(|line| line.contains("audit") && line.contains("client/oscar may not run archon node cordon")),
        "{log}"
    );
}
