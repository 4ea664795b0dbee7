//! Arbitrary bytes as the body of any request: an immediate error without effect.

use crate::common::{Quorum, channel, status};
use crate::settings;
use bytes::{Buf as _, BufMut as _, Bytes};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, TestRunner};
use std::time::Duration;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Request, Status};

/// Passes bodies unchanged.
#[derive(Clone, Copy, Default)]
struct RawCodec;

impl Codec for RawCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

/// Methods for which no random body is valid, so that every answer must be an error.
const WRITES: &[&str] = &[
    "Session/Register",
    "Session/Report",
    "Session/Leave",
    "Session/WaitForSpace",
    "Admin/SetNode",
    "Admin/AlterNode",
    "Admin/CreateTable",
    "Admin/AlterTable",
    "Admin/DropTable",
    "Admin/ApplyPlan",
    "Admin/CancelRebalance",
    "Admin/Configure",
    "Admin/Order",
    "Admin/SplitPartition",
    "Admin/MergePartition",
    "Raft/Vote",
    "Raft/PreVote",
    "Raft/Transfer",
    "Raft/Hello",
    "Raft/Snapshot",
];
const READS: &[&str] = &[
    "Session/Duties",
    "Admin/Check",
    "Admin/Status",
    "Admin/ListNodes",
    "Admin/ListTables",
    "Admin/CheckTable",
    "Admin/PlanRebalance",
    "Admin/RebalanceStatus",
    "Admin/ListSettings",
    "Admin/Explain",
    "Admin/Quorum",
    "Admin/Events",
];

/// Bodies that resemble protobuf more often than random bytes.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let field = (1u8..20, prop_oneof![Just(0u8), Just(2), Just(1), Just(5)], any::<[u8; 9]>(), 0usize..40);
    let fields = proptest::collection::vec(field, 0..12).prop_map(|fields| {
        let mut body = Vec::new();
        for (number, kind, bytes, length) in fields {
            body.push(number << 3 | kind);
            match kind {
                0 => body.extend([bytes[0] | 0x80, bytes[1] & 0x7f]),
                1 => body.extend(&bytes[..8]),
                5 => body.extend(&bytes[..4]),
                _ => {
                    body.push(u8::try_from(length).unwrap_or(0));
                    body.extend(bytes.iter().cycle().take(length));
                }
            }
        }
        body
    });
    prop_oneof![fields, proptest::collection::vec(any::<u8>(), 0..200)]
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_requests_are_errors_and_change_nothing() {
    let quorum = Quorum::start(1, settings(1, 64)).await;
    let address = quorum.leader_address().await;
    let before = status(&address).await.unwrap();
    let mut client = Grpc::new(channel(&address));
    let mut runner = TestRunner::new(Config::default());
    for _ in 0..120 {
        let bytes = body().new_tree(&mut runner).unwrap().current();
        for (method, must_fail) in WRITES.iter().map(|m| (m, true)).chain(READS.iter().map(|m| (m, false))) {
            client.ready().await.unwrap();
            let path = format!("/archon.v1.{method}").parse().unwrap();
            let call = client.unary(Request::new(Bytes::from(bytes.clone())), path, RawCodec);
            let answer = tokio::time::timeout(Duration::from_secs(60), call).await;
            let answer = answer.unwrap_or_else(|_| panic!("{method} hangs on {bytes:?}"));
            assert!(!(must_fail && answer.is_ok()), "{method} accepted {bytes:?}");
        }
    }
    assert_eq!(status(&address).await.unwrap(), before);
    quorum.stop_all().await;
}
