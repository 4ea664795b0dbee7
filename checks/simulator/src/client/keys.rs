//! Keys and values of clients' operations.

use archon_types::{Op, PartitionId};
use bytes::Bytes;

/// Keys per partition: few, so that operations collide.
pub(crate) const KEYS: u64 = 3;

/// The counter key.
pub(crate) const COUNTED: &[u8] = b"count";

/// First bytes of the keys of hashed tables in seeds with binary keys: they are no UTF-8.
const BINARY: &[u8] = b"\xff\0";

/// Returns a key of a hashed table, or a prefix of some.
pub(crate) fn with_prefix(name: Bytes, binary: bool) -> Bytes {
    if binary { [BINARY, &name].concat().into() } else { name }
}

/// Returns the name of a key that is no counter.
pub(crate) fn key(number: u64) -> Bytes {
    Bytes::from(format!("k{number}"))
}

/// Partition and operation of a client.
pub(crate) type DrawnOperation = (PartitionId, Op);

/// Returns true if a key is a counter: its values repeat.
pub(crate) fn is_counted(key: &[u8]) -> bool {
    key.ends_with(COUNTED)
}

/// Returns a value that no other operation writes.
pub(crate) fn value_of(client: usize, number: u64) -> Bytes {
    Bytes::from(format!("{client}.{number}"))
}
