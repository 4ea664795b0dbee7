//! Row of a lock: its holder, and the lease that contenders wait for.

use crate::error::Error;
use crate::kv::Client;
use crate::kv::put_options::PutOptions;
use archon_types::Revision;
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

/// Removes the row of a lock, if it has this revision.
///
/// # Errors
/// [`Error::ConditionFailed`] if it has another one; otherwise see [`Error`].
pub(super) async fn remove_row(client: &Client, name: &Bytes, revision: Revision) -> Result<(), Error> {
    // A value that is due when it is written removes the row: a deletion with a condition.
    let removal = PutOptions::default().if_revision(revision).expires_at_ms(0);
    client.put_with(name, Bytes::new(), removal).await.map(drop)
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
