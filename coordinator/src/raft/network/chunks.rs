//! A received snapshot: its chunks, put together and checked.

use crate::raft::identity::protocol_support::ProtocolSupport;
use archon_proto::v1::SnapshotChunk;
use bytes::{Bytes, BytesMut};
use std::time::Duration;
use tonic::{Status, Streaming};

/// Longest pause between two chunks of a snapshot.
const CHUNK_DEADLINE: Duration = Duration::from_secs(10);

/// Assembles the chunks that follow the header; memory grows with the received bytes, never by the announced length.
pub(super) async fn receive(chunks: &mut Streaming<SnapshotChunk>, length: u64) -> Result<Bytes, Status> {
    let mut body = BytesMut::new();
    while let Some(chunk) = next_chunk(chunks).await? {
        if crc32c::crc32c(&chunk.data) != chunk.crc32c {
            return Err(Status::data_loss("a chunk of the snapshot does not match its checksum"));
        }
        if (body.len() + chunk.data.len()) as u64 > length {
            return Err(Status::invalid_argument("the snapshot is longer than its header says"));
        }
        body.extend_from_slice(&chunk.data);
    }
    if body.len() as u64 != length {
        return Err(Status::data_loss("the snapshot is shorter than its header says"));
    }
    Ok(body.freeze())
}

/// Returns the bytes if they hold a state: openraft ends if its state machine cannot read a snapshot.
pub(super) async fn readable(body: Bytes, spoken: ProtocolSupport) -> Result<Bytes, Status> {
    let checked = tokio::task::spawn_blocking(move || spoken.decode(&body).map(|_| body));
    let checked = checked.await.map_err(|error| Status::internal(format!("the snapshot was not read: {error}")))?;
    checked.map_err(|error| Status::invalid_argument(error.to_string()))
}

pub(super) async fn next_chunk(chunks: &mut Streaming<SnapshotChunk>) -> Result<Option<SnapshotChunk>, Status> {
    tokio::time::timeout(CHUNK_DEADLINE, chunks.message())
        .await
        .map_err(|_| Status::deadline_exceeded("the snapshot stalled"))?
}
