//! Tests of real nodes against a coordinator that the test plays.

use crate::support::stream::exchange;
use crate::support::{self, Fake, PARTITION, metric, row};
use archon_kvstore_node::{Node, NodeConfig, RedisConfig};
use archon_proto::convert::error::detail_of;
use archon_proto::convert::kv::packed::{OpPacker, unpack_replies};
use archon_proto::v1;
use archon_testkit::{ScratchDirectory, wait_for_state};
use archon_types::{
    BootId, ClientId, ClusterId, Duty, Epoch, ErrorKind, Fact, Incarnation, NodeId, Op, PartitionId, PlacementId,
    REDIS_SINCE, ReplicaState, Report, TableId, limits,
};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const LIVE: ReplicaState = ReplicaState::Live;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_serves_under_lease_and_keeps_data_after_restart() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let node = fake.node("athens", directory.path()).await;
    let mut kv = fake.kv("athens").await;
    let unknown = kv.put("k", "v").await.unwrap_err();
    assert_eq!(unknown.kind, ErrorKind::Unavailable, "{unknown}");

    let one = row(1, 1, 1, &[(1, fake.id("athens"), LIVE)]);
    fake.host("athens", &one).await;
    assert_eq!(kv.put_when_served("k", "v1").await, 1);
    assert_eq!(kv.put("k", "v2").await.unwrap(), 2);
    assert_eq!(kv.get("k").await.unwrap().as_deref(), Some("v2"));
    assert_eq!(kv.get("absent").await.unwrap(), None);
    fake.reported("the partition is online", |report| report.fact == Fact::Online).await;

    // A clean stop releases every leadership and reports that to the coordinator.
    node.stop().await.unwrap();
    let released = |report: &Report| report.fact == Fact::Released && report.epoch == Epoch::new(1);
    fake.reported("the leadership is released", released).await;
    let left = fake.state.lock().left.clone();
    assert_eq!(left, [fake.id("athens")]);

    let node = fake.node("athens", directory.path()).await;
    assert_eq!(fake.known("athens").unwrap().held, [PlacementId::new(1)]);
    let mut kv = fake.kv("athens").await;
    fake.host("athens", &row(2, 2, 1, &[(1, fake.id("athens"), LIVE)])).await;
    assert_eq!(kv.put_when_served("other", "v3").await, 3);
    assert_eq!(kv.get("k").await.unwrap().as_deref(), Some("v2"));

    // Without a lease no request is answered with a value; with a new lease all are. The health service shows both.
    assert!(fake.serves("athens", "").await && fake.serves("athens", "archon.v1.Kv").await);
    fake.state.lock().grants_stopped = true;
    let refused = kv.get_until_refused("k").await;
    assert_eq!(refused.kind, ErrorKind::NoLease, "{refused}");
    assert!(!fake.serves("athens", "").await && !fake.serves("athens", "archon.v1.Kv").await);
    assert_eq!(kv.put("k", "lost").await.unwrap_err().kind, ErrorKind::NoLease);
    fake.state.lock().grants_stopped = false;
    assert_eq!(kv.put_when_served("k", "v4").await, 4);

    // The valid lease of the node does not cover a withdrawn leadership, and the node releases that leadership.
    fake.state.lock().withdrawn = vec![(PARTITION, Epoch::new(2))];
    let refused = kv.get_until_refused("k").await;
    assert!(matches!(refused.kind, ErrorKind::NoLease | ErrorKind::Unavailable), "{refused}");
    let released = |report: &Report| report.fact == Fact::Released && report.epoch == Epoch::new(2);
    fake.reported("the withdrawn leadership is released", released).await;
    assert_eq!(kv.get("k").await.unwrap_err().kind, ErrorKind::Unavailable);
    node.stop().await.unwrap();
}

