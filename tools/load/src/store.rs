//! Interface of a measured store.

use crate::failure::Failure;
use bytes::Bytes;

/// Result of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScanResult {
    /// Number of entries.
    pub entries: usize,
    /// Bytes of their keys and values.
    pub bytes: usize,
}

/// A connection to a store, or a client library with several. It stays on its thread.
pub trait Store: 'static {
    /// Reads a key; `None` if it is absent.
    fn get(&self, key: &[u8]) -> impl Future<Output = Result<Option<Bytes>, Failure>>;

    /// Writes a key; done when the store has acknowledged it.
    fn put(&self, key: &[u8], value: Bytes) -> impl Future<Output = Result<(), Failure>>;

    /// Reads at most `limit` entries whose keys begin with `prefix` and are greater than `after`, in order.
    fn scan(&self, prefix: &[u8], after: &[u8], limit: u32) -> impl Future<Output = Result<ScanResult, Failure>> {
        let _ = (prefix, after, limit);
        async { Err(Failure::new("Unsupported", "this store has no ordered scan")) }
    }
}

/// Factory of connections to a store.
pub trait Connector: Send + Sync + 'static {
    /// Type of a connection.
    type Store: Store;

    /// Makes one connection, on the thread and runtime of its use.
    fn connect(&self) -> impl Future<Output = Result<Self::Store, Failure>>;
}
