//! Tests of operations at a node that does not lead their partition (PROTOCOL rule 32): forwarded once, or refused.

use crate::support::{Fake, Kv, PARTITION, metric, row, stream};
use archon_frames::{ConnectionProtocol, FrameReader, FrameWriter, Keepalive, PartialBudget, StreamKind, accept};
use archon_kvstore_node::Node;
use archon_proto::convert::error::detail_of;
use archon_proto::convert::kv::packed::{OpPacker, ReplyPacker, unpack_ops, unpack_replies};
use archon_proto::convert::kv::{OpName, TaggedOp, TaggedReply};
use archon_proto::convert::members::control::Push;
use archon_proto::v1;
use archon_testkit::{ScratchDirectory, wait_for_state};
use archon_types::{
    AccessList, Answer, ClientId, ErrorDetail, ErrorKind, Millis, NodeId, Op, OpId, ReplicaState, Revision, Version,
};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tokio::net::TcpListener;
use uuid::Uuid;

const LIVE: ReplicaState = ReplicaState::Live;
const PLAYED: NodeId = NodeId::new(98);
const CLIENT: ClientId = ClientId::new(Uuid::from_u128(7));

/// Starts athens as the leader and byzantium, which only knows that athens leads.
async fn leader_and_other(fake: &Fake, directory: &Path) -> (Node, Node) {
    let (athens, byzantium) = (fake.node("athens", directory).await, fake.node("byzantium", directory).await);
    let row = row(1, 1, 1, &[(1, fake.id("athens"), LIVE)]);
    fake.host("athens", &row).await;
    fake.tell("byzantium", &row).await;
    (athens, byzantium)
}

async fn increment(kv: &mut Kv, id: Option<v1::OpId>) -> Result<i64, ErrorDetail> {
    let request =
        v1::IncrementRequest { cluster: Some(kv.cluster.into()), key: "n".into(), by: 1, id, ..Default::default() };
    Ok(kv.client.increment(request).await.map_err(|status| detail_of(&status))?.into_inner().value)
}

fn name(number: u64) -> OpId {
    OpId { client: CLIENT, number, done_below: 1, stamp: Millis::ZERO }
}

fn named(number: u64) -> Option<v1::OpId> {
    Some(OpName::from(name(number)).into())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_calls_are_answered_by_any_node() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let (athens, byzantium) = leader_and_other(&fake, directory.path()).await;
    let (mut at_leader, mut kv) = (fake.kv("athens").await, fake.kv("byzantium").await);
    let revision = kv.put_when_served("k", "v").await;
    assert_eq!(at_leader.get("k").await.unwrap().as_deref(), Some("v"));
    assert_eq!(kv.get("k").await.unwrap().as_deref(), Some("v"));
    let (cluster, key) = (Some(kv.cluster.into()), Bytes::from_static(b"k"));
    let cas = v1::CompareAndSetRequest {
        cluster: cluster.clone(),
        key: key.clone(),
        expected: 1 << 40,
        ..Default::default()
    };
    let refused = detail_of(&kv.client.compare_and_set(cas).await.unwrap_err());
    assert_eq!((refused.kind, refused.have), (ErrorKind::ConditionFailed, Some(revision)));
    // Operations with the same id count once, at either node.
    assert_eq!(increment(&mut kv, named(1)).await, Ok(1));
    assert_eq!(increment(&mut kv, named(1)).await, Ok(1));
    assert_eq!(increment(&mut at_leader, named(1)).await, Ok(1));
    assert_eq!(increment(&mut kv, None).await, Ok(2));
    let scan = v1::ScanRequest { cluster: cluster.clone(), limit: 10, ..Default::default() };
    let page = kv.client.scan(scan).await.unwrap().into_inner().page.unwrap();
    assert_eq!(page.entries.iter().map(|entry| &entry.key[..]).collect::<Vec<_>>(), [&b"k"[..], b"n"]);
    let gets = vec![v1::Op { op: Some(v1::op::Op::Get(v1::OpGet { key: key.clone() })), ..Default::default() }; 40];
    let batch = v1::BatchRequest { cluster: cluster.clone(), ops: gets, ..Default::default() };
    let replies = kv.client.batch(batch).await.unwrap().into_inner().replies;
    assert_eq!(replies.iter().filter(|reply| matches!(&reply.answer, Some(v1::reply::Answer::Value(_)))).count(), 40);
    let gone = kv.client.delete(v1::DeleteRequest { cluster, key, ..Default::default() }).await.unwrap().into_inner();
    assert!(gone.existed && at_leader.get("k").await.unwrap().is_none());
    let (forwarded, failed) = (metric(&byzantium, "forwards_total"), metric(&byzantium, "forwards_failed_total"));
    assert!(forwarded >= 47 && failed == 0, "{forwarded} were passed on, {failed} in vain");
    assert_eq!(metric(&athens, "forwards_total"), 0);
    byzantium.stop().await.unwrap();
    athens.stop().await.unwrap();
}

