//! Changes of the members of the quorum.

use crate::common::{Quorum, ask_as, hashed, request_id, status};
use crate::{SOON, settings};
use archon_coordinator::{Coordinator, CoordinatorConfig, CoordinatorError};
use archon_documents::{QuorumAction, TransferLead};
use archon_testkit::wait_for_async;
use archon_types::{CoordinatorRole, ErrorDetail, ErrorKind, QuorumChange, ReasonCode};
use tokio::net::TcpListener;

/// Commits something, which shows that the quorum decides.
pub(crate) async fn commit(quorum: &Quorum, name: &str) {
    let id = request_id();
    wait_for_async("a table to be made", SOON, || async {
        let made = ask_as(&quorum.leader_address().await, &hashed(name, 1), &id).await;
        made.map(drop).map_err(|error| error.message)
    })
    .await;
}

/// Waits until a removed coordinator has ended by itself.
async fn ends(quorum: &mut Quorum, id: u64) {
    let gone = quorum.running.remove(&id).unwrap();
    let why = tokio::time::timeout(SOON, gone.failed()).await.expect("it did not believe that it was removed");
    assert!(matches!(why, CoordinatorError::Removed { id: of } if of == id), "{why}");
    gone.stop().await;
}

async fn transfer(quorum: &Quorum, to: u64) -> Result<Option<u64>, ErrorDetail> {
    let request = TransferLead { coordinator_id: Some(to) };
    Ok(quorum.ask(&request).await?.leader_id)
}

