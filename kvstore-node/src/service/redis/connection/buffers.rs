//! Bytes of a connection that have arrived, and replies that are sent.

use archon_frames::{FrameError, Progress};
use archon_security::{UnreadBudget, UnreadShare};
use bytes::BytesMut;
use std::net::IpAddr;
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

/// Room for one read.
const READ_BYTES: usize = 16 * 1024;
/// Capacity of buffers that an idle connection keeps.
pub(super) const KEPT_BYTES_MAX: usize = 2 * READ_BYTES;
/// Longest time in which a client takes nothing of the replies that wait for it.
const STALLED: Duration = Duration::from_secs(3);
/// Longest time in which a client takes one batch of replies.
const REPLIES_TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes that have arrived.
#[derive(Default)]
pub(super) struct Input {
    pub(super) bytes: BytesMut,
    /// Upper bound of the memory behind `bytes`. The capacity of `bytes` leaves out what was taken from its beginning.
    pub(super) allocated: usize,
}

impl Input {
    /// Makes room for one read, in less memory after a large request.
    pub(super) fn make_room(&mut self) {
        if self.allocated > KEPT_BYTES_MAX && self.bytes.len() <= READ_BYTES {
            let mut smaller = BytesMut::with_capacity(self.bytes.len() + READ_BYTES);
            smaller.extend_from_slice(&self.bytes);
            *self = Self { bytes: smaller, allocated: 0 };
        }
        self.bytes.reserve(READ_BYTES);
        self.allocated = self.allocated.max(self.bytes.capacity());
    }

    /// Frees the memory of a large request once all bytes are taken.
    pub(super) fn shrink(&mut self) {
        if self.bytes.is_empty() && self.allocated > KEPT_BYTES_MAX {
            *self = Self::default();
        }
    }
}

/// Sends replies to a client that must make progress. Those that it does not take at once count among the unread ones.
pub(super) async fn send(
    stream: &mut (impl AsyncWrite + Unpin),
    replies: &mut BytesMut,
    unread: &UnreadBudget,
    from: IpAddr,
) -> Result<(), FrameError> {
    let mut progress = Progress::new(STALLED, REPLIES_TIMEOUT);
    let mut share: Option<UnreadShare> = None;
    let bytes = replies.len();
    let mut hold = || {
        share = Some(unread.take(from, bytes).map_err(FrameError::Refused)?);
        Ok(())
    };
    while !replies.is_empty() {
        let write = async {
            match stream.write_buf(replies).await? {
                0 => Err(FrameError::Closed),
                _ => Ok(()),
            }
        };
        progress.write(write, &mut hold).await?;
    }
    progress.write(async { Ok(stream.flush().await?) }, hold).await?;
    drop(share);
    Ok(())
}

#[cfg(test)]
#[path = "buffers_tests.rs"]
mod tests;