/// Rows stay in memory for many seconds, and a plan made meanwhile would show moves of 0 bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sizes_are_reported_before_rows_reach_engine() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let node = fake.node("athens", directory.path()).await;
    fake.host("athens", &row(1, 1, 1, &[(1, fake.id("athens"), LIVE)])).await;
    let mut kv = fake.kv("athens").await;
    let syncs = metric(&node, "archon_engine_syncs_total");
    // Each value alone is too large to wait for the flush after two seconds, as few rows do; these wait for fifteen.
    let value = "x".repeat(96 * 1024);
    kv.put_when_served("key-0", &value).await;
    for number in 1..16 {
        kv.put(&format!("key-{number}"), &value).await.unwrap();
    }
    let load = || fake.state.lock().loads.get(&PlacementId::new(1)).copied();
    let told = |load: &Option<_>| {
        load.is_some_and(|load: archon_proto::convert::members::load::PlacementLoad| load.keys == 16)
    };
    let load = wait_for_state("all keys are counted", load, told).await.unwrap();
    assert!(load.bytes > 16 * 96 * 1024, "{load:?}");
    assert_eq!(metric(&node, "archon_engine_syncs_total"), syncs, "the engine had them by then");
    node.stop().await.unwrap();
}

/// The next leading coordinator knows no sizes, so the node reports unchanged sizes again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sizes_are_reported_to_each_new_leading_coordinator() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let (fake, next) = (Fake::start().await, Fake::start().await);
    let node = fake.node("athens", directory.path()).await;
    fake.host("athens", &row(1, 1, 1, &[(1, fake.id("athens"), LIVE)])).await;
    let mut kv = fake.kv("athens").await;
    kv.put_when_served("key", "value").await;
    let told = |fake: &Fake| fake.state.lock().loads.get(&PlacementId::new(1)).copied();
    let size = wait_for_state("the size is told", || told(&fake), |load| load.is_some_and(|load| load.keys == 1)).await;
    next.state.lock().terms_before = 1;
    fake.state.lock().succeeded_by = Some(next.address.clone());
    wait_for_state("the next coordinator is told", || told(&next), |load| *load == size).await;
    // A coordinator that leads again remembers no sizes either.
    fake.state.lock().loads.clear();
    fake.state.lock().terms_before = 2;
    next.state.lock().succeeded_by = Some(fake.address.clone());
    fake.state.lock().succeeded_by = None;
    wait_for_state("the first one is told again", || told(&fake), |load| *load == size).await;
    node.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_compare_is_not_answered_without_confirmed_leadership() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let athens = fake.node("athens", directory.path()).await;
    let sparta = fake.node("sparta", directory.path()).await;
    let both = row(1, 1, 1, &[(1, fake.id("athens"), LIVE), (2, fake.id("sparta"), LIVE)]);
    fake.host("sparta", &both).await;
    fake.host("athens", &both).await;
    let mut kv = fake.kv("athens").await;
    kv.put_when_served("k", "v").await;
    // The operation has no client id: no record of it is written, so a mismatch has no effect at all.
    let compare = v1::CompareAndSetRequest {
        cluster: Some(fake.cluster.into()),
        key: Bytes::from_static(b"k"),
        expected: 1_000,
        value: Bytes::from_static(b"w"),
        ..Default::default()
    };
    let refused = kv.client.compare_and_set(compare.clone()).await.map_err(|status| detail_of(&status));
    assert_eq!(refused.unwrap_err().kind, ErrorKind::ConditionFailed);
    // No coordinator or follower still confirms the leader: another leader may have written since.
    fake.state.lock().grants_stopped = true;
    sparta.stop().await.unwrap();
    let timeout = std::time::Duration::from_secs(1);
    while let Ok(Ok(_)) = tokio::time::timeout(timeout, kv.get("k")).await {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let answered = tokio::time::timeout(timeout, kv.client.compare_and_set(compare)).await;
    let kind = answered.ok().map(|answer| answer.map_err(|status| detail_of(&status).kind));
    assert!(!matches!(kind, Some(Ok(_) | Err(ErrorKind::ConditionFailed))), "answered from the past: {kind:?}");
    athens.stop().await.unwrap_or_default();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_requests_are_refused_without_effect() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let node = fake.node("athens", directory.path()).await;
    let one = row(1, 5, 1, &[(1, fake.id("athens"), LIVE)]);
    fake.host("athens", &one).await;
    let mut kv = fake.kv("athens").await;
    kv.put_when_served("k", "v").await;

    let large = "x".repeat(limits::VALUE_BYTES_MAX + 1);
    for refused in [kv.put("k", &large).await, kv.put("", "v").await, kv.put(&"k".repeat(5_000), "v").await] {
        assert_eq!(refused.unwrap_err().kind, ErrorKind::InvalidArgument);
    }
    let mut stranger = kv.clone();
    stranger.cluster = ClusterId::new(uuid::Uuid::new_v4());
    assert_eq!(stranger.put("k", "v").await.unwrap_err().kind, ErrorKind::WrongCluster);

    // Pushes for another incarnation, another node, or from a state older than the one in use.
    let host = || vec![Duty::Host { partition: one.clone(), placement: PlacementId::new(1) }];
    let mut push = fake.duties("athens", &one, host());
    push.incarnation = Incarnation::new(1);
    assert_eq!(fake.send("athens", push).await.unwrap_err().kind, ErrorKind::StaleIncarnation);
    let mut push = fake.duties("athens", &one, host());
    push.node = NodeId::new(99);
    assert_eq!(fake.send("athens", push).await.unwrap_err().kind, ErrorKind::WrongNode);
    let older = row(1, 4, 1, &[(1, fake.id("athens"), LIVE)]);
    let unload = vec![Duty::Unload { partition: PARTITION, placement: PlacementId::new(1) }];
    let pushed = fake.send("athens", fake.duties("athens", &older, unload)).await.unwrap();
    assert_eq!(pushed.version, one.version, "an older push is answered, not obeyed");
    assert_eq!(kv.get("k").await.unwrap().as_deref(), Some("v"));
    let mut nonsense = fake.duties("athens", &one, host());
    nonsense.duties.as_mut().unwrap().push(Duty::Host { partition: one.clone(), placement: PlacementId::new(77) });
    let pushed = fake.send("athens", nonsense).await.unwrap();
    assert_eq!(pushed.refused.len(), 1);
    assert_eq!(kv.get("k").await.unwrap().as_deref(), Some("v"));

    // A stream with valid and invalid operations, each answered by its tag.
    let mut ops = OpPacker::new(ClientId::NIL);
    for (tag, key, table, index) in [(1, "k", 1, 0), (2, "", 1, 0), (3, "k", 1, 9), (4, "k", 0, 0)] {
        ops.push(tag, PartitionId::new(TableId::new(table), index), None, &Op::Get { key: key.into() });
    }
    let batch = v1::OpBatch {
        cluster: Some(fake.cluster.into()),
        node: fake.id("athens").get(),
        ops: ops.finish(),
        ..Default::default()
    };
    let address = fake.known("athens").unwrap().address;
    let mut answers = exchange(&address, &batch).await;
    let mut kinds = BTreeMap::new();
    while kinds.len() < 4 {
        let batch: v1::ReplyBatch = answers.next().await.unwrap();
        for reply in unpack_replies(batch.replies) {
            let reply = reply.unwrap();
            kinds.insert(reply.tag, reply.outcome.err().map(|error| error.kind));
        }
    }
    let expected = [
        (1, None),
        (2, Some(ErrorKind::InvalidArgument)),
        (3, Some(ErrorKind::NotPartitionLeader)),
        (4, Some(ErrorKind::InvalidArgument)),
    ];
    assert_eq!(kinds, expected.into());
    let torn = v1::OpBatch { ops: batch.ops.slice(..batch.ops.len() - 1), ..batch };
    let mut refused = exchange(&address, &torn).await;
    let accepted: v1::ReplyBatch = refused.next().await.unwrap();
    assert!(accepted.replies.is_empty());
    let why = refused.next::<v1::ReplyBatch>().await.unwrap_err().into_detail();
    assert_eq!(why.kind, ErrorKind::InvalidArgument, "what cannot be cut into operations ends the stream");
    let mut refused = exchange(&address, &v1::OpBatch::default()).await;
    let why = refused.next::<v1::ReplyBatch>().await.unwrap_err().into_detail();
    assert_eq!(why.kind, ErrorKind::InvalidArgument);
    node.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_confirms_only_its_current_boot_id() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let node = fake.node("athens", directory.path()).await;
    let first = fake.known("athens").unwrap();
    assert!(fake.confirms("athens", first.boot).await);
    assert!(!fake.confirms("athens", BootId::new(uuid::Uuid::new_v4())).await);
    // Another incarnation of the same process has another boot id.
    fake.state.lock().stale = true;
    let again = wait_for_state(
        "the node registers anew",
        || fake.known("athens").unwrap(),
        |known| known.incarnation > first.incarnation,
    )
    .await;
    assert_ne!(again.boot, first.boot);
    assert!(fake.confirms("athens", again.boot).await);
    assert!(!fake.confirms("athens", first.boot).await);
    node.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_incarnation_registers_again_without_leaderships() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let node = fake.node("athens", directory.path()).await;
    fake.host("athens", &row(1, 1, 1, &[(1, fake.id("athens"), LIVE)])).await;
    let mut kv = fake.kv("athens").await;
    kv.put_when_served("k", "v").await;
    let before = fake.known("athens").unwrap().incarnation;
    fake.state.lock().stale = true;
    wait_for_state(
        "the node registers anew",
        || fake.known("athens"),
        |known| known.as_ref().is_some_and(|known| known.incarnation > before),
    )
    .await;
    // The old leadership has ended although the new registration has a lease.
    wait_for_state("nothing is led", || metric(&node, "partitions_led"), |led| *led == 0).await;
    let refused = kv.get("k").await.unwrap_err();
    assert!(refused.kind.is_retryable(), "{refused}");
    fake.host("athens", &row(2, 2, 1, &[(1, fake.id("athens"), LIVE)])).await;
    kv.put_when_served("k2", "v").await;
    assert_eq!(kv.get("k").await.unwrap().as_deref(), Some("v"));
    node.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partition_move_under_writes_loses_no_key() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let athens = fake.node("athens", directory.path()).await;
    let sparta = fake.node("sparta", directory.path()).await;
    let (a, b) = (fake.id("athens"), fake.id("sparta"));
    fake.host("athens", &row(1, 1, 1, &[(1, a, LIVE)])).await;
    let (mut from, mut to) = (fake.kv("athens").await, fake.kv("sparta").await);
    for number in 0..300 {
        from.put_when_served(&format!("early-{number}"), &format!("{number}")).await;
    }
    // Part of the log is gone, so the loader must copy.
    wait_for_state("the log is trimmed", || metric(&athens, "log_trims_total"), |trims| *trims > 0).await;

    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let (stop, mut nodes) = (Arc::clone(&stop), [from.clone(), to.clone()]);
        async move {
            let (mut acknowledged, mut at) = (BTreeMap::new(), 0);
            let mut number = 0_u64;
            while !stop.load(Ordering::Acquire) {
                let (key, value) = (format!("late-{}", number % 50), format!("{number}"));
                match nodes[at].put(&key, &value).await {
                    Ok(_) => {
                        acknowledged.insert(key, value);
                        number += 1;
                    }
                    Err(detail) if detail.kind == ErrorKind::NotPartitionLeader => at = 1 - at,
                    Err(detail) if detail.kind.is_retryable() => {}
                    // The outcome is unknown: the same value is written again.
                    Err(detail) if matches!(detail.kind, ErrorKind::DeadlineExceeded | ErrorKind::MaybeApplied) => {}
                    Err(detail) => panic!("{detail}"),
                }
            }
            (acknowledged, number)
        }
    });

    let loading = row(1, 2, 1, &[(1, a, LIVE), (2, b, ReplicaState::Load)]);
    fake.host("sparta", &loading).await;
    fake.host("athens", &loading).await;
    let caught_up =
        |report: &Report| matches!(report.fact, Fact::CaughtUp { joiner } if joiner.placement == PlacementId::new(2));
    fake.reported("the loader has caught up", caught_up).await;
    assert!(metric(&sparta, "copy_received_bytes_total") > 0, "the copy was pulled page by page");

    let both = row(1, 3, 1, &[(1, a, LIVE), (2, b, LIVE)]);
    fake.host("sparta", &both).await;
    fake.host("athens", &both).await;
    let over = Duty::HandOver { partition: both.clone(), placement: PlacementId::new(1), to: PlacementId::new(2) };
    fake.send("athens", fake.duties("athens", &both, vec![over])).await.unwrap();
    fake.reported("the source has released", |report| report.fact == Fact::Released).await;

    let moved = row(2, 4, 2, &[(1, a, LIVE), (2, b, LIVE)]);
    fake.host("sparta", &moved).await;
    fake.host("athens", &moved).await;
    let online = |report: &Report| report.fact == Fact::Online && report.epoch == Epoch::new(2);
    fake.reported("the target serves", online).await;
    let count = metric(&sparta, "operations_total");
    wait_for_state("writes arrive at the target", || metric(&sparta, "operations_total"), |now| *now > count + 50)
        .await;

    let cleanup = row(2, 5, 2, &[(1, a, ReplicaState::Unload), (2, b, LIVE)]);
    fake.host("sparta", &cleanup).await;
    let unload = Duty::Unload { partition: PARTITION, placement: PlacementId::new(1) };
    fake.send("athens", fake.duties("athens", &cleanup, vec![unload])).await.unwrap();
    fake.reported("the source is deleted", |report| report.fact == Fact::Unloaded).await;
    let alone = row(2, 6, 2, &[(2, b, LIVE)]);
    fake.host("sparta", &alone).await;
    fake.send("athens", fake.duties("athens", &alone, vec![])).await.unwrap();

    stop.store(true, Ordering::Release);
    let (mut acknowledged, written) = writer.await.unwrap();
    assert!(written > 50, "only {written} writes went through");
    acknowledged.extend((0..300).map(|number| (format!("early-{number}"), format!("{number}"))));
    let check = async |kv: &mut support::Kv| {
        for (key, value) in &acknowledged {
            assert_eq!(kv.get(key).await.unwrap().as_ref(), Some(value), "{key}");
        }
    };
    check(&mut to).await;
    // The former leader forwards its requests.
    assert_eq!(from.get("early-1").await.unwrap().as_deref(), Some("1"));
    assert!(metric(&athens, "forwards_total") > 0);

    sparta.stop().await.unwrap();
    let sparta = fake.node("sparta", directory.path()).await;
    fake.host("sparta", &row(3, 7, 2, &[(2, b, LIVE)])).await;
    let mut to = fake.kv("sparta").await;
    to.put_when_served("after", "restart").await;
    check(&mut to).await;
    sparta.stop().await.unwrap();
    athens.stop().await.unwrap();
}