/// The leader does not check the rights of a forwarded operation itself: it refuses one from a node with an older list.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operation_forwarded_with_older_access_list_is_refused() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let (athens, byzantium) = leader_and_other(&fake, directory.path()).await;
    fake.kv("athens").await.put_when_served("k", "v").await;
    let address = fake.known("athens").unwrap().address;
    let passed_on = async |access_version| {
        let mut ops = OpPacker::new(ClientId::NIL);
        ops.push(1, PARTITION, None, &Op::Get { key: "k".into() });
        let (cluster, ops) = (Some(fake.cluster.into()), ops.finish());
        let first = v1::OpBatch { cluster, ops, hops: 1, access_version, ..Default::default() };
        let mut answers = stream::exchange(&address, &first).await;
        answered(&mut answers, 1).await.remove(&1).unwrap()
    };
    assert!(passed_on(0).await.is_ok(), "there were no rights yet");
    let row = row(1, 1, 1, &[(1, fake.id("athens"), LIVE)]);
    let list = AccessList { version: Version::new(1 << 20), ..AccessList::default() };
    let push = Push {
        access: Some(list),
        duties: None,
        deltas: Vec::new(),
        nodes: None,
        complete: None,
        ..fake.duties("athens", &row, Vec::new())
    };
    fake.send("athens", push).await.unwrap();
    let detail = passed_on((1 << 20) - 1).await.unwrap_err();
    assert!(detail.kind == ErrorKind::Unavailable && detail.retry_after_ms.is_some(), "{detail}");
    assert!(passed_on(1 << 20).await.is_ok() && passed_on(1 << 21).await.is_ok(), "it knows as much, or more");
    byzantium.stop().await.unwrap();
    athens.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_operation_is_forwarded_only_on_request() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let (athens, byzantium) = leader_and_other(&fake, directory.path()).await;
    fake.kv("byzantium").await.put_when_served("k", "v").await;
    let get = |pass_on, hops| {
        let mut ops = OpPacker::new(ClientId::NIL);
        ops.push(1, PARTITION, None, &Op::Get { key: "k".into() });
        v1::OpBatch { cluster: Some(fake.cluster.into()), ops: ops.finish(), pass_on, hops, ..Default::default() }
    };
    let address = fake.known("byzantium").unwrap().address;
    let answer = async |first: v1::OpBatch| {
        let mut answers = stream::exchange(&address, &first).await;
        answered(&mut answers, 1).await.remove(&1).unwrap()
    };
    let found = answer(get(true, 0)).await;
    assert!(matches!(&found, Ok(Answer::Value(Some(found))) if found.value == "v"), "{found:?}");
    let leader = fake.known("athens").unwrap().address;
    for refused in [answer(get(false, 0)).await, answer(get(false, 1)).await, answer(get(true, 1)).await] {
        let detail = refused.unwrap_err();
        assert_eq!((detail.kind, detail.leader.as_ref()), (ErrorKind::NotPartitionLeader, Some(&leader)));
    }
    let mut refused = stream::exchange(&address, &get(false, 2)).await;
    let accepted: v1::ReplyBatch = refused.next().await.unwrap();
    assert!(accepted.replies.is_empty());
    let why = refused.next::<v1::ReplyBatch>().await.unwrap_err().into_detail();
    assert!(why.kind == ErrorKind::InvalidArgument && why.message.contains("OpBatch.hops"), "{why}");
    byzantium.stop().await.unwrap();
    athens.stop().await.unwrap();
}

