//! Writer of frames.

use crate::{FrameError, FrameKind, HEAD_BYTES, StreamKind};
use archon_proto::v1;
use archon_security::WriteHalf;
use archon_types::ErrorDetail;
use bytes::{BufMut, BytesMut};
use prost::Message;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout_at};

/// Memory that is kept for later frames.
const KEPT_BYTES_MAX: usize = 256 * 1024;

/// Writes to a peer that must make progress: it is given up if it accepts nothing for `stalled`, or not everything
/// within `timeout` of the first wait.
#[derive(Debug)]
pub struct Progress {
    stalled: Duration,
    timeout: Duration,
    since: Option<Instant>,
}

impl Progress {
    /// Creates the state before the first write.
    pub const fn new(stalled: Duration, timeout: Duration) -> Self {
        Self { stalled, timeout, since: None }
    }

    /// Awaits one write of a part. Calls `waits` before the first wait for the peer.
    ///
    /// # Errors
    /// [`FrameError::Stalled`], or the error of the write or of `waits`.
    pub async fn write<T>(
        &mut self,
        write: impl Future<Output = Result<T, FrameError>>,
        waits: impl FnOnce() -> Result<(), FrameError>,
    ) -> Result<T, FrameError> {
        let mut write = pin!(write);
        // Needs no timer while there is room, which is the ordinary case.
        if let Poll::Ready(written) = poll_fn(|context| Poll::Ready(write.as_mut().poll(context))).await {
            return written;
        }
        let now = Instant::now();
        if self.since.is_none() {
            waits()?;
        }
        let until = (now + self.stalled).min(*self.since.get_or_insert(now) + self.timeout);
        timeout_at(until, write).await.map_err(|_| FrameError::Stalled(until - now))?
    }
}

/// Collects frames and writes them.
#[derive(Debug)]
pub struct FrameWriter {
    to: WriteHalf,
    waiting: BytesMut,
    /// The connection has accepted bytes that it has not sent: it encrypts them.
    held: bool,
    said: bool,
}

impl FrameWriter {
    pub(crate) fn new(to: WriteHalf) -> Self {
        Self { to, waiting: BytesMut::new(), held: false, said: false }
    }

    pub(crate) fn handshake(to: WriteHalf, kind: StreamKind) -> Self {
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
        // Messages are bounded far below, by the limits of operations and of the data sent to a peer at once.
        self.waiting.put_u32_le(u32::try_from(length).unwrap_or(u32::MAX));
    }

    /// Returns true if all queued data was sent.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && !self.held
    }

    /// Writes the queued data. Cancel safe: a later call continues.
    ///
    /// # Errors
    /// If the connection broke.
    pub async fn flush(&mut self) -> Result<(), FrameError> {
        while !self.is_empty() {
            self.write_some().await?;
        }
        self.shrink();
        Ok(())
    }

    /// Writes a part of the queued data, or sends the bytes held by the connection.
    async fn write_some(&mut self) -> Result<(), FrameError> {
        if self.waiting.is_empty() {
            self.to.flush().await?;
            self.held = false;
            return Ok(());
        }
        if self.to.write_buf(&mut self.waiting).await? == 0 {
            return Err(FrameError::Closed);
        }
        self.held = matches!(self.to, WriteHalf::Tls(_));
        self.said = true;
        Ok(())
    }

    /// Releases memory after a large message.
    fn shrink(&mut self) {
        if self.waiting.capacity() > KEPT_BYTES_MAX {
            self.waiting = BytesMut::new();
        }
    }

    /// Like [`flush`](Self::flush), to a peer that must make progress: it is given up if it accepts nothing for
    /// `stalled`, or not everything within `timeout`.
    ///
    /// # Errors
    /// [`FrameError::Stalled`], or if the connection broke.
    pub async fn flush_within(&mut self, stalled: Duration, timeout: Duration) -> Result<(), FrameError> {
        let mut progress = Progress::new(stalled, timeout);
        while !self.is_empty() {
            progress.write(self.write_some(), || Ok(())).await?;
        }
        self.shrink();
        Ok(())
    }

    /// Returns true if data was sent since the last call.
    pub(crate) fn take_said(&mut self) -> bool {
        std::mem::take(&mut self.said)
    }
}