/// A report of a released leadership may be lost, and until it arrives no other copy leads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_report_is_repeated_until_another_copy_leads() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let node = fake.node("athens", directory.path()).await;
    let other = NodeId::new(98);
    let placements = [(1, fake.id("athens"), LIVE), (2, other, ReplicaState::Load)];
    let led = row(1, 1, 1, &placements);
    fake.host("athens", &led).await;
    fake.kv("athens").await.put_when_served("key", "value").await;
    let releases = || {
        let state = fake.state.lock();
        state.reports.iter().filter(|(_, report)| report.fact == Fact::Released).count()
    };
    let hand_over = Duty::HandOver { partition: led.clone(), placement: PlacementId::new(1), to: PlacementId::new(2) };
    fake.send("athens", fake.duties("athens", &led, vec![hand_over])).await.unwrap();
    wait_for_state("it is released, and that is said three times", releases, |count| *count >= 3).await;
    // The coordinator has the report; nothing is left to send.
    fake.host("athens", &row(2, 2, 2, &[placements[0], (2, other, LIVE)])).await;
    let said = releases();
    // Waits at least as long as the three reports took, counted in heartbeats, which the node sends once per tick.
    let heartbeats = metric(&node, "heartbeats_total");
    let beats = || metric(&node, "heartbeats_total");
    wait_for_state("time passes", beats, |beats| *beats >= heartbeats + 12).await;
    assert!(releases() <= said + 1, "one may have been on its way");
    node.stop().await.unwrap();
}

