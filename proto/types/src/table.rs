//! A table's row, and the deltas by which its partitions' rows travel.

use crate::error::{ErrorDetail, ErrorKind};
use crate::ids::{TableId, Version};
use crate::key_range::{KeyRange, check_split_points};
use crate::node::Node;
use crate::partition::Partition;
use crate::range_limits::{RangeLimits, TableTraits};
use crate::removed::RemovedNodes;
use crate::slot::HASH_PARTITIONS_MAX;
use crate::word::words;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The table that exists from bootstrap; an empty name stands for it.
pub const DEFAULT_TABLE: &str = "default";

words! {
    /// What the partitions of a table are.
    #[derive(Serialize, Deserialize)]
    pub enum Holds: "what a table holds" {
        /// Rows, in copies on nodes of the key-value store.
        Data = "data",
        /// Nothing but who owns each: leases for the participants of another service.
        Lease = "lease",
    }
}

words! {
    /// By what the keys of a table are shared among its partitions.
    #[derive(Serialize, Deserialize)]
    pub enum KeysBy: "keys of a table" {
        /// A hash of the key.
        Hash = "hash",
        /// Ranges of keys.
        Range = "range",
    }
}

/// How the keys of a table are shared among its partitions; never changed from one to the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Keys {
    /// By a hash of the key ([`slot_of`](crate::slot::slot_of)), among a number of partitions that stays the same.
    Hash {
        /// How many, `1..=`[`HASH_PARTITIONS_MAX`]; their numbers are below it.
        partitions: u32,
    },
    /// By ranges of keys, which each partition says of itself.
    Range {
        /// The number of the next partition: it never falls, and no number is given twice.
        next: u32,
        /// When partitions are split and merged by themselves.
        limits: RangeLimits,
    },
}

impl Keys {
    /// The number that is above those of all partitions that the table ever had.
    pub const fn numbers_end(self) -> u32 {
        match self {
            Self::Hash { partitions } => partitions,
            Self::Range { next, .. } => next,
        }
    }

    /// By what.
    pub const fn by(self) -> KeysBy {
        match self {
            Self::Hash { .. } => KeysBy::Hash,
            Self::Range { .. } => KeysBy::Range,
        }
    }

    /// Whether the keys are in ranges.
    pub const fn is_range(self) -> bool {
        matches!(self, Self::Range { .. })
    }

    /// When partitions are split and merged by themselves: never, if keys are hashed.
    pub const fn limits(self) -> RangeLimits {
        match self {
            Self::Hash { .. } => RangeLimits::NONE,
            Self::Range { limits, .. } => limits,
        }
    }
}

/// Most partitions that a table by ranges begins with.
pub const RANGES_FIRST_MAX: usize = 1_024;

/// The partitions of a table when it is made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Partitioning {
    /// So many, among which keys are hashed: `1..=`[`HASH_PARTITIONS_MAX`].
    Hash {
        /// How many.
        partitions: u32,
    },
    /// One range of keys, split at these ([`check_split_points`]): fewer than [`RANGES_FIRST_MAX`].
    Range {
        /// Where each but the first one begins.
        split_at: Vec<Bytes>,
        /// When partitions are split and merged by themselves.
        limits: RangeLimits,
    },
}

impl Partitioning {
    /// Checks what came from outside.
    ///
    /// # Errors
    /// `InvalidArgument`, with the number or the key that is wrong, and what it may be.
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

    /// The ranges of its partitions, by number.
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

    /// What the table says of its keys.
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

/// A table's row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Table {
    /// Its number.
    pub id: TableId,
    /// Its name.
    pub name: String,
    /// How its keys are shared among its partitions.
    pub keys: Keys,
    /// Copies wanted of each partition; 1 where there is nothing to copy.
    pub replication: u8,
    /// What its partitions are; never changed.
    pub holds: Holds,
    /// Log index of its creation or last change.
    pub version: Version,
}

impl Table {
    /// What an operator may say otherwise of it.
    pub const fn traits(&self) -> TableTraits {
        TableTraits { replication: self.replication, limits: self.keys.limits() }
    }
}

/// Which tables there are: whoever is told so drops what it knows of every other one that is as old.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TableList {
    /// Log index of the last drop of a table.
    pub version: Version,
    /// The last number that was given to a table. Of tables with higher ones the list says nothing.
    pub last: TableId,
    /// The tables that there are, by number.
    pub tables: Vec<TableId>,
}

impl TableList {
    /// Whether the list says that there was a table of this number and is none any more.
    pub fn lacks(&self, table: TableId) -> bool {
        table <= self.last && self.tables.binary_search(&table).is_err()
    }
}

/// The rows of one table newer than a version, with the nodes newer than it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TableDelta {
    /// The table itself.
    pub table: Table,
    /// Every row newer than this is in the delta; zero for the whole table.
    pub since: Version,
    /// The version of the newest row.
    pub version: Version,
    /// Changed partitions.
    pub partitions: Vec<Partition>,
    /// Changed nodes.
    pub nodes: Vec<Node>,
    /// Who is gone, if a node was removed after `since`.
    pub removed: Option<RemovedNodes>,
}

/// The nodes newer than a version, for those who hold several tables and need each node once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeDelta {
    /// Every node newer than this, up to `version`, is in the delta; zero for all nodes.
    pub since: Version,
    /// Up to which version nodes are in it.
    pub version: Version,
    /// Changed nodes.
    pub nodes: Vec<Node>,
    /// Who is gone, if a node was removed after `since`.
    pub removed: Option<RemovedNodes>,
}
