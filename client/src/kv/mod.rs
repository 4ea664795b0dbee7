//! Operations on keys and values.

mod call;
pub(crate) mod named;
pub(crate) mod put_options;
pub(crate) mod scan;
pub(crate) mod sequence;
pub(crate) mod snapshot;
pub(crate) mod stale;
pub(crate) mod transaction;

use crate::builder::ClientBuilder;
use crate::error::Error;
use crate::kv::call::Call;
use crate::kv::put_options::PutOptions;
use crate::kv::scan::Scan;
use crate::routing::table::TableCache;
use crate::state::ClientState;
use archon_types::limits::{BATCH_BYTES_MAX, BATCH_OPS_MAX};
use archon_types::{
    Answer, ErrorDetail, ErrorKind, KeyRange, Millis, Op, PartitionId, PartitionTable, Revision, ScanOrder,
    StoredValue, Version,
};
use bytes::Bytes;
use futures::future::join_all;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::DropGuard;

/// A stored value and its revision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Value {
    /// The value.
    pub value: Bytes,
    /// Its revision, for [`Client::compare_and_set`].
    pub revision: Revision,
    /// Unix time in milliseconds at which it expires, if it does ([`Client::put_with`]).
    pub expires_at_ms: Option<u64>,
}

impl From<StoredValue> for Value {
    fn from(stored: StoredValue) -> Self {
        let expires_at_ms = stored.expires.map(Millis::get);
        Self { value: stored.value, revision: stored.revision, expires_at_ms }
    }
}

/// Result of an increment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counter {
    /// The sum.
    pub value: i64,
    /// The revision of the stored value.
    pub revision: Revision,
}

/// A client of one table. Clones are cheap and share connections, cache and retry budget; the background tasks end
/// with the last clone, or with [`Client::close`].
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<ClientState>,
    _guard: Arc<DropGuard>,
    table: Arc<TableCache>,
    timeout: Duration,
}

impl Client {
    /// Starts building a client for the cluster of these endpoints (`host:port` of coordinators or nodes). One
    /// reachable endpoint is enough.
    pub fn builder<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> ClientBuilder {
        ClientBuilder::new(endpoints.into_iter().map(Into::into).collect())
    }

    pub(crate) fn new(
        shared: Arc<ClientState>,
        guard: Arc<DropGuard>,
        table: Arc<TableCache>,
        timeout: Duration,
    ) -> Self {
        Self { shared, _guard: guard, table, timeout }
    }

    /// Returns the parts for derived handles: shared state, its guard, and the time-out of calls.
    pub(crate) fn parts(&self) -> (Arc<ClientState>, Arc<DropGuard>, Duration) {
        (Arc::clone(&self.shared), Arc::clone(&self._guard), self.timeout)
    }

    /// Returns a client of another table, with shared state.
    ///
    /// # Errors
    /// `NotFound` for an unknown table; otherwise as [`ClientBuilder::build`].
    pub async fn table(&self, name: &str) -> Result<Self, Error> {
        let table = self.shared.data_table(name, self.timeout).await?;
        Ok(Self { table, ..self.clone() })
    }