/// It registered in another incarnation, which ended its leaderships.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_address_is_published_without_new_incarnation() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let redis = RedisConfig { listen: "127.0.0.1:0".parse().unwrap(), advertise: None, table: "default".to_owned() };
    let node = Node::start(NodeConfig { redis: Some(redis), ..fake.config("athens", directory.path()) }).await.unwrap();
    let first = wait_for_state("the node registers", || fake.known("athens"), Option::is_some).await.unwrap();
    assert_eq!(first.redis, None, "the cluster does not take it yet");
    let row = row(1, 1, 1, &[(1, first.id, ReplicaState::Live)]);
    fake.host("athens", &row).await;
    let mut kv = fake.kv("athens").await;
    kv.put_when_served("key", "value").await;
    fake.state.lock().protocol = Some(REDIS_SINCE);
    let known = wait_for_state(
        "the address of the Redis listener",
        || fake.known("athens"),
        |known| known.as_ref().is_some_and(|known| known.redis.is_some()),
    )
    .await
    .unwrap();
    assert_eq!((known.incarnation, known.boot), (first.incarnation, first.boot));
    // With the recorded incarnation, an attempt that arrives after a failure would begin another one with an old list of
    // copies.
    assert_eq!(known.expects, None);
    assert_eq!(kv.get("key").await.unwrap().as_deref(), Some("value"), "it leads as before");
    node.stop().await.unwrap();
}
