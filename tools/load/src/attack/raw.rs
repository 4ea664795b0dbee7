//! A raw stream to a node, without the client's limits.

use super::target::Target;
use archon_frames::StreamKind;
use archon_proto::convert::kv::packed::OpPacker;
use archon_proto::v1;
use archon_security::{Protocol, Stream};
use archon_types::{ClientId, Op, OpId, PartitionId};
use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use std::io;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

const MESSAGE: u8 = 1;
const ALIVE: u8 = 3;

/// A connection after the handshake; its owner handles received bytes.
pub(super) struct RawStream(pub(super) Stream);

impl RawStream {
    /// Connects. `window` bounds the system's receive buffer of an unread stream.
    pub(super) async fn open(target: &Target, window: Option<u32>) -> io::Result<Self> {
        let address = target.address.parse().map_err(|_| io::Error::from(io::ErrorKind::AddrNotAvailable));
        let stream = match (address, window) {
            (Ok(address), Some(window)) => {
                let socket = TcpSocket::new_v4()?;
                socket.set_recv_buffer_size(window)?;
                socket.connect(address).await?
            }
            _ => TcpStream::connect(&target.address).await?,
        };
        stream.set_nodelay(true)?;
        let stream = match target.transport.tls() {
            None => stream.into(),
            Some(tls) => {
                let host = target.address.rsplit_once(':').map_or(&*target.address, |(host, _)| host);
                let shaken = tls.connect(stream, host, &target.expected, Protocol::Frames).await;
                shaken.map_err(io::Error::other)?
            }
        };
        let mut stream = Self(stream);
        stream.send(&StreamKind::Exchange.handshake()).await?;
        let first = v1::OpBatch { cluster: Some(target.cluster.into()), node: target.node.get(), ..Default::default() };
        stream.send(&frame(&first)).await?;
        Ok(stream)
    }

    /// Sends a frame, or a part of one.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).await?;
        self.0.flush().await
    }

    /// Sends a keepalive.
    pub(super) async fn alive(&mut self) -> io::Result<()> {
        self.send(&[ALIVE, 0, 0, 0, 0]).await
    }
}

/// Returns a frame with a message.
fn frame(message: &impl Message) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(MESSAGE);
    out.put_u32_le(u32::try_from(message.encoded_len()).unwrap_or(u32::MAX));
    out.put_slice(&message.encode_to_vec());
    out.freeze()
}

/// Returns a frame with operations, which have ids if there is a client.
pub(super) fn operations(
    partition: PartitionId,
    client: ClientId,
    ops: impl IntoIterator<Item = (Option<OpId>, Op)>,
) -> Bytes {
    let mut packer = OpPacker::new(client);
    for (tag, (id, op)) in (1..).zip(ops) {
        packer.push(tag, partition, id.as_ref(), &op);
    }
    frame(&v1::OpBatch { ops: packer.finish(), ..Default::default() })
}