/// Reads the answers to `count` operations; returns them by their tags.
async fn answered(answers: &mut FrameReader, count: usize) -> BTreeMap<u64, Result<Answer, ErrorDetail>> {
    let mut found = BTreeMap::new();
    let all = async {
        while found.len() < count {
            let batch: v1::ReplyBatch = answers.next().await.unwrap();
            for reply in unpack_replies(batch.replies) {
                let reply = reply.unwrap();
                found.insert(reply.tag, reply.outcome);
            }
        }
    };
    let late = tokio::time::timeout(Duration::from_secs(60), all).await.is_err();
    assert!(!late, "{} of {count} are answered after 60 s", found.len());
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operation_is_forwarded_at_most_once() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let (athens, byzantium) =
        (fake.node("athens", directory.path()).await, fake.node("byzantium", directory.path()).await);
    for (node, other) in [("athens", "byzantium"), ("byzantium", "athens")] {
        fake.tell(node, &row(1, 1, 1, &[(1, fake.id(other), LIVE)])).await;
    }
    for node in ["athens", "byzantium"] {
        let mut kv = fake.kv(node).await;
        let refused = kv.put("k", "v").await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::NotPartitionLeader, "{refused}");
        assert!(refused.message.starts_with("passed on to the node at "), "{refused}");
    }
    assert_eq!([&athens, &byzantium].map(|node| metric(node, "forwards_total")), [1, 1]);
    byzantium.stop().await.unwrap();
    athens.stop().await.unwrap();
}

/// Leader that the test plays: it accepts streams, and sends only keepalives unless the test answers.
struct PlayedLeader {
    listener: TcpListener,
}

impl PlayedLeader {
    /// Pushes to byzantium a row in which the test leads.
    async fn of(fake: &Fake) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        fake.played_at("cyrene", PLAYED, 5, listener.local_addr().unwrap().to_string());
        fake.tell("byzantium", &row(1, 1, 1, &[(1, PLAYED, LIVE)])).await;
        Self { listener }
    }

    /// Accepts the next stream of forwarded operations.
    async fn stream(&self, fake: &Fake) -> PlayedStream {
        let (connection, _) = self.listener.accept().await.unwrap();
        assert_eq!(ConnectionProtocol::of(&connection).await.unwrap(), ConnectionProtocol::Frames);
        let (kind, mut reader, mut writer) = accept(connection.into(), |_| PartialBudget::new(1 << 26)).await.unwrap();
        assert_eq!(kind, StreamKind::Exchange);
        reader.known(1 << 24);
        let first: v1::OpBatch = reader.next().await.unwrap();
        assert_eq!((first.cluster, first.node), (Some(fake.cluster.into()), PLAYED.get()));
        writer.push(&v1::ReplyBatch::default());
        writer.flush().await.unwrap();
        PlayedStream { reader, writer, keepalive: Keepalive::default() }
    }
}

struct PlayedStream {
    reader: FrameReader,
    writer: FrameWriter,
    keepalive: Keepalive,
}

