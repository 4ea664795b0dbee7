//! Keys and values of clients' operations.

use archon_types::{Op, PartitionId};
use bytes::Bytes;

/// Keys per partition: few, so that operations collide.
pub(crate) const KEYS: u64 = 3;

/// The counter key.
pub(crate) const COUNTED: &[u8] = b"count";

/// Partition and operation of a client.
pub(crate) type Drawn = (PartitionId, Op);

/// Returns true if a key is a counter: its values repeat.
pub(crate) fn is_counted(key: &[u8]) -> bool {
    key.ends_with(COUNTED)
}

/// Returns a value that no other operation writes.
pub(crate) fn value_of(client: usize, number: u64) -> Bytes {
    Bytes::from(format!("{client}.{number}"))
}