    /// Returns a client with another time-out per call, including retries.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self { timeout: timeout.max(Duration::from_millis(1)), ..self.clone() }
    }

    /// Returns the version of the cached partition table.
    pub fn table_version(&self) -> Version {
        self.table.load().version()
    }

    /// Reads a key; `None` if it is absent. Linearizable; [`Client::get_stale`] is not, and needs no leader.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>, Error> {
        match self.run(Op::Get { key: copied(key) }).await? {
            Answer::Value(found) => Ok(found.map(Value::from)),
            other => Err(unexpected("a get", &other)),
        }
    }

    /// Writes a key and returns the revision of the new value. It does not expire, whether the value before did or not.
    ///
    /// # Errors
    /// See [`Error`]; the write may have taken effect if [`Error::outcome_unknown`] is true.
    pub async fn put(&self, key: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Result<Revision, Error> {
        match self.run(Op::Put { key: copied(key), value: value.into() }).await? {
            Answer::Written { revision } => Ok(revision),
            other => Err(unexpected("a put", &other)),
        }
    }

    /// Writes a key as [`Client::put`] does, with options: an expiry, and a condition.
    ///
    /// ```no_run
    /// # async fn example(client: archon_client::Client) -> Result<(), archon_client::Error> {
    /// use archon_client::PutOptions;
    /// use std::time::Duration;
    /// let session = PutOptions::default().ttl(Duration::from_secs(600));
    /// client.put_with("session/1", "alice", session).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// From its expiry on, no read, scan or condition sees the value.
    ///
    /// # Errors
    /// [`Error::ConditionFailed`] with the revision found, if there is a condition; otherwise as [`Client::put`].
    pub async fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Bytes>,
        options: PutOptions,
    ) -> Result<Revision, Error> {
        match self.run(options.op(copied(key), value.into())).await? {
            Answer::Written { revision } => Ok(revision),
            Answer::ConditionFailed { revision } => Err(Error::ConditionFailed { found: revision }),
            other => Err(unexpected("a put", &other)),
        }
    }

    /// Deletes a key and returns whether it existed.
    ///
    /// # Errors
    /// See [`Error`]; the deletion may have taken effect if [`Error::outcome_unknown`] is true.
    pub async fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        match self.run(Op::Delete { key: copied(key) }).await? {
            Answer::Deleted { existed } => Ok(existed),
            other => Err(unexpected("a delete", &other)),
        }
    }

    /// Writes a key if its revision is `expected` ([`Revision::ZERO`] for an absent key).
    ///
    /// # Errors
    /// [`Error::ConditionFailed`] with the revision found; otherwise as [`Client::put`].
    pub async fn compare_and_set(
        &self,
        key: impl AsRef<[u8]>,
        expected: Revision,
        value: impl Into<Bytes>,
    ) -> Result<Revision, Error> {
        match self.run(Op::CompareAndSet { key: copied(key), expected, value: value.into() }).await? {
            Answer::Written { revision } => Ok(revision),
            Answer::ConditionFailed { revision } => Err(Error::ConditionFailed { found: revision }),
            other => Err(unexpected("a compare-and-set", &other)),
        }
    }

    /// Writes a key if it is absent; returns `None` if it exists.
    ///
    /// # Errors
    /// As [`Client::put`].
    pub async fn put_if_absent(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Bytes>,
    ) -> Result<Option<Revision>, Error> {
        match self.compare_and_set(key, Revision::ZERO, value).await {
            Ok(revision) => Ok(Some(revision)),
            Err(Error::ConditionFailed { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Adds `by` to a decimal integer; an absent key counts as 0.
    ///
    /// # Errors
    /// [`Error::NotANumber`] if the value is not a decimal integer or the sum does not fit; otherwise as
    /// [`Client::put`].
    pub async fn increment(&self, key: impl AsRef<[u8]>, by: i64) -> Result<Counter, Error> {
        match self.run(Op::Increment { key: copied(key), by }).await? {
            Answer::Counter { value, revision } => Ok(Counter { value, revision }),
            Answer::NotANumber => Err(Error::NotANumber),
            other => Err(unexpected("an increment", &other)),
        }
    }

    /// Lists keys with a prefix, in byte order: `client.scan("user/").limit(100).page().await`. In a table by ranges
    /// the cost depends on the listed keys; with hashed keys every partition is queried.
    pub fn scan(&self, prefix: impl AsRef<[u8]>) -> Scan<'_> {
        Scan::new(self, copied(prefix))
    }

    /// Runs operations concurrently; results are in the order of the operations. This is **not a transaction**: the
    /// operations have no order and no atomicity, and some may succeed while others fail; [`Client::transaction`] writes
    /// all or nothing. Scans are not allowed. At most 4,096 operations and 4 MiB of keys and values.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the batch as a whole is too large; otherwise each operation has its own result.
    pub async fn batch(&self, ops: Vec<Op>) -> Result<Vec<Result<Answer, Error>>, Error> {
        if ops.len() > BATCH_OPS_MAX {
            let message = format!("the batch has {} operations; the limit is {BATCH_OPS_MAX}", ops.len());
            return Err(Error::invalid(message));
        }
        let bytes: usize = ops.iter().map(Op::bytes).sum();
        if bytes > BATCH_BYTES_MAX {
            let message = format!("the batch has {bytes} bytes; the limit is {BATCH_BYTES_MAX}");
            return Err(Error::invalid(message));
        }
        Ok(join_all(ops.into_iter().map(|op| self.run(op))).await)
    }

    /// Stops the background tasks of this client, including all its clones, and waits for them. Pending and later
    /// calls end with [`Error::Closed`], or with an unknown outcome.
    pub async fn close(&self) {
        self.shared.close().await;
    }

    /// Runs an operation on a key.
    async fn run(&self, op: Op) -> Result<Answer, Error> {
        let Some(key) = op.key() else {
            return Err(Error::invalid("a scan cannot be part of a batch; call scan"));
        };
        op.check()?;
        let partition = self.partition_of(key);
        if op.any_key(|key| self.partition_of(key) != partition) {
            return Err(divided());
        }
        self.run_in(partition, op, self.timeout).await
    }

    /// Runs an operation in a partition.
    pub(crate) async fn run_in(&self, partition: PartitionId, op: Op, timeout: Duration) -> Result<Answer, Error> {
        let operation = self.shared.measures.operation(&op);
        let result = Call::new(&self.shared, &self.table, partition, op).run(timeout).await;
        operation.answered(&result);
        result
    }

    /// Returns the partition of a key.
    pub(crate) fn partition_of(&self, key: &[u8]) -> PartitionId {
        self.table.load().partition_of(key)
    }

    /// Returns the cache of the table.
    pub(crate) fn cached(&self) -> &TableCache {
        &self.table
    }

    /// Returns the cached table.
    pub(crate) fn held(&self) -> Arc<PartitionTable> {
        Arc::clone(&self.table.load())
    }

    /// Requests a newer table without waiting for it.
    pub(crate) fn want_refresh(&self) {
        self.table.want_refresh();
    }

    /// Returns all partitions of the table.
    pub(crate) fn partitions(&self) -> Vec<PartitionId> {
        let table = self.table.load();
        (0..table.table().keys.numbers_end()).map(|index| PartitionId::new(table.table().id, index)).collect()
    }

    /// Returns whether the table is partitioned by ranges.
    pub(crate) fn is_range(&self) -> bool {
        self.table.load().table().keys.is_range()
    }

    /// Returns the partition of the first of these keys in this order, in a table by ranges.
    pub(crate) fn first_of(&self, keys: &KeyRange, order: ScanOrder) -> PartitionId {
        self.table.load().first_of(keys, order)
    }

    /// Returns the time-out of calls.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }
}

/// Returns the error of an operation on several keys that are in several partitions.
pub(crate) fn divided() -> Error {
    Error::invalid(
        "the keys of this operation are in several partitions; give them one {tag}, or use one operation for each",
    )
}

pub(crate) fn copied(bytes: impl AsRef<[u8]>) -> Bytes {
    Bytes::copy_from_slice(bytes.as_ref())
}

pub(crate) fn unexpected(what: &str, answer: &Answer) -> Error {
    let message = format!("a node answered {what} with {answer:?}; its version and this client's do not fit");
    Error::from(ErrorDetail::new(ErrorKind::Internal, message))
}
