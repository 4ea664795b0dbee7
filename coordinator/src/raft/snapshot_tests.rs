//! A voter that was away for longer than the log is kept gets a snapshot.

use crate::{Coordinator, CoordinatorConfig, FirstStart};
use archon_types::{ProtocolRange, Settings};
use openraft::async_runtime::WatchReceiver as _;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::net::TcpListener;

const SOON: Duration = Duration::from_secs(20);

async fn until(what: &str, mut met: impl FnMut() -> Result<(), String>) {
    let begun = Instant::now();
    while let Err(last) = met() {
        assert!(begun.elapsed() < SOON, "waited for {what}; last: {last}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn purged(coordinator: &Coordinator) -> u64 {
    let metrics = coordinator.quorum().unwrap().raft.metrics();
    let metrics = metrics.borrow_watched();
    metrics.purged.map_or(0, |id| id.index)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voter_that_lags_behind_the_log_installs_a_snapshot() {
    let mut listeners = Vec::new();
    let mut peers = BTreeMap::new();
    for id in 1..=3 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        peers.insert(id, listener.local_addr().unwrap().to_string());
        listeners.push((id, listener));
    }
    let dirs: BTreeMap<u64, TempDir> = (1..=3).map(|id| (id, tempfile::tempdir().unwrap())).collect();
    let config = |id: u64| CoordinatorConfig {
        id,
        listen: peers[&id].parse().unwrap(),
        metrics_listen: None,
        transport: archon_security::Transport::default(),
        advertise: None,
        start: Some(FirstStart::Found { peers: peers.clone() }),
        data_dir: dirs[&id].path().to_path_buf(),
        speaks: ProtocolRange::SPOKEN,
        settings: Settings::default(),
        settings_said: Default::default(),
    };
    let mut running = BTreeMap::new();
    for (id, listener) in listeners {
        running.insert(id, Coordinator::start(listener, config(id)).await.unwrap());
    }
    let leading = |running: &BTreeMap<u64, Coordinator>| {
        running.values().find(|one| one.is_leading()).map(Coordinator::id).ok_or_else(|| "nobody leads".to_owned())
    };
    until("a leader", || leading(&running).map(|_| ())).await;
    let leader = leading(&running).unwrap();
    let away = (1..=3).find(|id| *id != leader).unwrap();
    running.remove(&away).unwrap().stop().await;

    let raft = running[&leader].quorum().unwrap().raft.clone();
    for _ in 0..50 {
        raft.write_blank().await.unwrap();
    }
    let last = raft.metrics().borrow_watched().last_applied.unwrap().index;
    raft.trigger().snapshot().await.unwrap();
    until("the snapshot", || {
        let built = raft.metrics().borrow_watched().snapshot.map_or(0, |id| id.index);
        if built >= last { Ok(()) } else { Err(format!("built up to {built} of {last}")) }
    })
    .await;
    raft.trigger().purge_log(last).await.unwrap();
    until("the log to be purged", || {
        let purged = purged(&running[&leader]);
        if purged >= last { Ok(()) } else { Err(format!("purged up to {purged} of {last}")) }
    })
    .await;

    let back = Coordinator::start(TcpListener::bind(peers[&away].as_str()).await.unwrap(), config(away)).await.unwrap();
    until("the snapshot to be installed", || {
        let Some(quorum) = back.quorum() else { return Err("not started".to_owned()) };
        let applied = quorum.view().applied_index;
        let cluster = quorum.replicated().read(|state| state.cluster);
        if applied >= last && !cluster.is_nil() { Ok(()) } else { Err(format!("applied {applied} of {last}")) }
    })
    .await;
    assert!(std::fs::read_dir(dirs[&away].path().join("snapshots")).unwrap().count() > 0);

    // It stands on its own feet: what was installed is there again after a restart.
    back.stop().await;
    let back = Coordinator::start(TcpListener::bind(peers[&away].as_str()).await.unwrap(), config(away)).await.unwrap();
    until("the restarted voter to have it still", || {
        let Some(quorum) = back.quorum() else { return Err("not started".to_owned()) };
        let applied = quorum.view().applied_index;
        if applied >= last { Ok(()) } else { Err(format!("applied {applied} of {last}")) }
    })
    .await;
    back.stop().await;
    for (_, coordinator) in running {
        coordinator.stop().await;
    }
}
