//! Protocol between users and an instance: one line of JSON per request and answer, in turn.

use crate::Result;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Longest accepted line, in bytes.
const LINE_MAX: u64 = 4 * 1024;

/// A request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Counts a request of a user, once.
    Count {
        /// Name of the counter.
        counter: String,
        /// The user.
        user: u64,
        /// The user's number for this request; later ones have higher numbers.
        request: u64,
    },
    /// Reads the value of a counter.
    Read {
        /// Name of the counter.
        counter: String,
    },
}

impl Request {
    /// Returns the counter of the request, which determines the instance to ask.
    pub fn counter(&self) -> &str {
        match self {
            Self::Count { counter, .. } | Self::Read { counter } => counter,
        }
    }
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The value of the counter.
    Count(u64),
    /// The counter is not, or no longer, on this instance: find its owner.
    NotOwner,
    /// It could not be done now; it may have been counted.
    Failed(String),
}

/// Writes a line.
///
/// # Errors
/// Errors of the connection.
pub(super) async fn write_line(to: &mut (impl AsyncWrite + Unpin), message: &impl Serialize) -> Result {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line).await?;
    Ok(())
}

/// Reads a line; `None` at the end.
///
/// # Errors
/// Errors of the connection, and malformed or too long lines.
pub(super) async fn read_line<T: DeserializeOwned>(from: &mut (impl AsyncBufRead + Unpin)) -> Result<Option<T>> {
    let mut line = Vec::new();
    from.take(LINE_MAX).read_until(b'\n', &mut line).await?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') {
        return Err(format!("a line ends early or has more than {LINE_MAX} bytes").into());
    }
    Ok(Some(serde_json::from_slice(&line)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_round_trip_and_long_ones_are_refused() {
        let (mut wire, request) = (Vec::new(), Request::Read { counter: "votes".to_owned() });
        write_line(&mut wire, &request).await.unwrap();
        let mut from = wire.as_slice();
        assert_eq!(read_line(&mut from).await.unwrap(), Some(request));
        assert_eq!(read_line::<Request>(&mut from).await.unwrap(), None);
        let long = Answer::Failed("no".repeat(4_096));
        let mut wire = Vec::new();
        write_line(&mut wire, &long).await.unwrap();
        let refused = read_line::<Answer>(&mut wire.as_slice()).await.unwrap_err();
        assert!(refused.to_string().contains("4096 bytes"), "{refused}");
    }
}
