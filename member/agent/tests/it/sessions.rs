//! Sessions: acquisition, hand-over, silence, reconnection, and the end of either side.

use crate::support::{NAME, SOON, World};
use archon_agent::protocol::{Acquire, ReleaseReason};
use archon_client::ErrorKind;
use archon_client::testing::ParticipantReport;
use serde_json::json;
use std::time::{Duration, Instant};

/// Long enough for a busy machine to send a heartbeat within.
const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(300);
/// Timing of a participant that keeps its lease on a busy machine.
const PATIENT: (Duration, Duration, Duration) =
    (Duration::from_millis(200), Duration::from_secs(30), Duration::from_secs(45));

#[tokio::test(flavor = "multi_thread")]
async fn service_acquires_acts_and_hands_over() {
    let world = World::start_with(LONG, Some(PATIENT)).await;
    assert_eq!(world.request("GET /v1/status", &[], b"").await.1["state"], "waiting");
    assert_eq!(world.coordinator.reported(), [], "the participant waits for its service");
    let mut service = world.connect().await;
    let epoch = world.grant(3);
    let offered = service.next_acquire().await;
    assert_eq!((offered.table.as_str(), offered.partition, offered.epoch), ("jobs", 3, epoch.get()));
    assert_eq!(offered.table_id, world.partition(3).table.get());
    assert!(!service.get("/v1/owned/3").await.1["owned"].as_bool().unwrap(), "not before it is acquired");
    service.answer("acquired", 1, 3, epoch.get()).await;
    let (participant, partition) = (NAME.to_owned(), world.partition(3));
    world.reported(ParticipantReport::Acquired { participant, partition, epoch }).await;
    let permission = service.permitted().await;
    assert!(permission.sequence == 1 && permission.valid_for_ms < 30_000, "{permission:?}");
    let owned = service.get("/v1/owned/3").await.1;
    assert!(owned["owned"] == true && owned["epoch"] == epoch.get() && owned["releasing"] == false, "{owned}");
    assert!(owned["valid_for_ms"].as_u64().unwrap() > 0, "{owned}");
    assert_eq!(service.get("/v1/owned/4").await.1["owned"], false);

    assert!(world.coordinator.hand_over(partition, None));
    let release = service.next_release().await;
    assert_eq!((release.partition, release.reason), (3, ReleaseReason::HandedOver));
    assert_eq!(release.deadline_for_ms, Some(8 * 45_000));
    assert_eq!(service.get("/v1/owned/3").await.1["releasing"], true, "it may finish");
    service.answer("released", 2, 3, epoch.get()).await;
    world.released(3, epoch).await;
    assert_eq!(service.get("/v1/owned/3").await.1["owned"], false);
    world.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn listed_answers_are_taken_or_refused_each() {
    let world = World::start(SOON).await;
    let mut service = world.connect().await;
    let mut answers = Vec::new();
    for index in [3, 4, 5] {
        world.grant(index);
        let Acquire { sequence, partition, epoch, .. } = service.next_acquire().await;
        answers.push(json!({"answer": "acquired", "sequence": sequence, "partition": partition, "epoch": epoch}));
    }
    let refused = json!({"answer": "refused", "sequence": 2, "partition": 4, "epoch": answers[1]["epoch"]});
    answers[1]["epoch"] = json!(99);
    let load = |rate| json!({"answer": "load", "bytes_stored": 7, "operations_per_second": rate});
    answers.extend([refused, load(json!(3))]);
    answers.insert(0, load(json!(-1)));
    let (status, taken) = service.post("/v1/answers", &json!(answers)).await;
    let refused: Vec<_> =
        taken["refused"].as_array().unwrap().iter().map(|of| (&of["index"], &of["error"]["kind"])).collect();
    assert_eq!((status, refused), (200, vec![(&json!(0), &json!("invalid")), (&json!(2), &json!("stale"))]), "{taken}");
    service.permitted().await;
    for (index, owned) in [(3, true), (4, false), (5, true)] {
        assert_eq!(service.get(&format!("/v1/owned/{index}")).await.1["owned"], owned, "{index}");
    }
    assert_eq!(service.post("/v1/answers", &json!([])).await, (200, json!({"refused": []})));
    world.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_and_dropped_partitions_are_declined() {
    let world = World::start_with(LONG, Some(PATIENT)).await;
    let mut service = world.connect().await;
    let declined = |index, epoch| {
        let (participant, partition) = (NAME.to_owned(), world.partition(index));
        world.reported(ParticipantReport::Declined { participant, partition, epoch })
    };
    let epoch = world.grant(3);
    service.next_acquire().await;
    service.answer("refused", 1, 3, epoch.get()).await;
    declined(3, epoch).await;
    let epoch = world.grant(4);
    service.acquire().await;
    let drop = json!({"answer": "drop", "partition": 4, "epoch": epoch.get()});
    assert_eq!(service.post("/v1/answers", &drop).await.0, 200);
    let release = service.next_release().await;
    assert_eq!((release.reason, release.deadline_for_ms), (ReleaseReason::Dropped, None));
    service.answer("released", release.sequence, 4, epoch.get()).await;
    declined(4, epoch).await;
    world.end();
}

/// The next process of the service was kept away from the partition.
#[tokio::test(flavor = "multi_thread")]
async fn refusal_by_stopping_service_is_a_release() {
    let world = World::start_with(LONG, Some(PATIENT)).await;
    let mut service = world.connect().await;
    let epoch = world.grant(3);
    service.next_acquire().await;
    let refused = json!({"answer": "refused", "sequence": 1, "partition": 3, "epoch": epoch.get()});
    let taken = service.post("/v1/answers", &json!([{"answer": "stop"}, refused])).await;
    assert_eq!(taken, (200, json!({"refused": []})));
    world.released(3, epoch).await;
    world.left().await;
    world.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_service_loses_its_partitions() {
    let world = World::start(SHORT).await;
    let mut service = world.connect().await;
    let epoch = world.grant(3);
    service.acquire().await;
    // Its connection stays, and it sends no heartbeat.
    world.released(3, epoch).await;
    world.left().await;
    let reason = service.next_end().await;
    assert!(reason.contains("heartbeats") || reason.contains("gone"), "{reason}");
    assert_eq!(service.post("/v1/heartbeat", &json!({"seen": 1})).await.0, 410);
    world.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn service_that_dies_hands_over_when_its_permission_ends() {
    let world = World::start(LONG).await;
    let mut service = world.connect().await;
    let epoch = world.grant(3);
    service.acquire().await;
    service.permitted().await;
    drop(service);
    // Long before the lease of the service, and no later than the lease of the participant.
    world.released(3, epoch).await;
    world.left().await;
    let state = async || {
        let state = world.request("GET /v1/status", &[], b"").await.1;
        if state["state"] == "waiting" { Ok(()) } else { Err(state) }
    };
    archon_testkit::wait_for_async("the agent to wait for a service", SOON, state).await;
    let mut next = world.connect().await;
    let registrations = |reported: &[ParticipantReport]| {
        reported.iter().filter(|reported| matches!(reported, ParticipantReport::Registered { .. })).count()
    };
    world.coordinator.wait_for(SOON, |reported| registrations(reported) == 2).await.unwrap();
    let later = world.grant(3);
    assert_eq!(next.acquire().await, (3, later.get()));
    world.end();
}

/// The service receives each event once, in order: `next` checks the numbers.
#[tokio::test(flavor = "multi_thread")]
async fn late_lost_and_repeated_answers_cause_no_event_twice() {
    let world = World::start_with(LONG, Some(PATIENT)).await;
    let mut service = world.connect().await;
    world.coordinator.delay(NAME, Duration::from_millis(80));
    world.coordinator.lose_answers(NAME, 2);
    let first = world.grant(3);
    assert_eq!(service.acquire().await, (3, first.get()));
    for index in 4..7 {
        let epoch = world.grant(index);
        world.coordinator.repeat(NAME);
        assert_eq!(service.acquire().await, (index, epoch.get()));
        assert!(world.coordinator.hand_over(world.partition(index), None));
        world.coordinator.repeat(NAME);
        let release = service.next_release().await;
        assert_eq!((release.partition, release.epoch), (index, epoch.get()));
        service.answer("released", release.sequence, index, epoch.get()).await;
        world.released(index, epoch).await;
        world.coordinator.repeat(NAME);
    }
    assert!(world.coordinator.withdraw(world.partition(3)));
    world.coordinator.repeat(NAME);
    let lost = service.next_lost().await;
    assert_eq!((lost.partition, lost.epoch), (3, first.get()));
    let last = world.grant(7);
    world.coordinator.repeat(NAME);
    assert_eq!(service.acquire().await, (7, last.get()));
    world.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn reconnected_service_misses_nothing() {
    let world = World::start_with(LONG, Some(PATIENT)).await;
    let mut service = world.connect().await;
    world.grant(3);
    service.acquire().await;
    service.permitted().await;
    let (session, seen) = (service.session.clone(), service.seen);
    drop(service);
    world.grant(4);
    let mut service = world.try_connect(&session, seen).await.unwrap();
    assert_eq!(service.acquire().await.0, 4);
    assert_eq!(service.get("/v1/owned/3").await.1["owned"], true, "nothing was lost");
    // A connection replaces the former one, which the agent need not have missed.
    let mut second = world.try_connect(&session, service.seen).await.unwrap();
    assert_eq!(service.next().await, None);
    world.grant(5);
    assert_eq!(second.acquire().await.0, 5);
    world.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn second_process_is_refused_while_the_first_is_connected() {
    let world = World::start_with(LONG, Some(PATIENT)).await;
    let mut service = world.connect().await;
    let (status, body) = world.try_connect("new", 0).await.err().unwrap();
    assert_eq!((status, &body["error"]["kind"]), (409, &json!("busy")));
    assert!(body["error"]["message"].as_str().unwrap().contains("is connected"), "{body}");
    world.grant(3);
    assert_eq!(service.acquire().await.0, 3);
    let (status, body) = world.try_connect("another", 0).await.err().unwrap();
    assert_eq!((status, &body["error"]["kind"]), (410, &json!("ended")));
    world.end();
}

/// A coordinator may withdraw a partition during the lease. The service learns of it later than the participant.
#[tokio::test(flavor = "multi_thread")]
async fn early_loss_is_reported_after_the_last_permission() {
    let lease = Duration::from_secs(1);
    let world = World::start_with(lease, Some(PATIENT)).await;
    let mut service = world.connect().await;
    let epoch = world.grant(3);
    service.acquire().await;
    service.permitted().await;
    let withdrawn = Instant::now();
    assert!(world.coordinator.withdraw(world.partition(3)));
    assert_eq!(service.next_lost().await.partition, 3);
    let sent = tokio::spawn(async move {
        // The service lives.
        loop {
            service.heartbeat().await;
            tokio::time::sleep(lease / 10).await;
        }
    });
    world.released(3, epoch).await;
    assert!(withdrawn.elapsed() >= lease, "reported after {:?}", withdrawn.elapsed());
    sent.abort();
    world.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn permissions_end_with_the_lease() {
    let world = World::start(LONG).await;
    let mut service = world.connect().await;
    world.grant(3);
    service.acquire().await;
    service.permitted().await;
    world.coordinator.silence(NAME);
    assert_eq!(service.next_lost().await.partition, 3);
    assert_eq!(service.heartbeat().await.valid_for_ms, 0);
    assert_eq!(service.get("/v1/owned/3").await.1["owned"], false);
    world.coordinator.answer(NAME);
    // The same epoch is acquired again: it had no other owner.
    assert_eq!(service.acquire().await.0, 3);
    service.permitted().await;
    world.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_of_either_side_releases_everything() {
    for agent_stops in [false, true] {
        let world = World::start_with(LONG, Some(PATIENT)).await;
        let mut service = world.connect().await;
        let epoch = world.grant(3);
        service.acquire().await;
        if agent_stops {
            world.stop.cancel();
        } else {
            assert_eq!(service.post("/v1/answers", &json!({"answer": "stop"})).await.0, 200);
        }
        let release = service.next_release().await;
        assert_eq!(release.reason, ReleaseReason::Stopped);
        service.answer("released", release.sequence, 3, epoch.get()).await;
        world.released(3, epoch).await;
        world.left().await;
        let reason = service.next_end().await;
        assert!(reason.contains(if agent_stops { "the agent stops" } else { "the service has stopped" }), "{reason}");
        world.stop.cancel();
        world.running.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refusal_of_the_cluster_ends_session_and_agent() {
    let world = World::start(LONG).await;
    world.coordinator.refuse(NAME, ErrorKind::Refused, "the name is taken");
    let mut service = world.connect().await;
    let reason = service.next_end().await;
    assert!(reason.contains("the name is taken"), "{reason}");
    let error = world.running.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("the name is taken"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_ends_a_session_that_is_not_registered() {
    let world = World::start_with(LONG, Some(PATIENT)).await;
    world.coordinator.silence(NAME);
    let mut service = world.connect().await;
    for _ in 0..3 {
        let load = json!({"answer": "load", "bytes_stored": 1, "operations_per_second": 1});
        assert_eq!(service.post("/v1/answers", &load).await.0, 200);
    }
    assert_eq!(service.post("/v1/answers", &json!({"answer": "stop"})).await.0, 200);
    let reason = service.next_end().await;
    assert!(reason.contains("the service has stopped"), "{reason}");
    world.end();
}
