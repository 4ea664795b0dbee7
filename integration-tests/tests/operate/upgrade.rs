//! Rolling upgrades while clients work: members move to a newer version one by one, move back as long as possible, and
//! refuse an older version afterwards. Both versions are the program under test; the older one speaks the first
//! protocol only. Real older programs are tested by the `upgrade` program of this crate.

use crate::EXE;
use archon_integration_tests::cluster::TIMEOUT;
use archon_integration_tests::{Cluster, Options, ProcessExt, Release, Scene, WorkloadOptions};
use archon_testkit::wait_for;
use serde_json::Value;
use std::fs;

fn options() -> Options {
    Options { release: Some(Release::speaking(1)), partitions: 12, replication: 3, ..Options::default() }
}

/// Returns clients that never give up.
fn patient(seed: u64) -> WorkloadOptions {
    let load = WorkloadOptions { seed, ..WorkloadOptions::default() };
    WorkloadOptions { hasty: load.timeout, ..load }
}

fn protocol(cluster: &Cluster) -> Value {
    cluster.json(&["upgrade", "status"]).expect("upgrade status")["protocol"].clone()
}

/// Returns the number of members that keep the cluster from speaking protocol 2.
fn laggards(cluster: &Cluster) -> usize {
    let status = cluster.json(&["upgrade", "status"]).expect("upgrade status");
    status["spoken_by"].as_array().expect("members").iter().filter(|member| member["protocol_max"] == 1).count()
}

#[test]
fn rolling_upgrade_and_rollback_fail_no_operation() {
    let report = Scene::play(EXE, "upgrade", &options(), &patient(1), |scene| {
        let newer = Release::default();
        assert_eq!((protocol(&scene.cluster), laggards(&scene.cluster)), (1.into(), 6));
        let refused = scene.cluster.archon(&["upgrade", "hold"]);
        assert!(refused.code == 4 && refused.stderr.contains("--protocol-max 1"), "{refused:?}");

        scene.roll_coordinators(&newer);
        scene.roll_node("athens", &newer);
        scene.roll_node("byzantium", &newer);
        assert_eq!((protocol(&scene.cluster), laggards(&scene.cluster)), (1.into(), 1));
        let status = scene.cluster.done(&["status"]);
        assert!(status.contains("and 2 after the upgrade: node cyrene supports 1"), "{status}");
        let refused = scene.cluster.archon(&["upgrade", "finalize"]);
        assert!(refused.code == 4 && refused.stderr.contains("node cyrene supports 1"), "{refused:?}");

        // Nothing is stored yet that the older version cannot read: all of them go back.
        scene.say("and back");
        scene.roll(&Release::speaking(1));
        assert_eq!((protocol(&scene.cluster), laggards(&scene.cluster)), (1.into(), 6));

        scene.say("and forward again");
        scene.roll(&newer);
        scene.cluster.wait_protocol(2);
        let events = scene.cluster.done(&["events", "--limit", "500"]);
        assert!(events.contains("protocol raised from 1 to 2"), "{events}");
    });
    let report = report.expect("loopback is there everywhere");
    report.assert_no_failure();
    println!("longest wait of a client in three rolling restarts: {:?}", report.longest_gap);
}

#[test]
fn older_version_is_refused_after_the_upgrade() {
    let newer = Options { release: None, ..options() };
    let mut cluster = Cluster::start(EXE, &newer);
    cluster.wait_protocol(2);
    // A member of an older version touches nothing, and names the version to start.
    let older = Release::speaking(1);
    wait_for("every member to keep that", TIMEOUT, || {
        let kept = |directory: &str| {
            let text = fs::read_to_string(cluster.directory().join(directory).join("identity.json"));
            text.is_ok_and(|text| text.contains("\"protocol\": 2"))
        };
        if ["coordinator-2", "node-cyrene"].iter().all(|directory| kept(directory)) { Ok(()) } else { Err("not yet") }
    });
    assert!(cluster.take_node("cyrene").terminate(TIMEOUT).success());
    cluster.install("cyrene", &older);
    cluster.start_node("cyrene");
    let mut refused = cluster.take_node("cyrene");
    assert_eq!(refused.wait_exit(TIMEOUT).code(), Some(4), "a restart is of no use");
    let log = refused.log_tail(5);
    assert!(
        log.contains("was written by protocol 2, and this version speaks 1; start a version that speaks 2"),
        "{log}"
    );

    assert!(cluster.take_coordinator(1).terminate(TIMEOUT).success());
    cluster.install("coordinator-2", &older);
    cluster.start_coordinator(1);
    let mut refused = cluster.take_coordinator(1);
    assert_eq!(refused.wait_exit(TIMEOUT).code(), Some(4));
    let log = refused.log_tail(5);
    assert!(
        log.contains("was written by protocol 2, and this version speaks 1; start a version that speaks 2"),
        "{log}"
    );

    // So is a new member of that version.
    cluster.install("ephesus", &older);
    cluster.start_node("ephesus");
    let mut refused = cluster.take_node("ephesus");
    assert_eq!(refused.wait_exit(TIMEOUT).code(), Some(4));
    let log = refused.log_tail(5);
    assert!(log.contains("ephesus supports 1: start a newer version of it"), "{log}");

    cluster.install("coordinator-2", &Release::default());
    cluster.start_coordinator(1);
    cluster.install("cyrene", &Release::default());
    cluster.start_node("cyrene");
    cluster.wait_whole(3);
    let held = cluster.json(&["upgrade", "hold"]).expect("held");
    assert_eq!((&held["changed"], &held["protocol"]), (&true.into(), &2.into()), "{held}");
    assert!(cluster.done(&["upgrade", "status"]).contains("coordinator"));
    assert_eq!(cluster.json(&["upgrade", "hold"]).expect("held")["changed"], false);
    assert_eq!(cluster.json(&["upgrade", "release"]).expect("released")["changed"], true);
    cluster.done(&["upgrade", "hold"]);
    assert!(cluster.done(&["upgrade", "finalize"]).contains("the hold has ended"));
    let again = cluster.archon(&["upgrade", "finalize"]);
    assert!(again.code == 0 && again.stdout.contains("already in effect"), "{again:?}");
}