impl PlayedStream {
    /// Reads at least `count` forwarded operations.
    async fn taken(&mut self, count: usize) -> Vec<TaggedOp> {
        let mut taken = Vec::new();
        while taken.len() < count {
            tokio::select! {
                batch = self.reader.next::<v1::OpBatch>() => {
                    let batch = batch.unwrap();
                    assert_eq!((batch.hops, batch.pass_on), (1, false));
                    taken.extend(unpack_ops(batch.ops).unwrap().into_iter().map(|op| op.op.unwrap()));
                }
                () = self.keepalive.tick() => {
                    self.keepalive.speak(&mut self.writer);
                    self.writer.flush().await.unwrap();
                }
            }
        }
        taken
    }

    async fn answer(&mut self, tag: u64, answer: Answer) {
        let mut replies = ReplyPacker::default();
        replies.push(&TaggedReply { tag, log_time: Millis::new(77), outcome: Ok(answer) });
        let table_version = 1 << 20;
        self.writer.push(&v1::ReplyBatch { replies: replies.finish(), table_version, pong: 0 });
        self.writer.flush().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forwarding_keeps_operation_id_and_leader_table_version() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let byzantium = fake.node("byzantium", directory.path()).await;
    let leader = PlayedLeader::of(&fake).await;
    let mut ops = OpPacker::new(CLIENT);
    let op = Op::Increment { key: "n".into(), by: 3 };
    ops.push(9, PARTITION, Some(&name(4)), &op);
    let cluster = Some(fake.cluster.into());
    let first = v1::OpBatch { cluster, ops: ops.finish(), pass_on: true, ..Default::default() };
    let mut answers = stream::exchange(&fake.known("byzantium").unwrap().address, &first).await;
    let mut played = leader.stream(&fake).await;
    let taken = played.taken(1).await;
    assert_eq!((taken[0].partition, taken[0].id, &taken[0].op), (PARTITION, Some(name(4)), &op));
    let counted = Answer::Counter { value: 3, revision: Revision::new(8) };
    played.answer(taken[0].tag, counted.clone()).await;
    let accepted: v1::ReplyBatch = answers.next().await.unwrap();
    assert!(accepted.replies.is_empty() && accepted.table_version < 1 << 20);
    let batch: v1::ReplyBatch = answers.next().await.unwrap();
    let replies: Vec<TaggedReply> = unpack_replies(batch.replies).map(Result::unwrap).collect();
    assert_eq!(replies, [TaggedReply { tag: 9, log_time: Millis::new(77), outcome: Ok(counted) }]);
    assert_eq!(batch.table_version, 1 << 20);
    byzantium.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_leader_yields_correct_error_per_operation() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let byzantium = fake.node("byzantium", directory.path()).await;
    let leader = PlayedLeader::of(&fake).await;
    let address = leader.listener.local_addr().unwrap().to_string();
    let mut ops = OpPacker::new(CLIENT);
    let (put, get) = (Op::Put { key: "k".into(), value: "v".into() }, Op::Get { key: "k".into() });
    for (tag, id, op) in [(1, Some(name(1)), &put), (2, None, &put), (3, None, &get)] {
        ops.push(tag, PARTITION, id.as_ref(), op);
    }
    let cluster = Some(fake.cluster.into());
    let first = v1::OpBatch { cluster, ops: ops.finish(), pass_on: true, ..Default::default() };
    let mut answers = stream::exchange(&fake.known("byzantium").unwrap().address, &first).await;
    let mut played = leader.stream(&fake).await;
    assert_eq!(played.taken(3).await.len(), 3);
    drop(played);
    let found = answered(&mut answers, 3).await;
    let kinds: Vec<ErrorKind> = found.values().map(|outcome| outcome.as_ref().unwrap_err().kind).collect();
    assert_eq!(kinds, [ErrorKind::DeadlineExceeded, ErrorKind::MaybeApplied, ErrorKind::Unreachable]);
    let said = found[&2].as_ref().unwrap_err();
    assert!(said.message.contains(&address) && said.leader.as_deref() == Some(&*address), "{said}");
    // The leader no longer listens: no operation is sent, so no outcome is unknown.
    drop(leader);
    let refused = fake.kv("byzantium").await.put("k", "v").await.unwrap_err();
    assert_eq!((refused.kind, refused.leader.as_deref()), (ErrorKind::Unreachable, Some(&*address)), "{refused}");
    assert_eq!(metric(&byzantium, "forwards_failed_total"), 4);
    byzantium.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_for_unresponsive_leader_are_bounded() {
    const FLOOD: usize = 4_000;
    // Half of the share of one peer: the rest stays free for others.
    const UNDER_WAY: usize = 2_048;
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let byzantium = fake.node("byzantium", directory.path()).await;
    let leader = PlayedLeader::of(&fake).await;
    let mut ops = OpPacker::new(ClientId::NIL);
    for tag in 0..FLOOD as u64 {
        ops.push(tag, PARTITION, None, &Op::Put { key: "k".into(), value: vec![b'v'; 600].into() });
    }
    let cluster = Some(fake.cluster.into());
    let first = v1::OpBatch { cluster: cluster.clone(), pass_on: true, ..Default::default() };
    let flood = v1::OpBatch { ops: ops.finish(), ..first.clone() };
    let address = fake.known("byzantium").unwrap().address;
    let mut answers = stream::exchange_with(&address, &[first, flood]).await;
    let mut played = leader.stream(&fake).await;
    let found = answered(&mut answers, FLOOD - UNDER_WAY).await;
    let kinds: Vec<ErrorKind> = found.values().map(|outcome| outcome.as_ref().unwrap_err().kind).collect();
    assert!(kinds.iter().all(|kind| *kind == ErrorKind::Overloaded), "{kinds:?}");
    assert!(found.values().all(|outcome| outcome.as_ref().unwrap_err().retry_after_ms.is_some()));
    assert_eq!(played.taken(UNDER_WAY).await.len(), UNDER_WAY);
    // Operations of another client are still forwarded.
    let mut other = fake.kv("byzantium").await;
    let call = tokio::spawn(async move { other.get("k").await });
    let get = played.taken(1).await.remove(0);
    played.answer(get.tag, Answer::Value(None)).await;
    assert_eq!(call.await.unwrap(), Ok(None));
    drop(played);
    let lost = answered(&mut answers, UNDER_WAY).await;
    let kinds: Vec<ErrorKind> = lost.values().map(|outcome| outcome.as_ref().unwrap_err().kind).collect();
    assert!(kinds.iter().all(|kind| *kind == ErrorKind::MaybeApplied), "{kinds:?}");
    wait_for_state("everything is given back", || metric(&byzantium, "admitted_bytes"), |held| *held == 0).await;
    byzantium.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forwarded_operation_ends_with_its_caller() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let byzantium = fake.node("byzantium", directory.path()).await;
    let leader = PlayedLeader::of(&fake).await;
    let mut kv = fake.kv("byzantium").await;
    let mut request = tonic::Request::new(v1::GetRequest {
        cluster: Some(fake.cluster.into()),
        key: "k".into(),
        ..Default::default()
    });
    request.set_timeout(Duration::from_millis(300));
    let call = tokio::spawn(async move { kv.client.get(request).await });
    let mut played = leader.stream(&fake).await;
    played.taken(1).await;
    let late = call.await.unwrap().unwrap_err();
    assert!(matches!(late.code(), tonic::Code::Cancelled | tonic::Code::DeadlineExceeded), "{late:?}");
    wait_for_state("its share is given back", || metric(&byzantium, "admitted_bytes"), |held| *held == 0).await;
    // The same holds after the leader has moved and the former one does not answer.
    let mut kv = fake.kv("byzantium").await;
    let call = tokio::spawn(async move { kv.get("k").await });
    played.taken(1).await;
    fake.tell("byzantium", &row(2, 2, 2, &[(2, NodeId::new(99), LIVE)])).await;
    let moved = call.await.unwrap().unwrap_err();
    assert!(moved.kind == ErrorKind::Unreachable && moved.message.contains("another node leads"), "{moved}");
    byzantium.stop().await.unwrap();
}
