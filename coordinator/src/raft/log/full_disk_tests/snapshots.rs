//! Tests of snapshots without space on the disk, or refused by it.

use super::{SOON, Voter, Voters, codes, until};
use archon_wal::disk::{Disk as _, Fault, FaultPoint, Operation};
use openraft::async_runtime::WatchReceiver as _;
use std::io;
use std::sync::Arc;

fn snapshot_of(voter: &Voter) -> u64 {
    voter.raft().metrics().borrow_watched().snapshot.map_or(0, |id| id.index)
}

#[tokio::test(flavor = "multi_thread")]
async fn coordinator_survives_a_snapshot_without_space() {
    let voters = Voters::start(1).await;
    let lone = &voters.0[&1];
    lone.snapshots.set_full(true);
    let applied = lone.running.quorum().unwrap().view().applied_index;
    lone.raft().trigger().snapshot().await.unwrap();
    let replicated = lone.running.quorum().unwrap().replicated();
    until("the snapshot to wait", async || match replicated.snapshot_waits() {
        true => Ok(()),
        false => Err(format!("{:?}", lone.fatal())),
    })
    .await;
    assert_eq!(lone.snapshots.list().unwrap(), [], "half a file takes space");
    lone.change().await.unwrap();
    lone.snapshots.set_full(false);
    until("the snapshot to be there", async || match snapshot_of(lone) {
        index if index >= applied => Ok(()),
        index => Err(format!("up to {index} of {applied}; {:?}", lone.fatal())),
    })
    .await;
    voters.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn status_reports_a_snapshot_waiting_for_space() {
    let voters = Voters::start(3).await;
    let leader = voters.leader().await;
    let follower = voters.others(leader).next().unwrap();
    for voter in [leader, follower] {
        voter.snapshots.set_full(true);
        voter.raft().trigger().snapshot().await.unwrap();
        let subject = format!("coordinator {}", voter.running.id());
        let told = async |wanted: bool| {
            let status = leader.status().await;
            let is = codes(&status).contains(&("snapshot_waits", subject.clone()));
            if is == wanted { Ok(()) } else { Err(format!("{:?}", codes(&status))) }
        };
        until("the leader to tell", async || told(true).await).await;
        voter.snapshots.set_full(false);
        until("nothing to be left", async || told(false).await).await;
    }
    voters.stop().await;
}

/// A voter that waits for space and is stopped leaves nothing running.
#[tokio::test(flavor = "multi_thread")]
async fn snapshot_waiting_for_space_ends_with_coordinator() {
    let mut voters = Voters::start(1).await;
    let lone = voters.0.remove(&1).unwrap();
    lone.snapshots.set_full(true);
    lone.raft().trigger().snapshot().await.unwrap();
    let replicated = Arc::downgrade(lone.running.quorum().unwrap().replicated());
    until("the snapshot to wait", async || match replicated.upgrade().is_some_and(|one| one.snapshot_waits()) {
        true => Ok(()),
        false => Err("it does not".to_owned()),
    })
    .await;
    assert!(lone.running.stop().await.is_none());
    until("nothing to be left", async || match replicated.strong_count() {
        0 => Ok(()),
        count => Err(format!("{count} still hold the state")),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn voter_survives_leader_snapshot_without_space() {
    let voters = Voters::start(3).await;
    let leader = voters.leader().await;
    let victim = voters.others(leader).next().unwrap();
    victim.set_full(true);
    until("the follower to be behind", async || {
        leader.change().await.map_err(|error| error.to_string())?;
        if (10..u64::MAX).contains(&victim.behind(leader)) {
            Ok(())
        } else {
            Err(format!("{} behind", victim.behind(leader)))
        }
    })
    .await;
    leader.raft().trigger().snapshot().await.unwrap();
    let last = leader.running.quorum().unwrap().view().applied_index;
    until("the leader's snapshot", async || match snapshot_of(leader) {
        index if index >= last => Ok(()),
        index => Err(format!("up to {index} of {last}")),
    })
    .await;
    leader.raft().trigger().purge_log(last).await.unwrap();
    until("the leader's log to be cut", async || {
        match leader.raft().metrics().borrow_watched().purged.map_or(0, |id| id.index) {
            index if index >= last => Ok(()),
            index => Err(format!("up to {index} of {last}")),
        }
    })
    .await;
    victim.log.set_full(false);
    // It has space for entries but receives none; it cannot store the snapshot yet.
    let refused = victim.raft().metrics().borrow_watched().last_applied.map_or(0, |id| id.index);
    leader.change().await.unwrap();
    assert!(refused < last && victim.fatal().is_none());
    assert_eq!(victim.snapshots.list().unwrap(), []);
    let told = async |wanted: bool| {
        let subject = format!("coordinator {}", victim.running.id());
        let status = leader.status().await;
        let is = codes(&status).contains(&("snapshot_waits", subject));
        if is == wanted { Ok(()) } else { Err(format!("{:?}; {:?}", codes(&status), victim.fatal())) }
    };
    until("the leader to tell why it does not catch up", async || told(true).await).await;
    victim.snapshots.set_full(false);
    until("the snapshot to be installed", async || match (victim.behind(leader), snapshot_of(victim)) {
        (0, index) if index >= last => Ok(()),
        found => Err(format!("{found:?} of {last}; {:?}", victim.fatal())),
    })
    .await;
    assert!(victim.snapshots.list().unwrap().iter().all(|(name, _)| name.ends_with(".snap")));
    until("nothing to be told any more", async || told(false).await).await;
    voters.stop().await;
}

/// The content of such a disk is unknown: the process ends and reports it.
#[tokio::test(flavor = "multi_thread")]
async fn failed_snapshot_sync_ends_coordinator_with_reason() {
    for operation in [Operation::Sync, Operation::SyncDirectory, Operation::Rename] {
        let mut voters = Voters::start(1).await;
        let lone = voters.0.remove(&1).unwrap();
        let fault = Fault::Error(io::ErrorKind::Other);
        lone.snapshots.arm(Some(FaultPoint { operation: Some(operation), nth: 0, fault }));
        lone.raft().trigger().snapshot().await.unwrap();
        let why = tokio::time::timeout(SOON, lone.running.failed()).await.unwrap().to_string();
        assert!(why.contains("raft failed") && why.contains("snapshot"), "{operation:?}: {why}");
        lone.running.stop().await;
    }
}
