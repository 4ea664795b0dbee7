//! Snapshots of the coordinators' state, saved while they run, and recovery from one.

use crate::EXE;
use archon_client::Role;
use archon_integration_tests::{Cluster, Load, Options};
use archon_testkit::{check, wait_for};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);

fn text(path: &Path) -> String {
    path.to_str().expect("UTF-8").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn saved_snapshot_recovers_lost_coordinators() {
    let mut cluster = Cluster::start_whole(EXE, &Options { tls: true, partitions: 8, ..Options::replicated() });
    cluster.done(&["table", "create", "orders", "--partitions", "4", "--replication", "3"]);
    cluster.done(&["access", "grant", "write", "--client", "shop", "--table", "orders"]);
    let client = cluster.client().build().await.expect("a client");
    let load = Load::start(&client, "saved", 4);
    let saved = cluster.directory().join("monday");
    let file = text(&saved);
    let told = cluster.json(&["quorum", "snapshot", "save", "--to", &file]).expect("it is saved under load");
    assert_eq!((&told["generation"], &told["nodes_total"], &told["tables_total"]), (&json!(1), &json!(3), &json!(2)));
    assert_eq!(cluster.json(&["quorum", "snapshot", "verify", &file]).expect("it is whole"), told);
    // Then a change: the nodes know of more than the file contains.
    cluster.done(&["node", "cordon", "athens"]);
    let report = load.stop().await;
    for index in 0..3 {
        cluster.take_coordinator(index).kill();
        fs::remove_dir_all(cluster.coordinator_data(index + 1)).expect("it is lost");
    }
    let begun = cluster.recover(1, &saved, &[]);
    assert_eq!(begun["base_index"], told["last_index"], "{begun}");
    wait_for("the recovery to be settled", TIMEOUT, || {
        cluster.archon(&["quorum", "settle", "--accept-data-loss"]);
        let quorum = cluster.json(&["quorum", "list"])?;
        check(quorum["recovery"].is_null() && quorum["generation"] == json!(2), || quorum.to_string())
    });
    cluster.wait_whole(3);
    assert_eq!(report.missing(&client).await, Vec::<String>::new(), "acknowledged before and after the file was made");
    let access = cluster.archon(&["access", "list"]);
    assert!(access.stdout.contains("shop"), "who may do what is written nowhere else: {access:?}");
}

#[test]
fn snapshot_needs_admin_and_rejects_damaged_files() {
    let cluster = Cluster::start(EXE, &Options { tls: true, nodes: vec![], ..Options::default() });
    let (leader, _) = cluster.wait_leader();
    let file = text(&cluster.directory().join("monday"));
    let save = ["quorum", "snapshot", "save", "--to", &file];
    for role in [Role::Operator, Role::Client, Role::Node] {
        let credentials = cluster.credentials(role, "somebody");
        let refused = cluster.archon_as(Some(&credentials), &save);
        assert!(refused.code == 4 && refused.stderr.contains("may not"), "{role:?}: {refused:?}");
    }
    let left: Vec<_> = fs::read_dir(cluster.directory()).expect("a directory").flatten().collect();
    assert!(left.iter().all(|entry| !entry.file_name().to_string_lossy().starts_with("monday")), "{left:?}");
    let alice = cluster.credentials(Role::Admin, "alice");
    let saved = cluster.archon_as(Some(&alice), &save);
    assert_eq!(saved.code, 0, "{saved:?}");
    assert_eq!(fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o600);
    let audit = cluster.directory().join(format!("coordinator-{}", leader + 1)).join("audit.jsonl");
    wait_for("a line of who did it", TIMEOUT, || {
        let kept = fs::read_to_string(&audit).unwrap_or_default();
        let mut lines = kept.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let found =
            lines.find(|line| line["call"] == "/archon.v1.Admin/SnapshotQuorum" && line["who"] == "admin/alice");
        check(found.is_some_and(|line| line["outcome"].to_string().contains("done")), || kept.clone())
    });
    let again = cluster.archon_as(Some(&alice), &save);
    assert!(again.code == 4 && again.stderr.contains("not written over"), "{again:?}");

    let whole = fs::read(&file).expect("a file");
    let verify = |file: &str| cluster.archon(&["quorum", "snapshot", "verify", file]);
    assert_eq!(verify(&file).code, 0);
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 4;
    for content in [&damaged[..], &whole[..whole.len() - 1], &[&whole[..], &[0]].concat()] {
        fs::write(&file, content).expect("damage");
        let (verified, begun) = (verify(&file), cluster.archon(&["quorum", "recover", "--from", &file]));
        assert!(verified.code == 1 && verified.stderr.contains("damaged"), "{verified:?}");
        assert!(begun.code == 1 && begun.stderr.contains("damaged"), "{begun:?}");
    }
    assert_eq!(verify("/nowhere").code, 3);
    let directory = verify(&text(cluster.directory()));
    assert!(directory.code == 2 && directory.stderr.contains("name a snapshot file"), "{directory:?}");
}
