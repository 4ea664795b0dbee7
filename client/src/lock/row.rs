//! Row of a lock: its holder, and the lease that contenders wait for.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Maximum bytes of a holder's name in a row.
pub(super) const HOLDER_BYTES_MAX: usize = 256;

/// Value of a lock's row, a JSON object (`docs/tutorial/recipes/lock.md`).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct LockRow {
    /// Random name of one acquisition.
    pub(super) owner: String,
    /// Name of the holder, for people.
    #[serde(default)]
    pub(super) holder: String,
    /// Lease of the holder in milliseconds.
    pub(super) lease_ms: u64,
}

impl LockRow {
    /// Returns the value.
    pub(super) fn encode(&self) -> Bytes {
        // Text and a number always have a form in JSON.
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    /// Reads a value; `None` if it is no row of a lock.
    pub(super) fn decode(value: &[u8]) -> Option<Self> {
        let row: Self = serde_json::from_slice(value).ok()?;
        (!row.owner.is_empty()).then_some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_is_read_back_and_other_values_are_none() {
        let row = LockRow { owner: "17".to_owned(), holder: "host:4".to_owned(), lease_ms: 10_000 };
        assert_eq!(LockRow::decode(&row.encode()), Some(row));
        assert!(LockRow::decode(br#"{"owner":"a","lease_ms":5,"more":1}"#).is_some(), "fields may be added");
        for other in ["", "athens", "{}", r#"{"owner":"","lease_ms":5}"#, r#"{"owner":"a","lease_ms":-1}"#] {
            assert_eq!(LockRow::decode(other.as_bytes()), None, "{other}");
        }
    }
}
