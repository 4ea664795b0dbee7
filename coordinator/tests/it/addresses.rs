//! Coordinators that are started at other addresses, with hints by `--peers`.

use crate::common::{Quorum, ask_as, hashed, request_id, status};
use crate::{SOON, settings};
use archon_coordinator::{Coordinator, CoordinatorConfig, FirstStart};
use archon_documents::Quorum as QuorumView;
use archon_testkit::wait_for_async;
use archon_types::CoordinatorRole;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::net::TcpListener;

/// Stops some coordinators and starts them at new addresses; `said` returns the start of each, given all present
/// addresses.
async fn moved(quorum: &mut Quorum, moves: &[u64], said: impl Fn(u64, &BTreeMap<u64, String>) -> Option<FirstStart>) {
    let mut listeners = BTreeMap::new();
    for id in moves {
        quorum.running.remove(id).unwrap().stop().await;
    }
    for id in moves {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        quorum.peers.insert(*id, listener.local_addr().unwrap().to_string());
        listeners.insert(*id, listener);
    }
    for (id, listener) in listeners {
        let config = CoordinatorConfig { start: said(id, &quorum.peers), ..quorum.config(id) };
        quorum.running.insert(id, Coordinator::start(listener, config).await.unwrap());
    }
}

async fn all_recorded(quorum: &Quorum) {
    wait_for_async("everybody to be recorded where it is", SOON, || async {
        let view = quorum.view().await.map_err(|error| error.to_string())?;
        let there = view.coordinators.iter().all(|voter| quorum.peers.get(&voter.id) == Some(&voter.address));
        let heard = view.coordinators.iter().all(|voter| voter.role != CoordinatorRole::Unreachable);
        if there && heard && view.pending.is_none() { Ok(()) } else { Err(format!("{view:?}; {:?}", quorum.peers)) }
    })
    .await;
}

/// Restarts all coordinators without hints; only the log contains their addresses.
async fn restart_untold(quorum: &mut Quorum) {
    for id in 1..=3 {
        quorum.running.remove(&id).unwrap().stop().await;
    }
    for id in 1..=3 {
        let config = CoordinatorConfig { start: None, ..quorum.config(id) };
        let listener = wait_for_async("the port", SOON, || async {
            TcpListener::bind(config.listen).await.map_err(|error| error.to_string())
        })
        .await;
        quorum.running.insert(id, Coordinator::start(listener, config).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn moved_coordinators_are_found_and_recorded_by_leader() {
    let mut quorum = Quorum::start(3, settings(1, 4)).await;
    let cluster = quorum.cluster().await;
    moved(&mut quorum, &[1, 2, 3], |id, all| (id != 3).then(|| FirstStart::Found { peers: all.clone() })).await;
    all_recorded(&quorum).await;
    assert_eq!(quorum.cluster().await, cluster);
    restart_untold(&mut quorum).await;
    all_recorded(&quorum).await;
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn moved_coordinator_announces_address_from_its_peers() {
    let mut quorum = Quorum::start(3, settings(1, 4)).await;
    let leader = quorum.leader().await;
    let moves = quorum.peers.keys().copied().find(|id| *id != leader).unwrap();
    // The leader has no hint about it.
    moved(&mut quorum, &[moves], |_, all| Some(FirstStart::Found { peers: all.clone() })).await;
    all_recorded(&quorum).await;
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outdated_peer_list_moves_no_answering_member() {
    let mut quorum = Quorum::start(3, settings(1, 4)).await;
    all_recorded(&quorum).await;
    let old = quorum.peers.clone();
    moved(&mut quorum, &[1, 2, 3], |_, all| Some(FirstStart::Found { peers: all.clone() })).await;
    all_recorded(&quorum).await;
    // As in an unchanged unit file; other processes use these addresses by now.
    let mut others = Vec::new();
    for address in old.values() {
        others.extend(TcpListener::bind(address).await.ok());
    }
    for id in 1..=3 {
        quorum.running.remove(&id).unwrap().stop().await;
        let config = CoordinatorConfig { start: Some(FirstStart::Found { peers: old.clone() }), ..quorum.config(id) };
        let listener = wait_for_async("the port", SOON, || async {
            TcpListener::bind(config.listen).await.map_err(|error| error.to_string())
        })
        .await;
        quorum.running.insert(id, Coordinator::start(listener, config).await.unwrap());
        all_recorded(&quorum).await;
    }
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_another_quorum_are_not_mistaken() {
    // A busy machine may need an election of its own, which raises the term as well.
    for _ in 0..3 {
        if term_stays_beside_strangers().await {
            return;
        }
    }
    panic!("strangers raised the term, three times");
}

/// Runs a quorum beside strangers at its addresses. Returns true if its term stayed.
async fn term_stays_beside_strangers() -> bool {
    let (mut quorum, other) = (Quorum::start(3, settings(1, 4)).await, Quorum::start(3, settings(1, 4)).await);
    let (cluster, before) = (other.cluster().await, other.confirmed_view().await);
    quorum.leader().await;
    let strangers = other.peers.clone();
    moved(&mut quorum, &[1, 2, 3], |id, all| {
        let peers = strangers.iter().map(|(of, there)| (*of, if *of == id { &all[&id] } else { there }.clone()));
        Some(FirstStart::Found { peers: peers.collect() })
    })
    .await;
    let address = quorum.peers[&1].clone();
    wait_for_async("it to be told", SOON, || async {
        match status(&address).await {
            Err(error) if error.message.contains("where --peers says") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert!(quorum.running.values().all(|coordinator| !coordinator.is_leading()));
    let after = other.confirmed_view().await;
    let addresses = |view: QuorumView| view.coordinators.into_iter().map(|voter| voter.address).collect::<Vec<_>>();
    assert_eq!(other.cluster().await, cluster);
    let stays = after.term == before.term;
    assert_eq!(addresses(after), addresses(before));
    // With correct hints they continue.
    moved(&mut quorum, &[1, 2, 3], |_, all| Some(FirstStart::Found { peers: all.clone() })).await;
    all_recorded(&quorum).await;
    let id = request_id();
    wait_for_async("a table to be made", Duration::from_secs(60), || async {
        let made = ask_as(&quorum.leader_address().await, &hashed("after", 1), &id).await;
        made.map(drop).map_err(|error| error.message)
    })
    .await;
    other.stop_all().await;
    quorum.stop_all().await;
    stays
}
