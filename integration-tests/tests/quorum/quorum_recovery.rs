//! A quorum that lost its majority permanently, recovered from the remaining data: by the command line, on real
//! processes.

use crate::EXE;
use archon_integration_tests::recovering::copy_directory;
use archon_integration_tests::{Cluster, Load, Options, ProcessExt};
use archon_testkit::{check, wait_for};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);

fn quorum(cluster: &Cluster) -> Result<Value, String> {
    cluster.json(&["quorum", "list"])
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_three_coordinators_recovers_the_cluster() {
    let mut cluster = Cluster::start_whole(EXE, &Options::replicated());
    let client = cluster.client().build().await.expect("a client");
    let load = Load::start(&client, "recovered", 4);
    for lost in [0, 2] {
        cluster.take_coordinator(lost).kill();
    }
    let survivor = cluster.coordinator_data(2);
    let used = cluster.archon(&["quorum", "recover", "--from", &survivor.display().to_string()]);
    assert!(
        used.code == 4 && used.stderr.contains("in use") && used.stderr.contains("stop that coordinator"),
        "{used:?}"
    );
    let left = cluster.put_aside(2, "left");
    let told = cluster.recover(2, &left, &[]);
    assert_eq!((&told["generation"], &told["nodes_total"]), (&json!(2), &json!(3)), "{told}");
    // No reported data was lost, so no loss has to be accepted.
    cluster.wait_recovered(2);
    cluster.wait_whole(3);
    let report = load.stop().await;
    println!("longest gap of a writer: {:?} over {} operations", report.longest_gap, report.operations);
    assert_eq!(report.missing(&client).await, Vec::<String>::new());
    let again = cluster.archon(&["quorum", "settle"]);
    assert!(again.code == 4 && again.stderr.contains("no recovery is running"), "{again:?}");
    // New coordinators join with directories of their own; the old ones are refused, and no node follows them.
    cluster.join_coordinator(&[]);
    let new = cluster.coordinator_addresses()[1].clone();
    wait_for("the newcomer to vote", TIMEOUT, || {
        let listed = cluster.archon_at(&new, &["quorum", "list"]);
        check(listed.stdout.matches(" yes ").count() == 2, || format!("{listed:?}"))
    });
    for old in [0, 2] {
        cluster.start_coordinator(old);
    }
    // Two of three: by their own state they are the quorum, and elect a leader.
    for old in [0, 2] {
        let mut old = cluster.take_coordinator(old);
        let (ended, _) = wait_for("the old one to hear that it is outlived", TIMEOUT, || {
            old.exited().ok_or_else(|| "it runs".to_owned())
        });
        assert_eq!(ended.code(), Some(4), "{ended:?}");
    }
    cluster.take_node("athens").kill();
    wait_for("athens to be failed", TIMEOUT, || {
        let nodes = cluster.archon_at(&new, &["node", "list", "-o", "json"]);
        check(nodes.stdout.contains("\"failed\""), || format!("{nodes:?}"))
    });
    cluster.start_node("athens");
    wait_for("athens to come back to the new ones", TIMEOUT, || {
        let nodes = cluster.archon_at(&new, &["node", "list", "-o", "json"]);
        check(nodes.code == 0 && !nodes.stdout.contains("\"failed\""), || format!("{nodes:?}"))
    });
    let events = cluster.archon_at(&new, &["events"]).stdout;
    assert!(events.contains("generation 2 continues with the data of the nodes"), "{events}");
}

/// No coordinator of the recovery is at an address that the former ones know.
#[tokio::test(flavor = "multi_thread")]
async fn recovery_at_new_addresses_ends_former_coordinators() {
    let mut cluster = Cluster::start_whole(EXE, &Options { tls: true, ..Options::replicated() });
    cluster.wait_protocol(2);
    for lost in [0, 2] {
        cluster.take_coordinator(lost).kill();
    }
    let left = cluster.put_aside(2, "left");
    cluster.recover(2, &left, &[]);
    cluster.wait_recovered(2);
    let newcomer = cluster.join_coordinator(&[]);
    let new = cluster.coordinator_addresses()[newcomer].clone();
    let voters = |cluster: &Cluster, count: usize| {
        wait_for(&format!("{count} voters"), TIMEOUT, || {
            let listed = cluster.archon_at(&new, &["quorum", "list"]);
            check(listed.stdout.matches(" yes ").count() == count, || format!("{listed:?}"))
        });
    };
    voters(&cluster, 2);
    let removed = cluster.archon_at(&new, &["quorum", "remove", "2", "--force", "--wait"]);
    assert_eq!(removed.code, 0, "{removed:?}");
    voters(&cluster, 1);
    cluster.take_coordinator(1).kill();
    for old in [0, 2] {
        cluster.start_coordinator(old);
    }
    for old in [0, 2] {
        let mut old = cluster.take_coordinator(old);
        let (ended, _) = wait_for("the old one to be greeted and to end", TIMEOUT, || {
            old.exited().ok_or_else(|| "it runs".to_owned())
        });
        assert_eq!(ended.code(), Some(4), "{ended:?}");
    }
    let events = cluster.archon_at(&new, &["events"]).stdout;
    assert!(events.contains("generation 2 replaces the former coordinators"), "{events}");
}

#[tokio::test(flavor = "multi_thread")]
async fn trial_recovery_ends_no_coordinator_that_works() {
    let mut cluster = Cluster::start_whole(EXE, &Options::replicated());
    cluster.wait_protocol(2);
    let client = cluster.client().build().await.expect("a client");
    let load = Load::start(&client, "trial", 4);
    let left = cluster.put_aside(3, "left");
    cluster.recover(3, &left, &[]);
    let [first, _, trial] = &cluster.coordinator_addresses()[..] else { panic!("three coordinators") };
    let (first, trial) = (first.clone(), trial.clone());
    let waits = |cluster: &Cluster, when: &str| {
        wait_for(&format!("the trial to wait, {when}"), TIMEOUT, || {
            let listed = cluster.archon_at(&trial, &["quorum", "list"]);
            check(listed.stdout.contains("works with a majority"), || format!("{listed:?}"))
        });
        wait_for(&format!("the trial to be reported, {when}"), TIMEOUT, || {
            let checked = cluster.archon_at(&first, &["check"]);
            check(checked.stdout.contains("OtherHistory"), || format!("{checked:?}"))
        });
    };
    waits(&cluster, "at first");
    // A node that starts may turn to the trial, and is not taken in there.
    cluster.take_node("athens").kill();
    cluster.wait_node("athens", "failed");
    cluster.start_node("athens");
    cluster.wait_node("athens", "alive");
    // Those that work, and the trial itself, are restarted at once: each has forgotten what it heard of the others.
    for index in 0..3 {
        cluster.take_coordinator(index).kill();
    }
    for index in [2, 0, 1] {
        cluster.start_coordinator(index);
    }
    waits(&cluster, "after a restart");
    cluster.done(&["table", "create", "since", "--partitions", "4", "--replication", "3"]);
    assert!(cluster.take_coordinator(2).terminate(TIMEOUT).success(), "the trial runs");
    std::fs::remove_dir_all(cluster.coordinator_data(3)).expect("the trial is over");
    std::fs::rename(&left, cluster.coordinator_data(3)).expect("the directory comes back");
    cluster.start_coordinator(2);
    cluster.wait_whole(3);
    let report = load.stop().await;
    assert_eq!(report.missing(&client).await, Vec::<String>::new());
    wait_for("nothing to be reported any more", TIMEOUT, || {
        let checked = cluster.archon_at(&first, &["check"]);
        check(!checked.stdout.contains("OtherHistory"), || format!("{checked:?}"))
    });
    for index in 0..3 {
        assert!(cluster.take_coordinator(index).exited().is_none(), "coordinator {} ended", index + 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn recovery_from_old_state_keeps_later_writes() {
    let mut cluster = Cluster::start_whole(EXE, &Options { partitions: 8, replication: 2, ..Options::default() });
    // A copy of a coordinator's directory, as from a backup.
    assert!(cluster.take_coordinator(1).terminate(TIMEOUT).success());
    let backup = cluster.directory().join("backup");
    copy_directory(&cluster.coordinator_data(2), &backup);
    cluster.start_coordinator(1);
    // Since then a table was created, copies were dropped and rebuilt elsewhere, and leaderships moved.
    cluster.done(&["table", "create", "later", "--partitions", "4", "--replication", "2"]);
    let client = cluster.client().build().await.expect("a client");
    let load = Load::start(&client, "since", 4);
    for city in ["athens", "byzantium", "cyrene"] {
        cluster.take_node(city).kill();
        cluster.wait_node(city, "failed");
        cluster.start_node(city);
        cluster.wait_whole(2);
    }
    let report = load.stop().await;
    for index in 0..3 {
        cluster.take_coordinator(index).kill();
    }
    std::fs::remove_dir_all(cluster.coordinator_data(1)).expect("it is lost");
    cluster.recover(1, &backup, &[]);
    let open = wait_for("all nodes to tell what they hold", TIMEOUT, || {
        let quorum = quorum(&cluster)?;
        let doubts = quorum["recovery"]["doubts"].as_array().cloned().unwrap_or_default();
        let accepted = !doubts.is_empty() && doubts.iter().all(|doubt| doubt["may_be_accepted"] == json!(true));
        check(accepted, || quorum.to_string()).map(|()| quorum)
    });
    let shown = cluster.archon(&["quorum", "list"]);
    let shown = format!("{}{}", shown.stdout, shown.stderr);
    let status = cluster.archon(&["check"]);
    assert!(status.code == 11 && status.stdout.contains("BeingRecovered"), "{status:?}");
    assert!(shown.contains("settle --accept-data-loss") && shown.contains("behind"), "{shown}\n{open:?}");
    assert!(shown.contains("replicas of unknown partitions"), "of the table that is lost: {shown}");
    let refused = cluster.archon(&["quorum", "settle"]);
    assert!(refused.code == 4 && refused.stderr.contains("--accept-data-loss"), "{refused:?}");
    cluster.done(&["quorum", "settle", "--accept-data-loss"]);
    cluster.wait_recovered(2);
    cluster.wait_whole(2);
    assert_eq!(report.missing(&client).await, Vec::<String>::new(), "acknowledged since the backup");
    let gone = cluster.archon(&["kv", "get", "--table", "later", "key"]);
    assert_eq!(gone.code, 3, "{gone:?}");
    // A second recovery of the same backup is another history.
    cluster.take_coordinator(0).kill();
    let first = cluster.directory().join("first");
    std::fs::rename(cluster.coordinator_data(1), &first).expect("the directory moves");
    cluster.recover(1, &backup, &[]);
    wait_for("nodes to be refused that lived on", TIMEOUT, || {
        let doubts = quorum(&cluster)?["recovery"]["doubts"].to_string();
        check(doubts.contains("other_history"), || doubts)
    });
    cluster.take_coordinator(0).kill();
    std::fs::remove_dir_all(cluster.coordinator_data(1)).expect("it is of no use");
    cluster.recover(1, &first, &["--generation", "9"]);
    cluster.wait_recovered(9);
    cluster.wait_whole(2);
    assert_eq!(report.missing(&client).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn recovery_survives_restart_in_the_middle() {
    let mut cluster = Cluster::start_whole(EXE, &Options { partitions: 8, ..Options::replicated() });
    let client = cluster.client().build().await.expect("a client");
    let load = Load::start(&client, "restarted", 4);
    for lost in [0, 2] {
        cluster.take_coordinator(lost).kill();
    }
    // Without this one it is unknown whether more was acknowledged.
    cluster.take_node("cyrene").kill();
    let report = load.stop().await;
    let left = cluster.put_aside(2, "left");
    cluster.recover(2, &left, &[]);
    let waits_for_cyrene = |cluster: &Cluster, when: &str| {
        wait_for(&format!("all but cyrene to have told, {when}"), TIMEOUT, || {
            let quorum = quorum(cluster)?;
            let doubts = quorum["recovery"]["doubts"].as_array().cloned().unwrap_or_default();
            let unheard: Vec<_> = doubts.iter().filter(|doubt| doubt["may_be_accepted"] == json!(false)).collect();
            check(matches!(unheard[..], [one] if one["about"] == "cyrene"), || quorum.to_string())
        });
        let settled = cluster.archon(&["quorum", "settle", "--accept-data-loss"]);
        assert!(settled.code == 4 && settled.stderr.contains("cyrene"), "{when}: {settled:?}");
    };
    waits_for_cyrene(&cluster, "at first");
    cluster.take_coordinator(1).kill();
    cluster.start_coordinator(1);
    waits_for_cyrene(&cluster, "after a restart of the coordinator");
    cluster.take_node("byzantium").kill();
    cluster.start_node("byzantium");
    waits_for_cyrene(&cluster, "after a restart of a node");
    // Both at once, and the missing one comes meanwhile.
    cluster.take_coordinator(1).kill();
    cluster.take_node("athens").kill();
    cluster.start_node("cyrene");
    cluster.start_coordinator(1);
    cluster.start_node("athens");
    cluster.wait_recovered(2);
    cluster.wait_whole(3);
    assert_eq!(report.missing(&client).await, Vec::<String>::new());
}

#[test]
fn recovery_rejects_invalid_directories() {
    let mut cluster = Cluster::start(EXE, &Options { nodes: vec![], ..Options::default() });
    assert!(cluster.take_coordinator(0).terminate(TIMEOUT).success());
    let ask = |from: &str, more: &[&str]| cluster.archon(&[&["quorum", "recover", "--from", from], more].concat());
    let nothing = ask("/nowhere", &[]);
    assert!(nothing.code == 3 && nothing.stderr.contains("neither"), "{nothing:?}");
    let foreign = cluster.directory().display().to_string();
    assert_eq!(ask(&foreign, &[]).code, 3, "no coordinator was ever there");
    let file = cluster.directory().join("file");
    std::fs::write(&file, [b"ARCHSNAP".as_slice(), &[1, 0, 0, 0], &[7; 40]].concat()).expect("it is written");
    let damaged = ask(&file.display().to_string(), &[]);
    assert!(damaged.code == 1 && damaged.stderr.contains("damaged"), "{damaged:?}");
    let own = cluster.coordinator_data(1).display().to_string();
    let taken = ask(&own, &["--into", &foreign, "--id", "1", "--address", "127.0.0.1:1", "--accept-data-loss"]);
    assert!(taken.code == 4 && taken.stderr.contains("exists already"), "{taken:?}");
    let new = format!("{foreign}/new");
    let nowhere = ask(&own, &["--into", &new, "--id", "1", "--address", "nowhere", "--accept-data-loss"]);
    assert_eq!(nowhere.code, 2, "{nowhere:?}");
    let unsaid = ask(&own, &["--into", &new]);
    assert_eq!(unsaid.code, 2, "{unsaid:?}");
    assert!(!Path::new(&new).exists());
    let json = ask(&own, &["-o", "json"]);
    assert!(json.code == 4 && json.stdout.contains("\"base_index\""), "{json:?}");
}
