//! Services against a fake coordinator: lost, late and repeated answers.

use crate::service::{CallbackEvent, SOON, Service, wait};
use archon_client::testing::{FakeCoordinator, ParticipantReport};
use archon_client::{Epoch, ErrorKind, Participant, ParticipantBuilder, PartitionId, ReleaseCause};
use futures::future::poll_immediate;
use std::time::{Duration, Instant};

const LEASE: Duration = Duration::from_secs(1);

fn builder(coordinator: &FakeCoordinator, name: &str) -> ParticipantBuilder {
    let builder = Participant::builder([coordinator.address()]).table("jobs").name(name).address("127.0.0.1:80");
    builder.timing(LEASE / 5, LEASE, LEASE + LEASE / 4)
}

async fn start(coordinator: &FakeCoordinator, name: &str, service: &Service) -> Participant {
    builder(coordinator, name).start(service.clone()).await.unwrap()
}

fn acquired(participant: &str, partition: PartitionId, epoch: Epoch) -> ParticipantReport {
    ParticipantReport::Acquired { participant: participant.into(), partition, epoch }
}

fn released(participant: &str, partition: PartitionId, epoch: Epoch) -> ParticipantReport {
    ParticipantReport::Released { participant: participant.into(), partition, epoch }
}

async fn reported(coordinator: &FakeCoordinator, what: ParticipantReport) {
    coordinator.wait_for(SOON, |reported| reported.contains(&what)).await.unwrap();
}

/// Grants a partition to the participant, and waits until it is acquired.
async fn owning(coordinator: &FakeCoordinator, name: &str, index: u32) -> (PartitionId, Epoch) {
    let partition = coordinator.partition("jobs", index);
    let epoch = coordinator.grant(name, partition);
    reported(coordinator, acquired(name, partition, epoch)).await;
    assert_eq!(coordinator.owner(partition), Some((name.to_owned(), epoch)));
    (partition, epoch)
}

#[tokio::test]
async fn withdrawn_partition_is_lost_and_returns_in_higher_epoch() {
    let coordinator = FakeCoordinator::start().await.unwrap();
    let service = Service::default();
    let athens = start(&coordinator, "athens", &service).await;
    let (partition, first) = owning(&coordinator, "athens", 3).await;
    assert_eq!(athens.have_partition(partition).unwrap().check(), Ok(first));
    assert!(coordinator.withdraw(partition));
    reported(&coordinator, released("athens", partition, first)).await;
    assert!(athens.have_partition(partition).is_none());
    assert!(!coordinator.withdraw(partition), "nobody owns it");
    let (_, second) = owning(&coordinator, "athens", 3).await;
    assert!(second > first);
    let told = [
        CallbackEvent::Acquired(coordinator.partition("jobs", 3), first),
        CallbackEvent::Lost(coordinator.partition("jobs", 3), first),
        CallbackEvent::Acquired(coordinator.partition("jobs", 3), second),
    ];
    assert_eq!(*service.told.lock(), told, "of one partition everything comes in order");
    coordinator.end_life("athens");
    wait("all to be lost", || {
        service.count(|told| *told == CallbackEvent::Lost(coordinator.partition("jobs", 3), second)) == 1
    })
    .await;
    wait("a new life", || athens.stats().registrations == 2).await;
    assert!(athens.owned().is_empty());
}

#[tokio::test]
async fn grant_names_the_table_of_its_partition() {
    let coordinator = FakeCoordinator::start().await.unwrap();
    let athens = builder(&coordinator, "athens").table("mails").start(Service::default()).await.unwrap();
    let (jobs, _) = owning(&coordinator, "athens", 3).await;
    // A table created later is named with its first partition.
    let mails = coordinator.partition("mails", 3);
    let epoch = coordinator.grant("athens", mails);
    reported(&coordinator, acquired("athens", mails, epoch)).await;
    let table = |partition| athens.have_partition(partition).unwrap().table().to_owned();
    assert_eq!((table(jobs), table(mails)), ("jobs".to_owned(), "mails".to_owned()));
}

#[tokio::test]
async fn partition_lost_during_release_is_not_released() {
    let coordinator = FakeCoordinator::start().await.unwrap();
    let service = Service { slow: 3 * SOON, ..Service::default() };
    let athens = start(&coordinator, "athens", &service).await;
    let (partition, epoch) = owning(&coordinator, "athens", 0).await;
    let grant = athens.have_partition(partition).unwrap();
    assert!(coordinator.hand_over(partition, None));
    wait("the release to begin", || athens.have_partition(partition).is_none()).await;
    assert_eq!(grant.check(), Ok(epoch), "it still owns it");
    coordinator.withdraw(partition);
    wait("it to be lost", || {
        service.count(|told| *told == CallbackEvent::Lost(coordinator.partition("jobs", 0), epoch)) == 1
    })
    .await;
    assert!(grant.check().is_err());
    assert_eq!(service.count(|told| matches!(told, CallbackEvent::Released(..))), 0);
}

