//! Copies of coordinators' directories: an older one is not heard, and does no harm to the directory itself.

use crate::common::Quorum;
use crate::members::{commit, lead};
use crate::{SOON, settings};
use archon_coordinator::{Coordinator, CoordinatorConfig, CoordinatorError};
use archon_documents::CheckTable;
use archon_testkit::{ScratchDirectory, wait_for_async};
use archon_types::CoordinatorRole;
use std::path::Path;
use tokio::net::TcpListener;

/// Starts a coordinator on another directory, at its own address.
async fn start_on(quorum: &Quorum, id: u64, dir: &Path) -> Coordinator {
    let config = CoordinatorConfig { data_dir: dir.to_path_buf(), start: None, ..quorum.config(id) };
    let listener = wait_for_async("the port to be free", SOON, || async {
        TcpListener::bind(config.listen).await.map_err(|error| error.to_string())
    })
    .await;
    Coordinator::start(listener, config).await.unwrap()
}

/// Waits until a coordinator has recorded the expected facts about another one's directory: it writes twice a second.
async fn wait_kept(quorum: &Quorum, keeper: u64, of: u64, fits: impl Fn(&serde_json::Value) -> bool) {
    wait_for_async("what is known of the other's directory to be kept", SOON, || async {
        let kept = std::fs::read_to_string(quorum.dirs[&keeper].path().join("voters.json")).unwrap_or_default();
        let kept: serde_json::Value = serde_json::from_str(&kept).map_err(|error| error.to_string())?;
        if fits(&kept["voters"][of.to_string()]) { Ok(()) } else { Err(kept.to_string()) }
    })
    .await;
}

/// Starts a coordinator on an older copy of its directory, and checks that it refuses to take part.
async fn ends_on_older_copy(quorum: &Quorum, id: u64, old: &Path) {
    let outdated = start_on(quorum, id, old).await;
    let why = tokio::time::timeout(SOON, outdated.failed()).await.expect("an older copy of a directory took part");
    assert!(why.to_string().contains("is an older copy"), "{why}");
    outdated.stop().await;
}

/// Like a backup of yesterday. Entries were committed with its vote since; the third voter knows how far its log went.
#[tokio::test(flavor = "multi_thread")]
async fn older_copy_of_directory_does_not_vote() {
    let mut quorum = Quorum::start(3, settings(1, 4)).await;
    commit(&quorum, "before").await;
    let leader = quorum.leader().await;
    let [restored, third] = [1, 2, 3].into_iter().filter(|id| *id != leader).collect::<Vec<u64>>()[..] else { return };
    let old = ScratchDirectory::in_memory().unwrap();
    copy(quorum.dirs[&restored].path(), old.path());
    commit(&quorum, "precious").await;
    let applied = quorum.confirmed_view().await.applied_index;
    wait_kept(&quorum, third, restored, |kept| kept["holds"].as_u64() >= Some(applied)).await;
    for id in [leader, restored] {
        quorum.running.remove(&id).unwrap().stop().await;
    }
    ends_on_older_copy(&quorum, restored, old.path()).await;
    quorum.restart(leader).await;
    quorum.leader().await;
    let request = CheckTable { table: "precious".to_owned() };
    quorum.ask(&request).await.expect("what was acknowledged");
    quorum.stop_all().await;
}

/// Nothing was committed since the copy was made, but the voter may have voted.
#[tokio::test(flavor = "multi_thread")]
async fn copy_from_before_last_start_is_refused() {
    let mut quorum = Quorum::start(3, settings(1, 4)).await;
    commit(&quorum, "before").await;
    let leader = quorum.leader().await;
    let follower = quorum.peers.keys().copied().find(|id| *id != leader).unwrap();
    quorum.running.remove(&follower).unwrap().stop().await;
    let old = ScratchDirectory::in_memory().unwrap();
    copy(quorum.dirs[&follower].path(), old.path());
    quorum.restart(follower).await;
    commit(&quorum, "since").await;
    wait_kept(&quorum, leader, follower, |kept| kept["starts"].as_u64() == Some(2)).await;
    quorum.running.remove(&follower).unwrap().stop().await;
    ends_on_older_copy(&quorum, follower, old.path()).await;
    // The directory itself is still good.
    quorum.restart(follower).await;
    commit(&quorum, "after").await;
    quorum.stop_all().await;
}

/// An operator uses an older copy of a directory, which is refused, and then the directory itself again.
#[tokio::test(flavor = "multi_thread")]
async fn directory_is_accepted_after_start_of_older_copy() {
    let mut quorum = Quorum::start(3, settings(1, 4)).await;
    commit(&quorum, "before").await;
    let leader = quorum.leader().await;
    let follower = quorum.peers.keys().copied().find(|id| *id != leader).unwrap();
    let old = ScratchDirectory::in_memory().unwrap();
    copy(quorum.dirs[&follower].path(), old.path());
    commit(&quorum, "since").await;
    let applied = quorum.confirmed_view().await.applied_index;
    for keeper in quorum.peers.keys().copied().filter(|id| *id != follower) {
        wait_kept(&quorum, keeper, follower, |kept| kept["holds"].as_u64() >= Some(applied)).await;
    }
    quorum.running.remove(&follower).unwrap().stop().await;
    // Regardless of the number of starts.
    for _ in 0..2 {
        ends_on_older_copy(&quorum, follower, old.path()).await;
    }
    assert!(quorum.running.values().any(Coordinator::is_leading), "the leader went on");
    quorum.restart(follower).await;
    lead(&quorum, follower).await;
    commit(&quorum, "after").await;
    quorum.stop_all().await;
}

