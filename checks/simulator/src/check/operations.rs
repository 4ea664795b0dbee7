//! Operations of clients by key.

use crate::client::calls::Operation;
use archon_types::{ClientId, KeyRange, PartitionId, Seq};
use std::collections::BTreeMap;

/// Former partition of a partition's keys.
#[derive(Clone, Debug)]
pub(crate) struct KeyOrigin {
    /// The former partition.
    pub(crate) of: PartitionId,
    /// Its log concerns the keys up to here.
    pub(crate) at: Seq,
    /// Up to here it must not write them: then it has them, or some of them, again.
    pub(crate) until: Option<Seq>,
    /// All keys that moved.
    pub(crate) keys: KeyRange,
}

/// Operation and effects of each operation id.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    pub(crate) named: BTreeMap<(PartitionId, ClientId, u64), Operation>,
    pub(crate) done: BTreeMap<Operation, (PartitionId, ClientId, u64)>,
}
