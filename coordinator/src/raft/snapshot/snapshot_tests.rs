//! Tests of voters that were away for longer than the log is kept, and get a snapshot.

use crate::raft::connect;
use crate::raft::quorum::test_founders::{SOON, founder, listening, until};
use crate::{Coordinator, CoordinatorConfig, CoordinatorError, FirstStart};
use archon_documents::{ChangeQuorum, MethodCall as _, write};
use archon_proto::{documents, v1};
use archon_security::{ExpectedPeer, Transport};
use archon_testkit::ScratchDirectory;
use archon_types::QuorumChange;
use openraft::async_runtime::WatchReceiver as _;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use uuid::Uuid;

fn purged(coordinator: &Coordinator) -> u64 {
    let metrics = coordinator.quorum().unwrap().raft.metrics();
    let metrics = metrics.borrow_watched();
    metrics.purged.map_or(0, |id| id.index)
}

/// Three coordinators, one of which is away; the log begins after that one's last entry.
struct LaggingQuorum {
    peers: BTreeMap<u64, String>,
    dirs: BTreeMap<u64, ScratchDirectory>,
    running: BTreeMap<u64, Coordinator>,
    leader: u64,
    away: u64,
    /// The last entry before the remaining log.
    last: u64,
}

impl LaggingQuorum {
    async fn start() -> Self {
        let (peers, listeners) = listening(3).await;
        let dirs = (1..=3).map(|id| (id, ScratchDirectory::in_memory().unwrap())).collect();
        let mut bed = Self { peers, dirs, running: BTreeMap::new(), leader: 0, away: 0, last: 0 };
        for (id, listener) in listeners {
            bed.running.insert(id, Coordinator::start(listener, bed.config(id)).await.unwrap());
        }
        bed.leader = until("a leader", async || bed.leads()).await;
        bed.away = (1..=3).find(|id| *id != bed.leader).unwrap();
        bed.running.remove(&bed.away).unwrap().stop().await;

        let raft = bed.running[&bed.leader].quorum().unwrap().raft.clone();
        for _ in 0..50 {
            raft.write_blank().await.unwrap();
        }
        bed.last = raft.metrics().borrow_watched().last_applied.unwrap().index;
        raft.trigger().snapshot().await.unwrap();
        until("the snapshot", async || {
            let built = raft.metrics().borrow_watched().snapshot.map_or(0, |id| id.index);
            if built >= bed.last { Ok(()) } else { Err(format!("built up to {built} of {}", bed.last)) }
        })
        .await;
        raft.trigger().purge_log(bed.last).await.unwrap();
        until("the log to be purged", async || {
            let purged = purged(&bed.running[&bed.leader]);
            if purged >= bed.last { Ok(()) } else { Err(format!("purged up to {purged} of {}", bed.last)) }
        })
        .await;
        bed
    }

    fn config(&self, id: u64) -> CoordinatorConfig {
        founder(id, &self.peers, self.dirs[&id].path())
    }

    fn leads(&self) -> Result<u64, String> {
        let leading: Vec<u64> = self.running.values().filter(|one| one.is_leading()).map(Coordinator::id).collect();
        if let [leader] = leading[..] { Ok(leader) } else { Err(format!("{leading:?} lead")) }
    }

    /// Restarts the coordinator that was away.
    async fn start_again(&self) -> Coordinator {
        let listener = TcpListener::bind(self.peers[&self.away].as_str()).await.unwrap();
        Coordinator::start(listener, self.config(self.away)).await.unwrap()
    }

    /// Waits until a coordinator has the content of the snapshot.
    async fn until_it_has_all(&self, what: &str, coordinator: &Coordinator) {
        until(what, async || {
            let Some(quorum) = coordinator.quorum() else { return Err("not started".to_owned()) };
            let applied = quorum.view().applied_index;
            let cluster = quorum.replicated().read(|state| state.cluster);
            if applied >= self.last && !cluster.is_nil() {
                return Ok(());
            }
            Err(format!("applied {applied} of {}", self.last))
        })
        .await;
    }

    async fn stop(self) {
        for (_, coordinator) in self.running {
            coordinator.stop().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn voter_that_lags_behind_the_log_installs_a_snapshot() {
    let bed = LaggingQuorum::start().await;
    let back = bed.start_again().await;
    bed.until_it_has_all("the snapshot to be installed", &back).await;
    assert!(std::fs::read_dir(bed.dirs[&bed.away].path().join("snapshots")).unwrap().count() > 0);

    // The installed snapshot is still there after a restart.
    back.stop().await;
    let back = bed.start_again().await;
    bed.until_it_has_all("the restarted voter to have it still", &back).await;
    back.stop().await;
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_change_during_a_snapshot_transfer() {
    let mut bed = LaggingQuorum::start().await;
    let leaves = (1..=3).find(|id| *id != bed.leader && *id != bed.away).unwrap();
    // A newcomer, which needs the snapshot as well, and the one that was away, at once.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let through = vec![bed.peers[&bed.leader].clone()];
    bed.peers.insert(4, listener.local_addr().unwrap().to_string());
    bed.dirs.insert(4, ScratchDirectory::in_memory().unwrap());
    let start = Some(FirstStart::Join { through, learner: true });
    let newcomer = tokio::spawn(Coordinator::start(listener, CoordinatorConfig { start, ..bed.config(4) }));
    let back = bed.start_again().await;
    bed.running.insert(bed.away, back);
    bed.running.insert(4, newcomer.await.unwrap().unwrap());

    // One of the other two leaves for the newcomer meanwhile: the request is repeated until accepted, because the
    // newcomer has to be a member first.
    let address = bed.peers[&bed.leader].clone();
    let replace = ChangeQuorum { action: QuorumChange::Replace { old: leaves, new: 4 }.into(), force: false };
    let begun = Instant::now();
    loop {
        let request_id = Uuid::new_v4().into_bytes().to_vec().into();
        let document = write(&replace).unwrap().into();
        let request = tonic::Request::new(v1::AdminRequest { cluster: None, request_id, document });
        let channel = connect(&Transport::default(), &address, ExpectedPeer::Coordinators).unwrap();
        match documents::call(channel.into(), ChangeQuorum::METHOD, request).await {
            Ok(_) => break,
            Err(status) => assert!(begun.elapsed() < SOON, "the change is refused: {status}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let gone = bed.running.remove(&leaves).unwrap();
    let why = tokio::time::timeout(SOON, gone.failed()).await.expect("it did not hear that it was removed");
    assert!(matches!(why, CoordinatorError::Removed { .. }), "{why}");
    gone.stop().await;

    let wanted = BTreeSet::from([bed.leader, bed.away, 4]);
    for (id, coordinator) in &bed.running {
        bed.until_it_has_all(&format!("coordinator {id} to have it all"), coordinator).await;
        until(&format!("coordinator {id} to know the members"), async || {
            let state = coordinator.quorum().unwrap().replicated();
            let (voters, done) = state.read(|state| {
                let coordinators = &state.coordinators;
                (coordinators.voters(), coordinators.pending.is_none() && !coordinators.joint)
            });
            if voters == wanted && done { Ok(()) } else { Err(format!("{voters:?}, done: {done}")) }
        })
        .await;
    }
    until("one leader", async || bed.leads().map(|_| ())).await;
    bed.stop().await;
}
