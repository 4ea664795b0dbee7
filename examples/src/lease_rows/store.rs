//! What is asked of a store.

use super::row::{Etag, Listed, Row};

/// Why a store did not do what it was asked.
pub type StoreError = Box<dyn std::error::Error + Send + Sync>;

/// What became of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Put {
    /// It is there, under this ETag.
    Written(Etag),
    /// The row has another ETag by now, or is gone.
    Conflict,
    /// Nobody can tell: it may be written, now or later.
    Unknown,
}

/// A store with a row per partition. Whoever can compare and set can be one.
pub trait Rows: Send + Sync + 'static {
    /// All rows there are, in the order of their partitions.
    fn list(&self) -> impl Future<Output = Result<Vec<Listed>, StoreError>> + Send;

    /// Writes a row if it has this ETag. It is not created.
    fn put_if(&self, partition: u32, etag: Etag, row: &Row) -> impl Future<Output = Put> + Send;
}
