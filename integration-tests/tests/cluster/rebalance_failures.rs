//! A rebalance with a process killed in every phase: the move finishes or is undone, and no key is lost.

use crate::EXE;
use archon_client::Client;
use archon_integration_tests::{Cluster, Load, Options};
use archon_testkit::wait_for;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
enum Victim {
    LeadingCoordinator,
    Source,
    Target,
}

/// Writes values large enough that a copy takes a while and each phase can be observed.
async fn fill(client: &Client, count: usize) -> Vec<(String, Vec<u8>)> {
    let mut written = Vec::new();
    for number in 0..count {
        let (key, value) = (format!("large-{number}"), vec![u8::try_from(number % 251).unwrap_or(0); 64 * 1024]);
        client.put(key.clone().into_bytes(), value.clone()).await.expect("a put");
        written.push((key, value));
    }
    written
}

/// Grows from three nodes to four and kills `victim` as soon as any move is in one of `phases`.
async fn kill_in_phase(phases: &[&str], victim: Victim) {
    let coordinators = if matches!(victim, Victim::LeadingCoordinator) { 3 } else { 1 };
    let mut cluster = Cluster::start(EXE, &Options { coordinators, ..Options::default() });
    let client = cluster.client().build().await.expect("a client");
    let written = fill(&client, 300).await;
    cluster.start_node("ephesus");
    cluster.wait_node("ephesus", "alive");
    let load = Load::start(&client, "phase", 4);
    let applied = cluster.archon(&["rebalance", "apply"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    // A phase may end before it is observed; then the kill comes at the next one, which is as good.
    let (moved, _) = wait_for("a move to reach its phase", Duration::from_secs(60), || {
        let status = cluster.asked(&["rebalance", "status"])?;
        let all = status["moves"].as_array().cloned().unwrap_or_default();
        let rank = |phase: &str| {
            ["queued", "copying", "in_sync", "hand_over", "cleanup", "done"]
                .iter()
                .position(|p| *p == phase)
                .unwrap_or(9)
        };
        let wanted = phases.iter().map(|phase| rank(phase)).min().unwrap_or(0);
        all.into_iter()
            .find(|m| m["phase"].as_str().is_some_and(|phase| rank(phase) >= wanted))
            .ok_or_else(|| status.to_string())
    });
    println!("killing {victim:?} in {}", moved["phase"]);
    let name = |field: &str| moved[field].as_str().expect("a node's name").to_owned();
    match victim {
        Victim::LeadingCoordinator => {
            let (leader, _) = cluster.wait_leader();
            cluster.take_coordinator(leader).kill();
            cluster.wait_leader();
            cluster.start_coordinator(leader);
        }
        Victim::Source | Victim::Target => {
            let node = name(if matches!(victim, Victim::Source) { "from" } else { "to" });
            cluster.take_node(&node).kill();
            cluster.wait_node(&node, "failed");
            cluster.start_node(&node);
            cluster.wait_node(&node, "alive");
        }
    }
    cluster.wait_online();
    let status = cluster.wait_rebalanced();
    let report = load.stop().await;
    report.assert_no_failure();
    for migration in status["moves"].as_array().into_iter().flatten() {
        let phase = migration["phase"].as_str().unwrap_or("?");
        assert!(
            ["done", "failed", "superseded", "cancelled"].contains(&phase),
            "neither finished nor undone: {status}"
        );
    }
    assert_eq!(report.missing(&client).await, Vec::<String>::new());
    for (key, value) in &written {
        let found = client.get(key.clone().into_bytes()).await.expect("a get").map(|found| found.value.to_vec());
        assert!(found.as_ref() == Some(value), "{key} is lost or changed");
    }
    // An undone move can be repeated, and then nothing is left to do.
    let again = cluster.archon(&["rebalance", "apply", "--wait", "--timeout", "60s"]);
    assert_eq!(again.code, 0, "{}", again.stderr);
    cluster.wait_rebalanced();
    let held = cluster.partitions_per_node();
    let mut shares: Vec<u64> = held.values().copied().collect();
    shares.sort_unstable();
    let events = cluster.json(&["events"]).unwrap_or_default();
    assert_eq!(shares, [2, 2, 2, 3], "{held:?} after {}{}\n{events:#}", again.stdout, again.stderr);
    for (key, value) in written.iter().step_by(7) {
        let found = client.get(key.clone().into_bytes()).await.expect("a get").map(|found| found.value.to_vec());
        assert!(found.as_ref() == Some(value), "{key} is lost or changed after the second plan");
    }
}

macro_rules! kill_tests {
    ($($name:ident: $victim:ident in $($phase:literal)|+,)*) => { $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            kill_in_phase(&[$($phase),+], Victim::$victim).await;
        }
    )* };
}

kill_tests! {
    the_leading_coordinator_is_killed_while_queued: LeadingCoordinator in "queued",
    the_leading_coordinator_is_killed_while_copying: LeadingCoordinator in "copying",
    the_leading_coordinator_is_killed_at_the_hand_over: LeadingCoordinator in "in_sync" | "hand_over",
    the_leading_coordinator_is_killed_at_the_cleanup: LeadingCoordinator in "cleanup",
    the_source_is_killed_while_copying: Source in "copying",
    the_source_is_killed_at_the_hand_over: Source in "in_sync" | "hand_over",
    the_source_is_killed_at_the_cleanup: Source in "cleanup",
    the_target_is_killed_while_copying: Target in "copying",
    the_target_is_killed_at_the_hand_over: Target in "in_sync" | "hand_over",
    the_target_is_killed_at_the_cleanup: Target in "cleanup",
}
