//! Writes under names that the caller chose: a repetition, also by another process, has no second effect.

use crate::error::Error;
use crate::kv::call::Call;
use crate::kv::sequence::Ticket;
use crate::kv::{Client, Value, copied, unexpected};
use archon_types::{Answer, ClientId, Millis, Op, OpId};
use bytes::Bytes;
use std::str::FromStr;
use tokio::time::Instant;
use uuid::Uuid;

/// Span of the newest writes of one client that a partition has to remember, below its bound of 1,024.
const REMEMBERED: u64 = 1_000;

/// Name of a write: a client, and its number for the write. As text: `CLIENT/NUMBER`, such as
/// `6fa459ea-ee8a-4ca4-894e-db77e160355e/17`.
///
/// A client is one process, or one thread of it: it draws its id at random, and counts its writes from 1, never two
/// with one number. Once it has sent a number, it repeats none that is 1,000 below or more: such a repetition gets
/// [`Error::MaybeApplied`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteName {
    client: ClientId,
    number: u64,
    stamp_ms: Option<u64>,
}

impl WriteName {
    /// Sets the stamp, which is the same in all attempts: that of a read before the first one
    /// ([`Client::get_with_stamp`]), or of the error of the attempt before ([`NamedError::stamp_ms`]). Zero marks a
    /// repetition with an unknown stamp, after an attempt without any answer: if the write was not applied, the answer
    /// may be [`ErrorKind::MaybeApplied`]. Without a stamp the write is a first attempt, and must not have been sent
    /// before.
    ///
    /// [`ErrorKind::MaybeApplied`]: crate::ErrorKind::MaybeApplied
    #[must_use]
    pub const fn stamped(self, stamp_ms: u64) -> Self {
        Self { stamp_ms: Some(stamp_ms), ..self }
    }

    fn done_below(self) -> u64 {
        self.number.saturating_sub(REMEMBERED).max(1)
    }
}

impl FromStr for WriteName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let name = text.split_once('/').and_then(|(client, number)| {
            let client = Uuid::try_parse(client).ok().filter(|client| !client.is_nil())?;
            let number = number.parse().ok().filter(|number| *number > 0)?;
            Some(Self { client: ClientId::new(client), number, stamp_ms: None })
        });
        name.ok_or_else(|| {
            Error::invalid(
                "the name of a write must be CLIENT/NUMBER: a UUID drawn at random once per process, and a number from 1",
            )
        })
    }
}

/// Failure of a write under a name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{error}")]
pub struct NamedError {
    /// The reason.
    #[source]
    pub error: Error,
    /// Stamp of the next attempt ([`WriteName::stamped`]); `None`: nothing was sent, so that is a first attempt.
    pub stamp_ms: Option<u64>,
}

impl Client {
    /// Reads a key as [`Client::get`] does, and returns with it the stamp of writes to the key from now on
    /// ([`WriteName::stamped`]).
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn get_with_stamp(&self, key: impl AsRef<[u8]>) -> Result<(Option<Value>, u64), Error> {
        let key = copied(key);
        let (partition, op) = (self.partition_of(&key), Op::Get { key });
        op.check()?;
        let (shared, _, limit) = self.parts();
        let operation = shared.measures.operation(&op);
        let mut read = Call::new(&shared, self.cached(), partition, op);
        let result = read.run(limit).await;
        operation.answered(&result);
        match result? {
            Answer::Value(found) => Ok((found.map(Value::from), read.log_time().get())),
            other => Err(unexpected("a get", &other)),
        }
    }

    /// Runs a write under a name: of several attempts, by one process or several, one has an effect, and all get its answer
    /// while the partition remembers it, for ten minutes after the client's last write to it. Only in tables with
    /// hashed keys: in a table by ranges, a key may have moved to a partition that does not know the name.
    ///
    /// # Errors
    /// See [`Error`], with the stamp of the next attempt. [`Error::MaybeApplied`] if the outcome is not remembered. A
    /// refusal concerns this attempt: one before may have taken effect.
    pub async fn write_named(&self, op: Op, name: WriteName) -> Result<Answer, NamedError> {
        let refused = |error| NamedError { error, stamp_ms: name.stamp_ms };
        let Some(key) = op.key().filter(|_| !op.is_read()).cloned() else {
            return Err(refused(Error::invalid("only a write has a name")));
        };
        op.check().map_err(|detail| refused(detail.into()))?;
        if self.is_range() {
            let why = "writes have names only in tables with hashed keys: in a table by ranges, a key may have moved to a \
                       partition that does not know the name; write without a name, on a condition";
            return Err(refused(Error::invalid(why)));
        }
        let (shared, _, limit) = self.parts();
        let operation = shared.measures.operation(&op);
        let result = self.run_named(key, op, name, Instant::now() + limit).await;
        operation.answered(&result.as_ref().map_err(|failed| failed.error.clone()).cloned());
        result
    }

    async fn run_named(&self, key: Bytes, op: Op, name: WriteName, deadline: Instant) -> Result<Answer, NamedError> {
        let (shared, ..) = self.parts();
        let partition = self.partition_of(&key);
        let left = || deadline.saturating_duration_since(Instant::now());
        let stamp = match name.stamp_ms {
            Some(stamp) => Millis::new(stamp),
            None => {
                // The log time before the first attempt: a partition that has forgotten the write is ahead of it.
                let mut read = Call::new(&shared, self.cached(), partition, Op::Get { key });
                let found = read.run(left()).await;
                found.map_err(|error| NamedError { error, stamp_ms: None })?;
                read.log_time()
            }
        };
        let id = OpId { client: name.client, number: name.number, done_below: name.done_below(), stamp };
        let mut write = Call::new(&shared, self.cached(), partition, op).named(Ticket::named(id));
        write.run(left()).await.map_err(|error| NamedError { error, stamp_ms: Some(stamp.get()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_a_client_and_a_number() {
        let client = "6fa459ea-ee8a-4ca4-894e-db77e160355e";
        let name: WriteName = format!("{client}/17").parse().expect("a name");
        assert_eq!((name.client.get().to_string(), name.number, name.stamp_ms), (client.to_owned(), 17, None));
        assert_eq!(name.stamped(0).stamp_ms, Some(0));
        assert_eq!((name.done_below(), WriteName { number: 5_000, ..name }.done_below()), (1, 4_000));
        let nil = format!("{}/1", Uuid::nil());
        for wrong in ["", "17", client, &format!("{client}/0"), &format!("{client}/x"), &nil, "athens/1"] {
            assert!(wrong.parse::<WriteName>().is_err(), "{wrong}");
        }
    }
}
