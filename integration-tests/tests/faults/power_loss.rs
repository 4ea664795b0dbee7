//! Every machine loses power at once, in the middle of writes: acknowledged writes survive. Needs root to mount disks;
//! a machine that does not allow it skips these tests with a message. `power-loss` runs the same for longer.

use crate::EXE;
use archon_integration_tests::disk::{Injection, NOTHING_DURABLE};
use archon_integration_tests::image::DiskImage;
use archon_integration_tests::power::PowerLoss;
use archon_integration_tests::{Cluster, Load, LoadReport};
use archon_testkit::{check, skipped, wait_for};
use std::fs::{self, File};
use std::process::Command;
use std::time::Duration;

fn allowed() -> bool {
    match DiskImage::check_allowed() {
        Ok(()) => true,
        Err(why) => {
            skipped(format_args!("this machine does not let a test mount disks: {why}"));
            false
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

fn nothing_is_lost(run: PowerLoss) {
    if !allowed() {
        return;
    }
    let (report, missing) = run.run(EXE, &runtime());
    println!("{run:?}: {} operations, {} keys read back", report.operations, report.acknowledged.len());
    report.assert_no_failure();
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn power_loss_with_three_copies_loses_nothing() {
    nothing_is_lost(PowerLoss { rounds: 2, seed: 1, replication: 3, engine: Some("sled"), ranges: false });
}

#[test]
fn power_loss_with_one_copy_loses_nothing() {
    nothing_is_lost(PowerLoss { rounds: 2, seed: 2, replication: 1, engine: None, ranges: false });
}

/// The keys have just moved to newly formed copies.
#[test]
fn power_loss_right_after_a_split_keeps_both_halves() {
    nothing_is_lost(PowerLoss { rounds: 3, seed: 4, replication: 3, engine: None, ranges: true });
}

/// A process that made a mount namespace meanwhile kept the file system that was shut down: after the power failure
/// every access failed with EIO.
#[test]
fn disk_held_by_another_mount_namespace_works_after_power_loss() {
    if !allowed() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let disk = DiskImage::create(directory.path(), "held", 16).expect("root may mount a disk");
    let file = disk.path().join("file");
    fs::write(&file, "kept").and_then(|()| File::open(&file)?.sync_all()).expect("a new disk takes a file");
    let holder = Command::new("unshare").args(["--mount", "--propagation", "private", "sleep", "600"]).spawn();
    let mut holder = holder.expect("root may make a mount namespace");
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    wait_for("the mount namespace", Duration::from_secs(60), || {
        let (own, other) = (namespace("self"), namespace(&holder.id().to_string()));
        check(other.is_some() && own != other, || format!("{other:?}"))
    });
    disk.cut_power().expect("a disk of this test's own can be shut down");
    let read = disk.replace().map(|()| fs::read_to_string(&file).map_err(|error| error.to_string()));
    let _ = holder.kill();
    let _ = holder.wait();
    assert_eq!(read, Ok(Ok("kept".to_owned())));
}

/// Validates the rig: with durable writes and syncs disabled, acknowledged writes are lost.
#[test]
fn without_syncs_acknowledged_writes_are_lost() {
    if !allowed() {
        return;
    }
    let run = PowerLoss { rounds: 1, seed: 3, replication: 1, engine: None, ranges: false };
    let runtime = runtime();
    let mut cluster = Cluster::start(EXE, &run.options());
    let nodes = ["athens", "byzantium", "cyrene"];
    let injections: Vec<_> =
        nodes.iter().filter_map(|name| Injection::start(cluster.node(name).pid(), &NOTHING_DURABLE)).collect();
    if injections.len() < nodes.len() {
        skipped("this machine does not let a test trace a process");
        return;
    }
    let client = runtime.block_on(cluster.client().timeout(Duration::from_secs(10)).build());
    let client = client.expect("a client");
    let load = runtime.block_on(async { Load::start(&client, "unsynced", 4) });
    load.wait_more(400);
    let report = runtime.block_on(load.stop());
    assert!(report.acknowledged.len() > 100, "{}", report.acknowledged.len());
    drop(injections);
    cluster.cut_power();
    cluster.start_everything();
    cluster.wait_leader();
    for name in nodes {
        cluster.wait_node(name, "alive");
    }
    let few: Vec<_> = report.acknowledged.iter().take(50).map(|(key, value)| (key.clone(), value.clone())).collect();
    let few = LoadReport { acknowledged: few.into_iter().collect(), ..Default::default() };
    let missing = runtime.block_on(few.missing(&client));
    println!("{} of {} acknowledged writes are gone", missing.len(), few.acknowledged.len());
    assert!(!missing.is_empty(), "nothing was synced and yet nothing was lost: the power did not really fail");
}
