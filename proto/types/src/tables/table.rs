//! Row of a table, and deltas of the rows of its partitions.

use crate::admin::open_enum::words;
use crate::error::{ErrorDetail, ErrorKind};
use crate::ids::{TableId, Version};
use crate::members::node::Node;
use crate::tables::key_range::{KeyRange, check_split_points};
use crate::tables::partition::Partition;
use crate::tables::range_limits::{RangeLimits, TableTraits};
use crate::tables::removed::RemovedNodes;
use crate::tables::slot::HASH_PARTITIONS_MAX;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Table that exists from bootstrap; an empty name stands for it.
pub const DEFAULT_TABLE: &str = "default";

words! {
    /// Content of a table's partitions.
    #[derive(Serialize, Deserialize)]
    pub enum TableContent: "what a table holds" {
        /// Rows, in replicas on nodes of the key-value store.
        Data = "data",
        /// Only owners: leases for the participants of another service.
        Lease = "lease",
    }
}

words! {
    /// Distribution of a table's keys among its partitions.
    #[derive(Serialize, Deserialize)]
    pub enum KeysBy: "keys of a table" {
        /// A hash of the key.
        Hash = "hash",
        /// Ranges of keys.
        Range = "range",
    }
}

/// Distribution of a table's keys among its partitions; its kind never changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Keys {
    /// By a hash of the key ([`slot_of`](crate::tables::slot::slot_of)), among a fixed number of partitions.
    Hash {
        /// Number of partitions, `1..=`[`HASH_PARTITIONS_MAX`]; their numbers are below it.
        partitions: u32,
    },
    /// By ranges of keys, which are in the rows of the partitions.
    Range {
        /// Number of the next partition: it never falls, and no number is reused.
        next: u32,
        /// Limits for automatic splits and merges.
        limits: RangeLimits,
    },
}

impl Keys {
    /// Returns the number above those of all partitions that the table ever had.
    pub const fn numbers_end(self) -> u32 {
        match self {
            Self::Hash { partitions } => partitions,
            Self::Range { next, .. } => next,
        }
    }

    /// Returns the kind of distribution.
    pub const fn by(self) -> KeysBy {
        match self {
            Self::Hash { .. } => KeysBy::Hash,
            Self::Range { .. } => KeysBy::Range,
        }
    }

    /// Returns true for a table by ranges.
    pub const fn is_range(self) -> bool {
        matches!(self, Self::Range { .. })
    }

    /// Returns the limits for automatic splits and merges: none for a hashed table.
    pub const fn limits(self) -> RangeLimits {
        match self {
            Self::Hash { .. } => RangeLimits::NONE,
            Self::Range { limits, .. } => limits,
        }
    }
}

/// Most partitions of a new table by ranges.
pub const RANGES_FIRST_MAX: usize = 1_024;

/// Partitions of a new table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Partitioning {
    /// A number of partitions among which keys are hashed: `1..=`[`HASH_PARTITIONS_MAX`].
    Hash {
        /// Number of partitions.
        partitions: u32,
    },
    /// One range of keys, split at these ([`check_split_points`]): fewer than [`RANGES_FIRST_MAX`].
    Range {
        /// Begin of each partition except the first.
        split_at: Vec<Bytes>,
        /// Limits for automatic splits and merges.
        limits: RangeLimits,
    },
}

impl Partitioning {
    /// Validates untrusted input.
    ///
    /// # Errors
    /// `InvalidArgument`, with the wrong number or key and its valid values.
    pub fn check(&self) -> Result<(), ErrorDetail> {
        let invalid = |message: String| Err(ErrorDetail::new(ErrorKind::InvalidArgument, message));
        match self {
            Self::Hash { partitions } if !(1..=HASH_PARTITIONS_MAX).contains(partitions) => {
                invalid(format!("a table must have 1 to {HASH_PARTITIONS_MAX} partitions, not {partitions}"))
            }
            Self::Hash { .. } => Ok(()),
            Self::Range { split_at, .. } if split_at.len() >= RANGES_FIRST_MAX => invalid(format!(
                "{} split points would make more than {RANGES_FIRST_MAX} partitions; split further later",
                split_at.len()
            )),
            Self::Range { split_at, limits } => limits.check().and_then(|()| check_split_points(split_at)),
        }
    }

    /// Returns the ranges of its partitions, by number.
    pub fn ranges(&self) -> Vec<KeyRange> {
        match self {
            Self::Hash { partitions } => vec![KeyRange::ALL; *partitions as usize],
            Self::Range { split_at, .. } => {
                let begins = std::iter::once(Bytes::new()).chain(split_at.iter().cloned());
                let ends = split_at.iter().cloned().map(Some).chain(std::iter::once(None));
                begins.zip(ends).map(|(begin, end)| KeyRange { begin, end }).collect()
            }
        }
    }

    /// Returns the key distribution of the table's row.
    pub fn keys(&self) -> Keys {
        match self {
            Self::Hash { partitions } => Keys::Hash { partitions: *partitions },
            Self::Range { split_at, limits } => {
                let next = u32::try_from(split_at.len() + 1).unwrap_or(u32::MAX);
                Keys::Range { next, limits: *limits }
            }
        }
    }
}

/// Row of a table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Table {
    /// Number.
    pub id: TableId,
    /// Name.
    pub name: String,
    /// Distribution of its keys among its partitions.
    pub keys: Keys,
    /// Desired copies of each partition; 1 if there is no data to copy.
    pub replication: u8,
    /// Content of its partitions; never changes.
    pub holds: TableContent,
    /// Log index of its creation or last change.
    pub version: Version,
}

impl Table {
    /// Returns the traits that an operator can change.
    pub const fn traits(&self) -> TableTraits {
        TableTraits { replication: self.replication, limits: self.keys.limits() }
    }
}

/// Existing tables: a receiver forgets every other table that is as old.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TableList {
    /// Log index of the last drop of a table.
    pub version: Version,
    /// Last number given to a table. The list makes no statement about higher ones.
    pub last: TableId,
    /// Existing tables, by number.
    pub tables: Vec<TableId>,
}

impl TableList {
    /// Returns true if the list shows that the table existed and was dropped.
    pub fn lacks(&self, table: TableId) -> bool {
        table <= self.last && self.tables.binary_search(&table).is_err()
    }
}

/// The rows of one table newer than a version, with the nodes newer than it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TableDelta {
    /// Row of the table.
    pub table: Table,
    /// Every row newer than this is in the delta; zero for the whole table.
    pub since: Version,
    /// Version of the newest row of the tables.
    pub version: Version,
    /// Changed partitions.
    pub partitions: Vec<Partition>,
    /// Changed nodes.
    pub nodes: Vec<Node>,
    /// Removed nodes, if one was removed after `since`.
    pub removed: Option<RemovedNodes>,
}

/// Nodes newer than a version, for holders of several tables that need each node once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeDelta {
    /// Every node newer than this, up to `version`, is in the delta; zero for all nodes.
    pub since: Version,
    /// Version up to which nodes are included.
    pub version: Version,
    /// Changed nodes.
    pub nodes: Vec<Node>,
    /// Removed nodes, if one was removed after `since`.
    pub removed: Option<RemovedNodes>,
}
