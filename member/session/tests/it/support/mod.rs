//! Shared helpers of the heartbeat tests.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]

pub mod beating;
pub mod relaying;

use archon_frames::{FrameReader, FrameWriter, PartialBudget, StreamKind, accept};
use archon_proto::convert::members::beats::Beat;
use archon_types::{Incarnation, NodeId, PushKey, Version};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::timeout;
use uuid::Uuid;

/// Deadline of events that must happen.
pub const SOON: Duration = Duration::from_secs(60);

/// Returns a heartbeat without any data.
pub fn beat(node: NodeId, incarnation: Incarnation, number: u64) -> Beat {
    Beat {
        node,
        incarnation,
        number,
        table_version: Version::ZERO,
        stopping: false,
        push_key: PushKey::new(Uuid::from_u128(5)),
        load: None,
        doors: None,
        proof: bytes::Bytes::new(),
    }
}

/// Listener of a coordinator or relay.
pub struct FakeListener {
    listener: TcpListener,
    pub address: String,
}

impl FakeListener {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        Self { listener, address }
    }

    /// Waits for the next heartbeat stream, without deadline.
    pub async fn next_stream(&self) -> (FrameReader, FrameWriter) {
        let (connection, _) = self.listener.accept().await.unwrap();
        let (kind, reader, writer) = accept(connection.into(), |_| PartialBudget::new(1 << 20)).await.unwrap();
        assert_eq!(kind, StreamKind::Beats);
        (reader, writer)
    }

    /// As [`next_stream`](Self::next_stream), within [`SOON`].
    pub async fn stream(&self) -> (FrameReader, FrameWriter) {
        timeout(SOON, self.next_stream()).await.expect("a stream")
    }
}