/// The others knew how far followers' logs went, but not the leader's.
#[tokio::test(flavor = "multi_thread")]
async fn older_copy_of_leaders_directory_is_refused() {
    let mut quorum = Quorum::start(3, settings(1, 4)).await;
    commit(&quorum, "before").await;
    let leader = quorum.leader().await;
    let old = ScratchDirectory::in_memory().unwrap();
    copy(quorum.dirs[&leader].path(), old.path());
    commit(&quorum, "since").await;
    let applied = quorum.confirmed_view().await.applied_index;
    for keeper in quorum.peers.keys().copied().filter(|id| *id != leader) {
        wait_kept(&quorum, keeper, leader, |kept| kept["holds"].as_u64() >= Some(applied)).await;
    }
    quorum.running.remove(&leader).unwrap().stop().await;
    ends_on_older_copy(&quorum, leader, old.path()).await;
    quorum.restart(leader).await;
    commit(&quorum, "after").await;
    quorum.stop_all().await;
}

/// No coordinator has room to record the log positions of others, so that the copy is not detected and follows.
#[tokio::test(flavor = "multi_thread")]
async fn leader_resends_log_to_follower_with_shorter_log() {
    // A busy machine may need an election of its own, which changes the leader as well.
    for _ in 0..3 {
        if leader_stays_as_it_resends().await {
            return;
        }
    }
    panic!("another one had to lead, three times");
}

/// Has a leader resend entries to a follower that lost them. Returns true if it led to the end.
async fn leader_stays_as_it_resends() -> bool {
    let strangers: serde_json::Map<String, serde_json::Value> =
        (100..164).map(|id: u64| (id.to_string(), stranger())).collect();
    let strangers = serde_json::json!({ "starts": 1, "voters": strangers }).to_string();
    let mut quorum = Quorum::start(3, settings(1, 4)).await;
    commit(&quorum, "before").await;
    let ids: Vec<u64> = quorum.peers.keys().copied().collect();
    for id in &ids {
        quorum.running.remove(id).unwrap().stop().await;
        std::fs::write(quorum.dirs[id].path().join("voters.json"), &strangers).unwrap();
    }
    for id in &ids {
        quorum.restart(*id).await;
    }
    let leader = quorum.leader().await;
    let follower = ids.into_iter().find(|id| *id != leader).unwrap();
    commit(&quorum, "copied").await;
    let old = ScratchDirectory::in_memory().unwrap();
    copy(quorum.dirs[&follower].path(), old.path());
    commit(&quorum, "since").await;
    quorum.running.remove(&follower).unwrap().stop().await;
    let outdated = start_on(&quorum, follower, old.path()).await;
    wait_for_async("it to be sent what it lacks", SOON, || async {
        let view = quorum.view().await.map_err(|error| error.to_string())?;
        let of = view.coordinators.iter().find(|voter| voter.id == follower).ok_or("it is no member")?;
        if of.role == CoordinatorRole::Follower && of.entries_behind == Some(0) {
            Ok(())
        } else {
            Err(format!("{of:?}"))
        }
    })
    .await;
    let stays = quorum.leader().await == leader;
    commit(&quorum, "after").await;
    outdated.stop().await;
    quorum.stop_all().await;
    stays
}

/// Returns the record of a coordinator that is no voter.
fn stranger() -> serde_json::Value {
    let id = uuid::Uuid::from_u128(9).to_string();
    serde_json::json!({ "storage": id, "starts": 1, "boot": id, "holds": 1 })
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            match std::fs::copy(from, to) {
                // It runs: temporary files are renamed over the original ones meanwhile.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                copied => drop(copied.unwrap()),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn second_process_with_copied_directory_is_refused() {
    let mut quorum = Quorum::start(3, settings(1, 4)).await;
    commit(&quorum, "before").await;
    let leader = quorum.leader().await;
    let follower = quorum.peers.keys().copied().find(|id| *id != leader).unwrap();
    let dir = ScratchDirectory::in_memory().unwrap();
    copy(quorum.dirs[&follower].path(), dir.path());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listen = listener.local_addr().unwrap();
    let config = CoordinatorConfig { listen, data_dir: dir.path().to_path_buf(), ..quorum.config(follower) };
    let copied = Coordinator::start(listener, config).await.unwrap();
    tokio::time::timeout(SOON, copied.failed()).await.expect("a copy took part");
    let why = copied.stop().await.expect("there must be a cause");
    assert!(
        matches!(&why, CoordinatorError::Copied { id, address } if *id == follower && *address == quorum.peers[&follower]),
        "{why}"
    );
    // As a newcomer it is refused as well: an identity does not change.
    let (listener, config) = quorum.newcomer(4, &[leader], false).await;
    let config = CoordinatorConfig { data_dir: dir.path().to_path_buf(), ..config };
    let refused = Coordinator::start(listener, config).await.err().expect("a copy joined").to_string();
    assert!(refused.contains(&format!("belongs to coordinator {follower}, not 4")), "{refused}");
    quorum.peers.remove(&4);
    quorum.stop_all().await;
}
