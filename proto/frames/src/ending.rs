//! Shared begin and end of served streams.

use crate::{FrameError, FrameReader, FrameWriter};
use archon_types::{ErrorDetail, ErrorKind};
use prost::Message;
use std::time::Duration;
use tokio::time::timeout;

/// Time limit for the first message of a stream.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for sending the reason for the end of a stream.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Reads the first message of a stream.
///
/// # Errors
/// Like [`FrameReader::next`]; [`FrameError::Silent`] after the time limit.
pub async fn first_message<M: Message + Default>(reader: &mut FrameReader) -> Result<M, FrameError> {
    timeout(HANDSHAKE_TIMEOUT, reader.next()).await.unwrap_or(Err(FrameError::Silent(HANDSHAKE_TIMEOUT)))
}

/// Sends the reason for the end of a stream to the peer, unless the peer has gone.
pub async fn end_stream(ended: Result<(), FrameError>, mut writer: FrameWriter) {
    let detail = match ended {
        Ok(()) | Err(FrameError::Closed | FrameError::Connect { .. }) => return,
        Err(FrameError::Refused(detail)) => detail,
        Err(error @ FrameError::Unreadable(_)) => ErrorDetail::new(ErrorKind::InvalidArgument, error.to_string()),
        Err(
            error @ (FrameError::Io(_) | FrameError::Silent(_) | FrameError::Incomplete(_) | FrameError::Stalled(_)),
        ) => {
            tracing::debug!(%error, "a stream broke");
            return;
        }
    };
    tracing::debug!(kind = %detail.kind, message = %detail.message, "a stream is refused");
    writer.refuse(detail);
    // A peer that does not read sees only the end of the connection.
    let _ = timeout(CLOSE_TIMEOUT, writer.flush()).await;
}
