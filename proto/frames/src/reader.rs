//! What arrives.

use crate::partial::PartialMessage;
use crate::{FrameError, FrameKind, PartialBudget, cut};
use archon_proto::v1;
use archon_security::ReadHalf;
use bytes::BytesMut;
use prost::Message;
use tokio::io::AsyncReadExt;
use tokio::time::timeout_at;

/// Bytes that are asked of the connection at once, at least. What was read is kept as long as a message that shares it.
const READ_BYTES: usize = 16 * 1024;
/// Room below which more is made before reading.
const ROOM_BYTES_MIN: usize = 1024;

/// Bytes of a frame of somebody who has not said who it is.
pub const STRANGER_BYTES_MAX: usize = 64 * 1024;
/// Payloads beyond this leave with the memory they came in.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// Reads frames.
#[derive(Debug)]
pub struct FrameReader {
    from: ReadHalf,
    received: BytesMut,
    bytes_max: usize,
    heard: bool,
    /// What has arrived of a message, in a reader that takes what strangers send.
    partial: Option<PartialMessage>,
}

impl FrameReader {
    pub(crate) fn new(from: ReadHalf, bytes_max: usize) -> Self {
        Self { from, received: BytesMut::new(), bytes_max, heard: false, partial: None }
    }

    /// A reader of what a stranger sends, who may send little until it is [`known`](Self::known).
    pub(crate) fn of_stranger(from: ReadHalf, partial: PartialBudget) -> Self {
        Self { partial: Some(PartialMessage::new(partial)), ..Self::new(from, STRANGER_BYTES_MAX) }
    }

    /// The sender has said who it is: from now on each of its frames may have `bytes_max` bytes.
    pub const fn known(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// The next message. Dropping the future loses nothing.
    ///
    /// # Errors
    /// Why there is none; [`FrameError::Closed`] at the end of the connection. There is no further one then.
    pub async fn next<M: Message + Default>(&mut self) -> Result<M, FrameError> {
        loop {
            while let Some(frame) = cut(&mut self.received, self.bytes_max)? {
                self.partial.iter_mut().for_each(PartialMessage::whole);
                if frame.payload.len() > KEPT_BYTES_MAX {
                    // What made room for a large message is not kept for as long as the connection lasts.
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
                // In proportion to what has arrived, never to what a frame says that it holds.
                let more = READ_BYTES.max(self.received.len());
                if let Some(partial) = &mut self.partial {
                    partial.hold(self.received.len() + more)?;
                }
                self.received.reserve(more);
            }
            let received = self.received.len();
            let read = self.from.read_buf(&mut self.received);
            let read = match &mut self.partial {
                // The rest of a frame is to come in time; the beginning of one may be waited for as long as its sender lives.
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

    /// Whether anything arrived since this was last asked.
    pub(crate) fn take_heard(&mut self) -> bool {
        std::mem::take(&mut self.heard)
    }
}
