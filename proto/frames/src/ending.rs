//! What streams have in common where they are served: how they begin, and how they end.

use crate::{FrameError, FrameReader, FrameWriter};
use archon_types::{ErrorDetail, ErrorKind};
use prost::Message;
use std::time::Duration;
use tokio::time::timeout;

/// How long the first message of a stream may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a peer may take to be told why its stream ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The first message of a stream.
///
/// # Errors
/// As [`FrameReader::next`]; [`FrameError::Silent`] if it takes too long.
pub async fn first_message<M: Message + Default>(reader: &mut FrameReader) -> Result<M, FrameError> {
    timeout(HANDSHAKE_TIMEOUT, reader.next()).await.unwrap_or(Err(FrameError::Silent(HANDSHAKE_TIMEOUT)))
}

/// Tells the peer why its stream ends, unless it is the one that has gone.
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
    // A peer that does not listen learns it from the end of the connection.
    let _ = timeout(CLOSE_TIMEOUT, writer.flush()).await;
}
