//! Interface of a store.

use super::row::{Etag, ListedRow, Row};

/// Error of a store.
pub type StoreError = Box<dyn std::error::Error + Send + Sync>;

/// Result of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Put {
    /// Written, under this ETag.
    Written(Etag),
    /// The row has another ETag by now, or is gone.
    Conflict,
    /// Unknown: it may be written, now or later.
    Unknown,
}

/// A store with a row per partition. Requires compare-and-set.
pub trait Rows: Send + Sync + 'static {
    /// Returns all existing rows, in the order of their partitions.
    fn list(&self) -> impl Future<Output = Result<Vec<ListedRow>, StoreError>> + Send;

    /// Writes a row if it has this ETag. It is not created.
    fn put_if(&self, partition: u32, etag: Etag, row: &Row) -> impl Future<Output = Put> + Send;
}