#[tokio::test]
async fn partition_is_handed_over_and_back() {
    let coordinator = FakeCoordinator::start().await.unwrap();
    let first = Service::default();
    let second = first.beside();
    let athens = start(&coordinator, "athens", &first).await;
    let partition = coordinator.partition("jobs", 1);
    // Granted before the participant is registered: it acquires the partition when it registers.
    let before = coordinator.grant("byzantium", partition);
    let byzantium = start(&coordinator, "byzantium", &second).await;
    reported(&coordinator, acquired("byzantium", partition, before)).await;
    assert!(coordinator.hand_over(partition, Some("athens")));
    wait("the other one to own it", || athens.have_partition(partition).is_some()).await;
    let (owner, after) = coordinator.owner(partition).unwrap();
    assert!(owner == "athens" && after > before, "{owner} in {after}");
    assert_eq!(
        second.count(|told| matches!(
            told,
            CallbackEvent::Released(PartitionId { index: 1, .. }, _, ReleaseCause::HandedOver)
        )),
        1
    );
    assert!(athens.drop_partition(partition).await);
    let dropped = ParticipantReport::Declined { participant: "athens".into(), partition, epoch: after };
    assert!(coordinator.reported().contains(&dropped) && coordinator.owner(partition).is_none());
    let again = coordinator.grant("byzantium", partition);
    reported(&coordinator, acquired("byzantium", partition, again)).await;
    assert!(byzantium.stop(SOON).await, "everything was released");
    let tail = [
        ParticipantReport::Stopping { participant: "byzantium".into() },
        released("byzantium", partition, again),
        ParticipantReport::Left { participant: "byzantium".into() },
    ];
    assert!(coordinator.reported().ends_with(&tail), "{:?}", coordinator.reported());
}

#[tokio::test]
async fn stop_releases_before_and_reports_after_it_is_known() {
    let coordinator = FakeCoordinator::start().await.unwrap();
    let service = Service::default();
    let timing = (Duration::from_millis(100), Duration::from_secs(300), Duration::from_secs(400));
    let athens = builder(&coordinator, "athens").timing(timing.0, timing.1, timing.2);
    let athens = athens.start(service.clone()).await.unwrap();
    let (partition, epoch) = owning(&coordinator, "athens", 3).await;
    coordinator.silence("athens");
    let mut stopping = Box::pin(athens.stop(SOON));
    // Its timers do not run, so it does not give up waiting.
    assert!(poll_immediate(&mut stopping).await.is_none());
    let gone = CallbackEvent::Released(partition, epoch, ReleaseCause::Stopped);
    wait("the release", || service.count(|told| *told == gone) == 1).await;
    let is_reported = || coordinator.reported().contains(&released("athens", partition, epoch));
    assert!(!is_reported(), "the partition would be given back");
    coordinator.answer("athens");
    assert!(stopping.await && is_reported());
}

#[tokio::test]
async fn silenced_participant_loses_all_until_it_is_answered() {
    let coordinator = FakeCoordinator::start().await.unwrap();
    let service = Service::default();
    let athens = start(&coordinator, "athens", &service).await;
    let (partition, epoch) = owning(&coordinator, "athens", 2).await;
    let grant = athens.have_partition(partition).unwrap();
    coordinator.silence("athens");
    let silenced = Instant::now();
    let mut last_valid = Duration::ZERO;
    wait("the end of the lease", || {
        let looked = silenced.elapsed();
        let ended = grant.check().is_err();
        last_valid = if ended { last_valid } else { looked };
        ended
    })
    .await;
    assert!(last_valid <= LEASE, "{last_valid:?}");
    wait("the service to be told", || {
        service.count(|told| *told == CallbackEvent::Lost(coordinator.partition("jobs", 2), epoch)) == 1
    })
    .await;
    coordinator.answer("athens");
    // No other participant owned it, so it returns in the same epoch; grants held before do not become valid again.
    wait("it to be owned again", || athens.have_partition(partition).is_some()).await;
    assert!(grant.check().is_err() && athens.have_partition(partition).unwrap().check() == Ok(epoch));
    let told = [
        CallbackEvent::Acquired(coordinator.partition("jobs", 2), epoch),
        CallbackEvent::Lost(coordinator.partition("jobs", 2), epoch),
        CallbackEvent::Acquired(coordinator.partition("jobs", 2), epoch),
    ];
    assert_eq!(*service.told.lock(), told);
}

