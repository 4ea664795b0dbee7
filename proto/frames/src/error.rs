//! Errors of frame streams.

use archon_security::in_words;
use archon_types::{ErrorDetail, ErrorKind};
use std::time::Duration;

/// Reason why a stream of frames ended or did not begin.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The connection failed; nothing was sent.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// Address of the peer.
        address: String,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Io(#[from] std::io::Error),
    /// The peer closed the connection.
    #[error("the peer closed the connection")]
    Closed,
    /// The peer sent nothing for this long, not even a keepalive.
    #[error("the peer was silent for {} ms", .0.as_millis())]
    Silent(Duration),
    /// A message did not arrive completely: almost nothing of it came within this time.
    #[error("a message was incomplete: almost none of it arrived within {} ms", .0.as_millis())]
    Incomplete(Duration),
    /// The peer accepted none of the pending data for this long.
    #[error("the peer took nothing of what waits for it for {} ms", .0.as_millis())]
    Stalled(Duration),
    /// The peer ended the stream with a reason.
    #[error("{0}")]
    Refused(ErrorDetail),
    /// Malformed frame, or one unknown to this version.
    #[error("what arrived cannot be read: {0}")]
    Unreadable(String),
}

impl FrameError {
    /// Converts the error for callers. Only errors from the peer itself keep their kind.
    pub fn into_detail(self) -> ErrorDetail {
        match self {
            Self::Refused(detail) => detail,
            Self::Unreadable(_) => ErrorDetail::new(ErrorKind::Internal, self.to_string()),
            // The library's message refers to documentation for programmers.
            Self::Io(ref error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                ErrorDetail::new(ErrorKind::Unreachable, Self::Closed.to_string())
            }
            Self::Io(ref error) => {
                let said = in_words(error).map_or_else(|| self.to_string(), |refused| refused.to_string());
                ErrorDetail::new(ErrorKind::Unreachable, said)
            }
            Self::Connect { .. } | Self::Closed | Self::Silent(_) | Self::Incomplete(_) | Self::Stalled(_) => {
                ErrorDetail::new(ErrorKind::Unreachable, self.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_tls_connection_is_reported_without_library_text() {
        let said =
            "peer closed connection without sending TLS close_notify: https://docs.rs/rustls/latest/rustls/manual";
        let error = std::io::Error::new(std::io::ErrorKind::UnexpectedEof, said);
        assert_eq!(FrameError::from(error).into_detail().message, "the peer closed the connection");
    }
}
