//! What leaves.

use crate::{FrameError, FrameKind, HEAD_BYTES, StreamKind};
use archon_proto::v1;
use archon_types::ErrorDetail;
use bytes::{Buf, BufMut, BytesMut};
use prost::Message;
use std::io::ErrorKind;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::time::{Instant, timeout_at};

/// Memory that is kept for what leaves next.
const KEPT_BYTES_MAX: usize = 256 * 1024;

/// Gathers frames and writes them.
#[derive(Debug)]
pub struct FrameWriter {
    to: OwnedWriteHalf,
    waiting: BytesMut,
    said: bool,
}

impl FrameWriter {
    pub(crate) fn new(to: OwnedWriteHalf) -> Self {
        Self { to, waiting: BytesMut::new(), said: false }
    }

    pub(crate) fn handshake(to: OwnedWriteHalf, kind: StreamKind) -> Self {
        let mut writer = Self::new(to);
        writer.waiting.put_slice(&kind.handshake());
        writer
    }

    /// Queues a message for [`flush`](Self::flush).
    pub fn push(&mut self, message: &impl Message) {
        self.frame(FrameKind::Message, message);
    }

    /// Queues the error that ends the stream.
    pub fn refuse(&mut self, detail: ErrorDetail) {
        self.frame(FrameKind::Error, &v1::ErrorDetail::from(detail));
    }

    pub(crate) fn alive(&mut self) {
        self.head(FrameKind::Alive, 0);
    }

    fn frame(&mut self, kind: FrameKind, payload: &impl Message) {
        let length = payload.encoded_len();
        self.head(kind, length);
        let encoded = payload.encode(&mut self.waiting);
        debug_assert!(encoded.is_ok(), "there is room for all of it");
    }

    fn head(&mut self, kind: FrameKind, length: usize) {
        self.waiting.reserve(HEAD_BYTES + length);
        self.waiting.put_u8(kind.code());
        // Messages are bounded far below, by the limits of operations and by those of what is sent to a peer at once.
        self.waiting.put_u32_le(u32::try_from(length).unwrap_or(u32::MAX));
    }

    /// Whether everything queued has left.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Writes what is queued. Dropping the future loses nothing: a later call goes on.
    ///
    /// # Errors
    /// If the connection broke.
    pub async fn flush(&mut self) -> Result<(), FrameError> {
        while !self.waiting.is_empty() {
            if self.to.write_buf(&mut self.waiting).await? == 0 {
                return Err(FrameError::Closed);
            }
            self.said = true;
        }
        if self.waiting.capacity() > KEPT_BYTES_MAX {
            self.waiting = BytesMut::new();
        }
        Ok(())
    }

    /// As [`flush`](Self::flush), to a peer that takes something again and again: if it takes nothing for `stalled`, or not
    /// all within `patience`, it is given up.
    ///
    /// # Errors
    /// [`FrameError::Stalled`], or if the connection broke.
    pub async fn flush_within(&mut self, stalled: Duration, patience: Duration) -> Result<(), FrameError> {
        let mut since = None;
        while !self.waiting.is_empty() {
            // Without a timer as long as there is room, which is the ordinary case.
            match self.to.try_write(&self.waiting) {
                Ok(0) => return Err(FrameError::Closed),
                Ok(written) => {
                    self.waiting.advance(written);
                    self.said = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let now = Instant::now();
                    let until = (now + stalled).min(*since.get_or_insert(now) + patience);
                    let room = timeout_at(until, self.to.writable()).await;
                    room.map_err(|_| FrameError::Stalled(until - now))??;
                }
                Err(error) => return Err(error.into()),
            }
        }
        if self.waiting.capacity() > KEPT_BYTES_MAX {
            self.waiting = BytesMut::new();
        }
        Ok(())
    }

    /// Whether anything left since this was last asked.
    pub(crate) fn take_said(&mut self) -> bool {
        std::mem::take(&mut self.said)
    }
}
