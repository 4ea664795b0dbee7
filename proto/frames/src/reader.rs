//! Reader of frames.

use crate::partial::PartialMessage;
use crate::{FrameError, FrameKind, PartialBudget, cut};
use archon_proto::v1;
use archon_security::ReadHalf;
use bytes::BytesMut;
use prost::Message;
use tokio::io::AsyncReadExt;
use tokio::time::timeout_at;

/// Minimum size of one read. The bytes read are kept as long as a message that shares them.
const READ_BYTES: usize = 16 * 1024;
/// Free space below which the buffer grows before a read.
const ROOM_BYTES_MIN: usize = 1024;

/// Largest frame of an unidentified sender, in bytes.
pub const STRANGER_BYTES_MAX: usize = 64 * 1024;
/// Payloads beyond this size keep their memory, and the reader gets a new buffer.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// Reads frames.
#[derive(Debug)]
pub struct FrameReader {
    from: ReadHalf,
    received: BytesMut,
    bytes_max: usize,
    heard: bool,
    /// Partial message, in a reader with an unidentified sender.
    partial: Option<PartialMessage>,
}

impl FrameReader {
    pub(crate) fn new(from: ReadHalf, bytes_max: usize) -> Self {
        Self { from, received: BytesMut::new(), bytes_max, heard: false, partial: None }
    }

    /// Creates a reader for an unidentified sender, which is limited to small frames until it is
    /// [`known`](Self::known).
    pub(crate) fn of_stranger(from: ReadHalf, partial: PartialBudget) -> Self {
        Self { partial: Some(PartialMessage::new(partial)), ..Self::new(from, STRANGER_BYTES_MAX) }
    }

    /// Marks the sender as identified: from now on each of its frames may have `bytes_max` bytes.
    pub const fn known(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// Returns the next message. Cancel safe.
    ///
    /// # Errors
    /// The reason for the end of the stream; [`FrameError::Closed`] at the end of the connection. No message follows.
    pub async fn next<M: Message + Default>(&mut self) -> Result<M, FrameError> {
        loop {
            while let Some(frame) = cut(&mut self.received, self.bytes_max)? {
                self.partial.iter_mut().for_each(PartialMessage::whole);
                if frame.payload.len() > KEPT_BYTES_MAX {
                    // The memory of a large message is not kept for as long as the connection lasts.
                    self.received = BytesMut::from(&self.received[..]);
                }
                match frame.kind {
                    FrameKind::Message => {
                        return M::decode(frame.payload).map_err(|error| FrameError::Unreadable(error.to_string()));
                    }
                    FrameKind::Error => {
                        let detail = v1::ErrorDetail::decode(frame.payload);
                        let detail = detail.map_err(|error| FrameError::Unreadable(error.to_string()))?;
                        return Err(FrameError::Refused(detail.into()));
                    }
                    FrameKind::Alive => {}
                }
            }
            if self.received.capacity() - self.received.len() < ROOM_BYTES_MIN {
                // In proportion to the received bytes, never to the announced size of a frame.
                let more = READ_BYTES.max(self.received.len());
                if let Some(partial) = &mut self.partial {
                    partial.hold(self.received.len() + more)?;
                }
                self.received.reserve(more);
            }
            let received = self.received.len();
            let read = self.from.read_buf(&mut self.received);
            let read = match &mut self.partial {
                // The rest of a frame has a deadline; the beginning of one does not, as long as its sender is alive.
                Some(partial) if received > 0 => match timeout_at(partial.until(received), read).await {
                    Ok(read) => read,
                    Err(_) => {
                        partial.late(received)?;
                        continue;
                    }
                },
                _ => read.await,
            };
            if read? == 0 {
                return Err(FrameError::Closed);
            }
            self.heard = true;
        }
    }

    /// Returns true if bytes arrived since the last call.
    pub(crate) fn take_heard(&mut self) -> bool {
        std::mem::take(&mut self.heard)
    }
}
