//! A lease, as the store holds it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The number of a row's content: whoever writes the row says which one they have seen, and every write gives it a higher one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Etag(pub u64);

/// What stands in a row. Nothing of it is needed for safety: the ETag is all that counts.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Row {
    /// Who wrote it last; nobody has had it yet if it is empty.
    pub server: String,
    /// When, by that server's own clock: for people.
    pub at_ms: u64,
    /// That server has broken the lease: it may be taken at once.
    pub broken: bool,
    /// Servers that must not take it.
    pub prohibited: BTreeSet<String>,
    /// What the partition costs its owner, in a unit that the service chooses.
    pub load: u64,
}

/// A row with its partition and its ETag.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Whose lease it is.
    pub partition: u32,
    /// To be named by whoever writes it next.
    pub etag: Etag,
    /// Its content.
    pub row: Arc<Row>,
}
