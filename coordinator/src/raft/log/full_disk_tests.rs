//! Tests of coordinators on disks that are full, or fail.

mod snapshots;

use crate::Coordinator;
use crate::raft::identity::protocol_support::ProtocolSupport;
use crate::raft::machine::raft::Raft;
use crate::raft::quorum::test_founders::{SOON, founder, listening, status_of, until};
use crate::raft::snapshot::SnapshotDir;
use crate::raft::{LOG_DIR, Proposal, SNAPSHOTS_DIR, Storage};
use archon_coordinator_core::{Actor, Command};
use archon_documents::Status;
use archon_testkit::ScratchDirectory;
use archon_types::{ErrorDetail, ErrorKind, Partitioning, TableContent};
use archon_wal::WalConfig;
use archon_wal::disk::{Disk as _, FaultDisk, RealDisk};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(5);
/// Small, so that a log is soon full.
const SEGMENT_BYTES: u64 = 256 * 1024;

/// A coordinator with its log and its snapshots on separate disks.
struct Voter {
    running: Coordinator,
    log: Arc<FaultDisk>,
    snapshots: Arc<FaultDisk>,
    _dir: ScratchDirectory,
}

impl Voter {
    /// Fills or frees both disks: in practice log and snapshots mostly share one.
    fn set_full(&self, full: bool) {
        self.log.set_full(full);
        self.snapshots.set_full(full);
    }

    fn raft(&self) -> &Raft {
        &self.running.quorum().unwrap().raft
    }

    /// Returns the reason why Raft ended, if it did.
    fn fatal(&self) -> Option<String> {
        self.running.quorum().unwrap().view().fatal
    }

    /// Proposes as an operator would, with so many commands that a few of these fill a file of the log. The state
    /// refuses them.
    async fn change(&self) -> Result<(), ErrorDetail> {
        let quorum = self.running.quorum().unwrap();
        let Some(term) = quorum.leading_term() else { return Err(quorum.not_leading()) };
        let name = "a-table-that-wants-more-copies-than-there-may-be-of-anything".to_owned();
        let commands = vec![
            Command::CreateTable {
                name,
                partitioning: Partitioning::Hash { partitions: 0 },
                replication: 0,
                holds: TableContent::Data
            };
            400
        ];
        let who = Actor::Admin { identity: Some("admin/test".to_owned()), from: [127, 0, 0, 1].into(), via: None };
        let proposal = Proposal { term, request: None, who, commands };
        quorum.propose(proposal, WITHIN).await.map(|responses| assert_eq!(responses.len(), 400))
    }

    /// Returns the status in its view, once the others have confirmed that it leads: on a busy machine they may be late.
    async fn status(&self) -> Status {
        let address = self.running.address().to_string();
        until("a status", async || status_of(&address).await.map_err(|error| error.to_string())).await
    }

    /// Returns the number of entries by which its log is behind that of the leader `of`.
    fn behind(&self, of: &Voter) -> u64 {
        let view = of.running.quorum().unwrap().view();
        view.voters
            .iter()
            .find(|voter| voter.id == self.running.id())
            .and_then(|voter| voter.entries_behind)
            .unwrap_or(u64::MAX)
    }

    async fn has_caught_up(&self, with: &Voter) {
        until("it to have caught up", async || match self.behind(with) {
            0 => Ok(()),
            behind => Err(format!("{behind} behind; {:?}", self.fatal())),
        })
        .await;
    }
}

struct Voters(BTreeMap<u64, Voter>);

impl Voters {
    async fn start(count: u64) -> Self {
        let (peers, listeners) = listening(count).await;
        let mut voters = BTreeMap::new();
        for (id, listener) in listeners {
            let dir = ScratchDirectory::in_memory().unwrap();
            let config = founder(id, &peers, dir.path());
            let disk = |name| Arc::new(FaultDisk::new(Arc::new(RealDisk::open(&dir.path().join(name)).unwrap())));
            let (log, snapshots) = (disk(LOG_DIR), disk(SNAPSHOTS_DIR));
            let disks = (Arc::clone(&log), Arc::clone(&snapshots));
            let running = Coordinator::start_on(listener, config, Arc::default(), move |data_dir, local_voter| {
                let (directory, wal) =
                    (data_dir.join(LOG_DIR), WalConfig { segment_bytes: SEGMENT_BYTES, ..WalConfig::default() });
                let snapshots = SnapshotDir::open_on(disks.1, &data_dir.join(SNAPSHOTS_DIR), local_voter.quorum)?;
                Storage::open_on(disks.0, directory, wal, (snapshots, ProtocolSupport::default()))
            });
            voters.insert(id, Voter { running: running.await.unwrap(), log, snapshots, _dir: dir });
        }
        let voters = Self(voters);
        voters.leader().await.change().await.unwrap();
        voters
    }

