//! Transactions: several keys of one partition, all or none.

use super::{Client, copied, unexpected};
use crate::error::Error;
use crate::kv::Value;
use archon_types::{Answer, Change, Check, Expiry, ManyKeys, Millis, Op, Revision, Write};
use bytes::Bytes;
use std::time::Duration;

/// Writes of several keys, carried out together by [`Transaction::commit`] if every check holds
/// ([`Client::transaction`]).
#[derive(Debug)]
#[must_use = "a transaction does nothing before `commit`"]
pub struct Transaction<'a> {
    client: &'a Client,
    checks: Vec<Check>,
    writes: Vec<Write>,
}

/// Result of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TransactionOutcome {
    /// Everything was written.
    Committed {
        /// Revision of all values that it wrote.
        revision: Revision,
        /// Number of its deletes that removed a value.
        removed: u32,
    },
    /// A check did not hold; nothing was changed.
    CheckFailed {
        /// The key of the first such check.
        key: Bytes,
        /// The revision found; [`Revision::ZERO`] if the key is absent.
        found: Revision,
    },
}

impl Transaction<'_> {
    /// Requires that a key has this revision ([`Revision::ZERO`]: that it is absent).
    pub fn check(mut self, key: impl AsRef<[u8]>, expected: Revision) -> Self {
        self.checks.push(Check { key: copied(key), expected });
        self
    }

    /// Requires that a key is absent.
    pub fn check_absent(self, key: impl AsRef<[u8]>) -> Self {
        self.check(key, Revision::ZERO)
    }

    /// Writes a key. The value does not expire.
    pub fn put(self, key: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Self {
        self.write(key, Change::Put { value: value.into(), expiry: None })
    }

    /// Writes a key with a value that expires so long after the commit, at least one millisecond.
    pub fn put_with_ttl(self, key: impl AsRef<[u8]>, value: impl Into<Bytes>, ttl: Duration) -> Self {
        let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1);
        self.write(key, Change::Put { value: value.into(), expiry: Some(Expiry::After(millis)) })
    }

    /// Writes a key with a value that expires at this Unix time in milliseconds.
    pub fn put_expiring_at_ms(self, key: impl AsRef<[u8]>, value: impl Into<Bytes>, millis: u64) -> Self {
        self.write(key, Change::Put { value: value.into(), expiry: Some(Expiry::At(Millis::new(millis))) })
    }

    /// Removes a key.
    pub fn delete(self, key: impl AsRef<[u8]>) -> Self {
        self.write(key, Change::Delete)
    }

    fn write(mut self, key: impl AsRef<[u8]>, change: Change) -> Self {
        self.writes.push(Write { key: copied(key), change });
        self
    }

    /// Carries it out: all writes, or nothing.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the keys are in several partitions, a key is written twice, or there are more than
    /// 1,024 checks, 1,024 writes or 2 MiB of keys and values; otherwise as [`Client::put`].
    pub async fn commit(self) -> Result<TransactionOutcome, Error> {
        let keys: Vec<Bytes> = self.checks.iter().map(|check| check.key.clone()).collect();
        let transaction = archon_types::Transaction::new(self.checks, self.writes)?;
        match self.client.run(Op::Transaction(Box::new(transaction))).await? {
            Answer::Applied { revision, removed } => Ok(TransactionOutcome::Committed { revision, removed }),
            Answer::CheckFailed { check, revision } if keys.get(check as usize).is_some() => {
                Ok(TransactionOutcome::CheckFailed { key: keys[check as usize].clone(), found: revision })
            }
            other => Err(unexpected("a transaction", &other)),
        }
    }
}

impl Client {
    /// Begins a transaction on keys of one partition. In a hashed table, keys with the same `{tag}` are in one partition.
    ///
    /// ```no_run
    /// # async fn example(client: archon_client::Client) -> Result<(), archon_client::Error> {
    /// use archon_client::TransactionOutcome;
    /// let alice = client.get("{bank}alice").await?.expect("an account");
    /// let moved = client
    ///     .transaction()
    ///     .check("{bank}alice", alice.revision)
    ///     .check_absent("{bank}bob")
    ///     .delete("{bank}alice")
    ///     .put("{bank}bob", alice.value);
    /// assert!(matches!(moved.commit().await?, TransactionOutcome::Committed { .. }));
    /// # Ok(())
    /// # }
    /// ```
    pub const fn transaction(&self) -> Transaction<'_> {
        Transaction { client: self, checks: Vec::new(), writes: Vec::new() }
    }

    /// Reads several keys of one partition as of one moment. Values are in the order of the keys; `None` for an absent
    /// key. Linearizable.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the keys are in several partitions or too many; a server refuses to answer with more
    /// than 2 MiB of keys and values. Otherwise see [`Error`].
    pub async fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Value>>, Error> {
        let many = ManyKeys::new(keys.into_iter().map(copied).collect())?;
        match self.run(Op::GetMany(Box::new(many))).await? {
            Answer::Values(found) => Ok(found.into_iter().map(|found| found.map(Value::from)).collect()),
            other => Err(unexpected("a read of several keys", &other)),
        }
    }
}
