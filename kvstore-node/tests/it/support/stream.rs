//! Streams of frames, as peers and clients open and accept them.

use archon_frames::{FrameError, FrameReader, FrameWriter, Keepalive, StreamKind, connect};
use archon_proto::v1;
use archon_security::{ExpectedPeer, Transport};
use prost::Message;
use std::time::Duration;
use tokio::sync::mpsc;

const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Opens a stream to `address` for replication messages, which stays open until the sender is dropped.
pub async fn replicate(address: &str) -> mpsc::Sender<v1::ReplicationBatch> {
    let (mut reader, mut writer) = open(address, StreamKind::Replicate).await;
    let (sender, mut batches) = mpsc::channel::<v1::ReplicationBatch>(16);
    tokio::spawn(async move {
        let mut keepalive = Keepalive::default();
        loop {
            tokio::select! {
                batch = batches.recv() => match batch {
                    Some(batch) => writer.push(&batch),
                    None => return,
                },
                said = reader.next::<v1::ReplicationBatch>() => if said.is_err() { return },
                () = keepalive.tick() => if keepalive.mark(&mut reader, &mut writer).is_err() { return },
            }
            if writer.flush().await.is_err() {
                return;
            }
        }
    });
    sender
}

/// Opens a client's stream to `address` and sends `first`.
pub async fn exchange(address: &str, first: &v1::OpBatch) -> FrameReader {
    exchange_with(address, std::slice::from_ref(first)).await
}

/// Opens a client's stream to `address` and sends all `batches`.
pub async fn exchange_with(address: &str, batches: &[v1::OpBatch]) -> FrameReader {
    let (reader, mut writer) = open(address, StreamKind::Exchange).await;
    batches.iter().for_each(|batch| writer.push(batch));
    writer.flush().await.unwrap();
    // Stays open until the test has read all it needs.
    tokio::spawn(async move {
        let mut keepalive = Keepalive::default();
        loop {
            keepalive.tick().await;
            keepalive.speak(&mut writer);
            if writer.flush().await.is_err() {
                return;
            }
        }
    });
    reader
}

/// Opens a stream of this kind to `address`.
pub async fn open(address: &str, kind: StreamKind) -> (FrameReader, FrameWriter) {
    connect(&Transport::default(), address, &ExpectedPeer::Servers, kind, MESSAGE_BYTES_MAX, Duration::from_secs(5))
        .await
        .unwrap()
}

/// Passes each message of a stream to `take`, until the stream ends.
pub async fn read<M: Message + Default>(
    mut reader: FrameReader,
    mut writer: FrameWriter,
    take: impl Fn(M),
) -> Result<(), FrameError> {
    reader.known(MESSAGE_BYTES_MAX);
    let mut keepalive = Keepalive::default();
    loop {
        tokio::select! {
            message = reader.next() => take(message?),
            () = keepalive.tick() => {
                keepalive.speak(&mut writer);
                writer.flush().await?;
            }
        }
    }
}
