//! What tests of heartbeats share.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]

pub mod relaying;

use archon_frames::{FrameReader, FrameWriter, PartialBudget, StreamKind, accept};
use archon_proto::convert::beats::Beat;
use archon_types::{Incarnation, NodeId, PushKey, Version};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::timeout;
use uuid::Uuid;

/// How long something is waited for that is to happen.
pub const SOON: Duration = Duration::from_secs(20);

/// A heartbeat of a member of which there is nothing to say.
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

/// A coordinator's listener, or a relay's.
pub struct Played {
    listener: TcpListener,
    pub address: String,
}

impl Played {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        Self { listener, address }
    }

    /// The next stream of heartbeats that is begun here, whenever that is.
    pub async fn next_stream(&self) -> (FrameReader, FrameWriter) {
        let (connection, _) = self.listener.accept().await.unwrap();
        let (kind, reader, writer) = accept(connection.into(), |_| PartialBudget::new(1 << 20)).await.unwrap();
        assert_eq!(kind, StreamKind::Beats);
        (reader, writer)
    }

    /// As [`next_stream`](Self::next_stream), soon.
    pub async fn stream(&self) -> (FrameReader, FrameWriter) {
        timeout(SOON, self.next_stream()).await.expect("a stream")
    }
}