#[tokio::test]
async fn late_answers_shorten_leases_or_grant_nothing() {
    let coordinator = FakeCoordinator::start().await.unwrap();
    let service = Service::default();
    let athens = start(&coordinator, "athens", &service).await;
    coordinator.delay("athens", Duration::from_millis(80));
    let (partition, epoch) = owning(&coordinator, "athens", 0).await;
    let answered = athens.stats().heartbeats;
    wait("some heartbeats", || athens.stats().heartbeats > answered + 10).await;
    assert_eq!(athens.have_partition(partition).unwrap().check(), Ok(epoch), "it is late, and not too late");
    coordinator.delay("athens", LEASE);
    wait("the end of the lease", || athens.have_partition(partition).is_none()).await;
    wait("the service to be told", || {
        service.count(|told| *told == CallbackEvent::Lost(coordinator.partition("jobs", 0), epoch)) == 1
    })
    .await;
}

#[tokio::test]
async fn repeated_duties_apply_once_and_lost_reports_are_resent() {
    let coordinator = FakeCoordinator::start().await.unwrap();
    let service = Service::default();
    let athens = start(&coordinator, "athens", &service).await;
    coordinator.lose_answers("athens", 2);
    let (partition, epoch) = owning(&coordinator, "athens", 5).await;
    let times =
        |what: ParticipantReport| coordinator.reported().into_iter().filter(|reported| *reported == what).count();
    wait("it to be told again", || times(acquired("athens", partition, epoch)) == 3).await;
    for round in 1..=3 {
        let (other, of) = owning(&coordinator, "athens", 6).await;
        coordinator.repeat("athens");
        // It acquires this one after it has received all repeated answers.
        owning(&coordinator, "athens", 6 + round).await;
        assert_eq!(athens.have_partition(other).unwrap().check(), Ok(of));
        assert_eq!(
            service.count(|told| matches!(told, CallbackEvent::Acquired(PartitionId { index: 6, .. }, _))),
            round as usize
        );
        assert!(coordinator.withdraw(other));
        reported(&coordinator, released("athens", other, of)).await;
        // The service learns of it separately.
        wait("it to be lost", || {
            service.count(|told| *told == CallbackEvent::Lost(coordinator.partition("jobs", 6), of)) == 1
        })
        .await;
    }
    assert_eq!(athens.have_partition(partition).unwrap().check(), Ok(epoch));
    assert_eq!(service.count(|told| matches!(told, CallbackEvent::Acquired(PartitionId { index: 5, .. }, _))), 1);
    assert_eq!(service.count(|told| matches!(told, CallbackEvent::Lost(..))), 3);
}

#[tokio::test]
async fn registration_is_rejected_finally_or_temporarily() {
    let coordinator = FakeCoordinator::start().await.unwrap();
    coordinator.refuse("athens", ErrorKind::Refused, "that name is not for you");
    let refused = builder(&coordinator, "athens").start(Service::default()).await.unwrap_err();
    assert!(refused.kind() == ErrorKind::Refused && refused.to_string().contains("not for you"), "{refused}");
    coordinator.refuse("byzantium", ErrorKind::NoQuorum, "later");
    let starting = tokio::spawn(builder(&coordinator, "byzantium").start(Service::default()));
    let refusals = |reported: &[ParticipantReport]| {
        let refused = ParticipantReport::Refused { participant: "byzantium".into() };
        reported.iter().filter(|reported| **reported == refused).count()
    };
    coordinator.wait_for(SOON, |reported| refusals(reported) >= 2).await.unwrap();
    coordinator.answer("byzantium");
    let byzantium = starting.await.unwrap().unwrap();
    assert_eq!(byzantium.stats().registrations, 1);
    let late = coordinator.wait_for(Duration::from_millis(1), |_| false).await.unwrap_err();
    assert!(late.to_string().contains("byzantium"), "{late}");
}

#[tokio::test]
async fn older_of_two_processes_of_one_name_is_rejected() {
    let coordinator = FakeCoordinator::start().await.unwrap();
    let (first, second) = (Service::default(), Service::default());
    let older = start(&coordinator, "athens", &first).await;
    let (_, epoch) = owning(&coordinator, "athens", 0).await;
    let newer = start(&coordinator, "athens", &second).await;
    let refused = tokio::time::timeout(SOON, older.failed()).await.unwrap();
    assert!(refused.kind() == ErrorKind::Refused, "{refused}");
    wait("everything to be lost", || {
        first.count(|told| *told == CallbackEvent::Lost(coordinator.partition("jobs", 0), epoch)) == 1
    })
    .await;
    assert!(newer.owned().is_empty());
}