/// Makes one the leader, even if another one is faster at first.
pub(crate) async fn lead(quorum: &Quorum, id: u64) {
    wait_for_async("it to lead", SOON, || async {
        match transfer(quorum, id).await {
            Ok(Some(leader)) if leader == id => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_founder_can_be_replaced() {
    let mut quorum = Quorum::start(3, settings(1, 4)).await;
    let cluster = quorum.cluster().await;
    for (new, old) in [(4, 1), (5, 2), (6, 3)] {
        quorum.join(new, &[old, if old == 3 { 4 } else { old + 1 }], false).await;
        commit(&quorum, &format!("with-{new}")).await;
        assert_eq!(quorum.change(QuorumChange::Remove { id: old }).await, Ok(true));
        let (voters, learners) = quorum.changed().await;
        assert!(voters.contains(&new) && !voters.contains(&old) && learners.is_empty(), "{voters:?} {learners:?}");
        commit(&quorum, &format!("without-{old}")).await;
        ends(&mut quorum, old).await;
    }
    assert_eq!(quorum.changed().await, (vec![4, 5, 6], vec![]));
    assert_eq!(quorum.cluster().await, cluster);
    assert_eq!(quorum.confirmed_view().await.retired_ids, [1, 2, 3]);
    // Their start options no longer matter: the log names the members.
    for id in [4, 5, 6] {
        quorum.running.remove(&id).unwrap().stop().await;
        let config = CoordinatorConfig { start: None, ..quorum.config(id) };
        let listener = wait_for_async("the port", SOON, || async {
            TcpListener::bind(config.listen).await.map_err(|error| error.to_string())
        })
        .await;
        quorum.running.insert(id, Coordinator::start(listener, config).await.unwrap());
        commit(&quorum, &format!("after-{id}")).await;
    }
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_grows_from_one_to_five_and_shrinks_to_three() {
    let mut quorum = Quorum::start(1, settings(1, 4)).await;
    commit(&quorum, "alone").await;
    for id in 2..=5 {
        quorum.join(id, &[1], false).await;
        assert_eq!(quorum.changed().await.0, (1..=id).collect::<Vec<_>>());
        commit(&quorum, &format!("of-{id}")).await;
    }
    assert_eq!(quorum.confirmed_view().await.spare_voters, Some(2));
    for (id, left) in [(5, vec![1, 2, 3, 4]), (4, vec![1, 2, 3])] {
        assert_eq!(quorum.change(QuorumChange::Remove { id }).await, Ok(true));
        assert_eq!(quorum.changed().await.0, left);
        commit(&quorum, &format!("without-{id}")).await;
        ends(&mut quorum, id).await;
    }
    assert_eq!(quorum.confirmed_view().await.spare_voters, Some(1));
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn learner_replaces_the_leader() {
    let mut quorum = Quorum::start(3, settings(1, 4)).await;
    let leader = quorum.leader().await;
    quorum.join(4, &[1, 2, 3], true).await;
    assert_eq!(quorum.changed().await, (vec![1, 2, 3], vec![4]));
    assert_eq!(transfer(&quorum, 4).await.unwrap_err().kind, ErrorKind::Refused, "a learner cannot lead");
    let replace = QuorumChange::Replace { old: leader, new: 4 };
    assert_eq!(quorum.change(replace).await, Ok(true));
    let (voters, _) = quorum.changed().await;
    assert!(voters.contains(&4) && !voters.contains(&leader) && voters.len() == 3, "{voters:?}");
    ends(&mut quorum, leader).await;
    commit(&quorum, "after").await;
    lead(&quorum, 4).await;
    wait_for_async("the old leader to know", SOON, || async {
        let leader = quorum.leader().await;
        if leader == 4 { Ok(()) } else { Err(format!("{leader} says that it leads")) }
    })
    .await;
    // Down to one, and no further: each of them could be the last.
    let rest: Vec<u64> = voters.into_iter().filter(|id| *id != 4).collect();
    assert_eq!(quorum.change_with(QuorumChange::Demote { id: rest[0] }, true).await, Ok(true));
    assert_eq!(quorum.changed().await, (vec![rest[1].min(4), rest[1].max(4)], vec![rest[0]]));
    assert!(quorum.change(QuorumChange::Remove { id: rest[1] }).await.unwrap_err().message.contains("on one disk"));
    assert_eq!(quorum.change_with(QuorumChange::Remove { id: rest[1] }, true).await, Ok(true));
    assert_eq!(quorum.changed().await.0, [4]);
    let last = quorum.change(QuorumChange::Remove { id: 4 }).await.unwrap_err();
    assert!(last.message.contains("the only voter"), "{last}");
    ends(&mut quorum, rest[1]).await;
    assert_eq!(quorum.change(QuorumChange::Promote { id: rest[0] }).await, Ok(true));
    assert_eq!(quorum.changed().await.0.len(), 2);
    commit(&quorum, "in-the-end").await;
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_learner_cannot_replace_a_voter() {
    let mut quorum = Quorum::start(3, settings(1, 4)).await;
    let leader = quorum.leader().await;
    let old = quorum.peers.keys().copied().find(|id| *id != leader).unwrap();
    quorum.join(4, &[1, 2, 3], true).await;
    assert_eq!(quorum.changed().await, (vec![1, 2, 3], vec![4]));
    quorum.running.remove(&4).unwrap().stop().await;
    // The leader heard it less than a second ago.
    let replace = QuorumChange::Replace { old, new: 4 };
    for change in [replace, QuorumChange::Promote { id: 4 }] {
        let refused = quorum.change(change).await.unwrap_err();
        assert!(refused.message.contains("coordinator 4 does not answer"), "{refused}");
    }
    assert_eq!(quorum.changed().await, (vec![1, 2, 3], vec![4]));
    quorum.restart(4).await;
    wait_for_async("it to be heard again", SOON, || async {
        quorum.change(QuorumChange::Promote { id: 4 }).await.map_err(|refused| refused.message)
    })
    .await;
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn returning_voter_accepts_leader_that_joined_since() {
    let mut quorum = Quorum::start(3, settings(1, 4)).await;
    let leader = quorum.leader().await;
    let away = quorum.peers.keys().copied().find(|id| *id != leader).unwrap();
    quorum.running.remove(&away).unwrap().stop().await;
    quorum.join(4, &[leader], false).await;
    lead(&quorum, 4).await;
    quorum.restart(away).await;
    wait_for_async("the one that was away to follow", SOON, || async {
        let view = quorum.view().await.map_err(|error| error.to_string())?;
        let of = view.coordinators.iter().find(|voter| voter.id == away).ok_or("it is no member")?;
        if of.role == CoordinatorRole::Follower && of.entries_behind == Some(0) {
            Ok(())
        } else {
            Err(format!("{of:?}"))
        }
    })
    .await;
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn moved_voter_announces_its_address() {
    let mut quorum = Quorum::start(3, settings(1, 4)).await;
    let leader = quorum.leader().await;
    let moves = quorum.peers.keys().copied().find(|id| *id != leader).unwrap();
    quorum.running.remove(&moves).unwrap().stop().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listen = listener.local_addr().unwrap();
    let advertise = Some(listen.to_string());
    let config = CoordinatorConfig { listen, advertise, start: None, ..quorum.config(moves) };
    quorum.running.insert(moves, Coordinator::start(listener, config).await.unwrap());
    wait_for_async("the others to reach it there", SOON, || async {
        let view = quorum.view().await.map_err(|error| error.to_string())?;
        let of = view.coordinators.iter().find(|voter| voter.id == moves).ok_or("it is no member")?;
        if of.address == listen.to_string() && of.role == CoordinatorRole::Follower {
            Ok(())
        } else {
            Err(format!("{of:?}"))
        }
    })
    .await;
    lead(&quorum, moves).await;
    // None of the asked coordinators knows it at its old address.
    quorum.peers.insert(moves, listen.to_string());
    commit(&quorum, "from-there").await;
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leader_moved_with_follower_is_named_at_new_address() {
    let mut quorum = Quorum::start(3, settings(1, 4)).await;
    commit(&quorum, "before").await;
    let stays = quorum.leader().await;
    let moved: Vec<u64> = quorum.peers.keys().copied().filter(|id| *id != stays).collect();
    for id in &moved {
        quorum.running.remove(id).unwrap().stop().await;
    }
    for id in &moved {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let listen = listener.local_addr().unwrap();
        let config =
            CoordinatorConfig { listen, advertise: Some(listen.to_string()), start: None, ..quorum.config(*id) };
        quorum.running.insert(*id, Coordinator::start(listener, config).await.unwrap());
        quorum.peers.insert(*id, listen.to_string());
    }
    // Any leader names the present addresses of all.
    wait_for_async("everybody to be named where they are reached", SOON, || async {
        let view = quorum.view().await.map_err(|error| error.to_string())?;
        let named = view.coordinators.iter().all(|voter| quorum.peers.get(&voter.id) == Some(&voter.address));
        if named { Ok(()) } else { Err(format!("{:?}; {:?}", view.coordinators, quorum.peers)) }
    })
    .await;
    lead(&quorum, moved[0]).await;
    commit(&quorum, "from-there").await;
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn address_without_listener_needs_force() {
    let quorum = Quorum::start(3, settings(1, 4)).await;
    let (leader, free) = (quorum.leader().await, TcpListener::bind("127.0.0.1:0").await.unwrap());
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let other = quorum.peers.keys().copied().find(|id| *id != leader).unwrap();
    for id in [leader, other] {
        let there = QuorumChange::SetAddress { id, address: address.clone() };
        let refused = quorum.change(there).await.unwrap_err();
        assert!(refused.message.contains("does not answer at") && refused.message.contains("--force"), "{refused}");
    }
    let there = QuorumChange::SetAddress { id: other, address: quorum.peers[&other].clone() };
    assert_eq!(quorum.change(there).await, Ok(false), "it is there already");
    let there = QuorumChange::SetAddress { id: other, address };
    assert_eq!(quorum.change_with(there, true).await, Ok(true));
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_change_that_loses_majority_is_refused() {
    let mut quorum = Quorum::start(3, settings(1, 4)).await;
    let leader = quorum.leader().await;
    let others: Vec<u64> = quorum.peers.keys().copied().filter(|id| *id != leader).collect();
    let refused = |result: Result<bool, ErrorDetail>| result.unwrap_err().message;
    assert!(
        refused(quorum.change(QuorumChange::Remove { id: 9 }).await)
            .contains("coordinator 9 does not exist; the members are 1, 2, 3")
    );
    assert!(refused(quorum.change(QuorumChange::Remove { id: others[0] }).await).contains("--force"));
    assert!(refused(quorum.change(QuorumAction::Cancel).await).contains("no change of the quorum is running"));
    assert_eq!(quorum.change(QuorumChange::Promote { id: leader }).await, Ok(false), "it is so already");
    let address = QuorumChange::SetAddress { id: others[0], address: quorum.peers[&leader].clone() };
    assert!(refused(quorum.change(address).await).contains("already uses"));
    quorum.running.remove(&others[0]).unwrap().stop().await;
    wait_for_async("the leader to miss it", SOON, || async {
        let reasons = status(&quorum.leader_address().await).await.map_err(|error| error.to_string())?.reasons;
        let told = reasons.iter().any(|reason| reason.code == ReasonCode::CoordinatorUnreachable);
        if told { Ok(()) } else { Err(format!("{reasons:?}")) }
    })
    .await;
    // One of the two that would remain does not answer.
    assert!(
        refused(quorum.change_with(QuorumChange::Remove { id: others[1] }, true).await)
            .contains("only 1 of the 2 remaining voters answer")
    );
    assert_eq!(quorum.confirmed_view().await.spare_voters, Some(0));
    // The stopped coordinator can be removed, and its number is not reused.
    assert_eq!(quorum.change(QuorumChange::Remove { id: others[0] }).await, Ok(true));
    assert_eq!(quorum.changed().await.0.len(), 2);
    let (listener, config) = quorum.newcomer(others[0], &[leader], false).await;
    let retired = Coordinator::start(listener, config).await.err().expect("a number was used twice").to_string();
    assert!(retired.contains("cannot be reused; join as --id 4"), "{retired}");
    quorum.stop_all().await;
}