    /// Waits for a leader and returns it.
    async fn leader(&self) -> &Voter {
        until("a leader", async || {
            let leader = self.0.values().find(|voter| voter.running.is_leading());
            leader.ok_or_else(|| "no leader".to_owned())
        })
        .await
    }

    fn others(&self, of: &Voter) -> impl Iterator<Item = &Voter> {
        let id = of.running.id();
        self.0.values().filter(move |voter| voter.running.id() != id)
    }

    async fn stop(self) {
        for voter in self.0.into_values() {
            assert_eq!(voter.fatal(), None, "coordinator {}", voter.running.id());
            voter.running.stop().await;
        }
    }
}

/// Proposes changes until they are refused for lack of space.
async fn fill(voter: &Voter) -> ErrorDetail {
    for _ in 0..100 {
        match voter.change().await {
            Ok(()) => {}
            Err(error) if error.kind == ErrorKind::Overloaded => {}
            Err(error) => {
                assert_eq!(voter.fatal(), None, "{error}");
                return error;
            }
        }
    }
    panic!("the log was never full");
}

async fn changes_again(voters: &Voters) {
    until("changes to be taken again", async || {
        voters.leader().await.change().await.map_err(|error| error.to_string())
    })
    .await;
}

fn codes(status: &Status) -> Vec<(&str, String)> {
    let shown = status.reasons.iter().map(|reason| (reason.code.as_str(), reason.subject.to_string()));
    shown.filter(|(_, subject)| subject.starts_with("coordinator")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn coordinator_keeps_running_on_a_full_disk() {
    let voters = Voters::start(1).await;
    let lone = &voters.0[&1];
    lone.set_full(true);
    let refused = fill(lone).await;
    assert_eq!(refused.kind, ErrorKind::ReadOnly, "{refused}");
    assert!(refused.message.contains(LOG_DIR) && refused.message.contains("free disk space"), "{refused}");
    // It leads, confirms for heartbeats, and reports the lack.
    lone.running.quorum().unwrap().confirm(WITHIN).await.unwrap();
    let status = lone.status().await;
    assert_eq!(codes(&status), [("read_only", "coordinators".to_owned()), ("disk_full", "coordinator 1".to_owned())]);
    assert!(status.coordinators[0].lack.as_ref().is_some_and(|lack| lack.contains("MiB are needed")), "{status:?}");
    // This holds for repeated requests.
    for _ in 0..50 {
        assert_eq!(lone.change().await.unwrap_err().kind, ErrorKind::ReadOnly);
    }
    lone.set_full(false);
    changes_again(&voters).await;
    assert_eq!(codes(&lone.status().await), []);
    voters.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_changes_are_refused_on_a_full_disk() {
    let voters = Voters::start(1).await;
    let lone = &voters.0[&1];
    lone.set_full(true);
    // All of them wait for Raft at once, before anything is written.
    let raft = lone.raft().clone();
    let pause = tokio::spawn(async move { raft.with_raft_state(|_| std::thread::sleep(Duration::from_secs(1))).await });
    let refused = futures::future::join_all((0..200).map(|_| lone.change())).await;
    pause.await.unwrap().unwrap();
    let kinds = refused.iter().filter_map(|outcome| outcome.as_ref().err().map(|error| error.kind));
    assert!(kinds.clone().any(|kind| kind == ErrorKind::ReadOnly), "{:?}", kinds.collect::<Vec<_>>());
    lone.running.quorum().unwrap().confirm(WITHIN).await.unwrap();
    lone.set_full(false);
    changes_again(&voters).await;
    voters.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn follower_keeps_running_on_a_full_disk() {
    let voters = Voters::start(3).await;
    let leader = voters.leader().await;
    let victim = voters.others(leader).next().unwrap();
    victim.set_full(true);
    let lacks = |status: &Status| {
        let of = status.coordinators.iter().find(|one| one.id == victim.running.id());
        of.is_some_and(|one| one.lack.is_some())
    };
    until("the follower to lack space", async || {
        leader.change().await.map_err(|error| error.to_string())?;
        if lacks(&leader.status().await) { Ok(()) } else { Err(format!("{} behind", victim.behind(leader))) }
    })
    .await;
    // The quorum continues without it, well beyond its capacity.
    until("it to be left behind", async || {
        leader.change().await.map_err(|error| error.to_string())?;
        let behind = victim.behind(leader);
        if (10..u64::MAX).contains(&behind) { Ok(()) } else { Err(format!("{behind} behind")) }
    })
    .await;
    let subject = format!("coordinator {}", victim.running.id());
    let status = leader.status().await;
    // It may be so far behind by now that a snapshot waits for space as well.
    let told = codes(&status);
    assert!(told.contains(&("disk_full", subject.clone())), "{told:?}");
    assert!(told.iter().all(|(_, of)| *of == subject), "{told:?}");
    assert_eq!(victim.fatal(), None);
    victim.set_full(false);
    victim.has_caught_up(leader).await;
    voters.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leader_without_space_gives_way() {
    let voters = Voters::start(3).await;
    let first = voters.leader().await;
    first.set_full(true);
    let refused = fill(first).await;
    assert!(
        matches!(refused.kind, ErrorKind::ReadOnly | ErrorKind::NotCoordinatorLeader | ErrorKind::NoQuorum),
        "{refused}"
    );
    let second = until("another one to lead", async || {
        let leader = voters.others(first).find(|voter| voter.running.is_leading());
        leader.ok_or_else(|| format!("{:?}", first.fatal()))
    })
    .await;
    for _ in 0..20 {
        second.change().await.unwrap();
    }
    assert!(second.running.is_leading());
    first.set_full(false);
    first.has_caught_up(second).await;
    voters.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_without_a_storing_majority_are_refused() {
    let mut voters = Voters::start(3).await;
    let leader = voters.leader().await;
    for victim in voters.others(leader) {
        victim.set_full(true);
    }
    let refused = until("changes to be refused", async || match leader.change().await {
        Err(error) if error.kind == ErrorKind::ReadOnly => Ok(error),
        other => Err(format!("{other:?}")),
    })
    .await;
    for victim in voters.others(leader) {
        assert!(refused.message.contains(&format!("coordinator {} at", victim.running.id())), "{refused}");
    }
    let last = || leader.running.quorum().unwrap().view().last_log_index;
    let before = last();
    for _ in 0..20 {
        assert_eq!(leader.change().await.unwrap_err().kind, ErrorKind::ReadOnly);
    }
    assert_eq!(last(), before, "something was appended nevertheless");
    // Leases need no entry, and voters without space for changes store the first entry of another leader.
    leader.running.quorum().unwrap().confirm(WITHIN).await.unwrap();
    let id = leader.running.id();
    let gone = voters.0.remove(&id).unwrap();
    gone.running.stop().await;
    until("another one to lead", async || {
        let confirmed = voters.leader().await.running.quorum().unwrap().confirm(WITHIN).await;
        confirmed.map_err(|error| error.to_string())
    })
    .await;
    assert_eq!(voters.leader().await.change().await.unwrap_err().kind, ErrorKind::ReadOnly);
    for victim in voters.0.values() {
        victim.set_full(false);
    }
    changes_again(&voters).await;
    voters.stop().await;
}

/// A snapshot is small, and the log need not hold the entries in it.
#[tokio::test(flavor = "multi_thread")]
async fn full_log_is_cut_after_a_snapshot() {
    let voters = Voters::start(1).await;
    let lone = &voters.0[&1];
    lone.log.set_full(true);
    fill(lone).await;
    // Many times the size of the prepared files.
    for _ in 0..50 {
        changes_again(&voters).await;
    }
    assert!(lone.log.free_bytes() == Some(0), "there was never more space");
    voters.stop().await;
}
