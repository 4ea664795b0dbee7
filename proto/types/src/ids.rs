//! Identifiers and counters. Each has its own type with a private field and no arithmetic beyond a checked `next`, so
//! that an epoch cannot be passed as a version.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use uuid::Uuid;

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        #[schemars(inline)]
        pub struct $name(u64);

        impl $name {
            /// The lowest value.
            pub const ZERO: Self = Self(0);

            /// Wraps a raw number from the wire or the disk.
            pub const fn new(value: u64) -> Self {
                Self(value)
            }

            /// Returns the raw number, for the wire, the disk and display.
            pub const fn get(self) -> u64 {
                self.0
            }

            /// Returns the successor, or `None` at the end of the range (which no cluster reaches: 2^64 steps).
            pub const fn next(self) -> Option<Self> {
                match self.0.checked_add(1) {
                    Some(value) => Some(Self(value)),
                    None => None,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

counter!(
    /// A node's number, minted by the coordinator once per [`StorageId`] and never reused.
    NodeId
);
counter!(
    /// One replica of one partition on one node. Never reused; stored data is keyed by it.
    PlacementId
);
counter!(
    /// Leadership generation of one partition: +1 whenever leadership is granted anew (or ended).
    Epoch
);
counter!(
    /// Position in a partition's log within its life, starting at 1. [`Seq::ZERO`] is "before the first entry".
    Seq
);
counter!(
    /// Raft log index of a row's last change; guards every edit (compare-and-set).
    Version
);
counter!(
    /// Raft log index of a node's registration; a message of an older incarnation is refused.
    Incarnation
);
counter!(
    /// The number of a stored value: the position of the write that made it. Zero means "no value".
    Revision
);
counter!(
    /// Milliseconds on some clock; the place that uses it says which (wall clock of the proposer, or a local
    /// monotone clock that includes suspend).
    Millis
);
counter!(
    /// A table's number; `default` is table 1.
    TableId
);

impl Seq {
    /// Returns the previous position; zero stays zero.
    pub const fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

impl Millis {
    /// Returns this instant plus `millis`, saturating.
    pub const fn plus(self, millis: u64) -> Self {
        Self(self.0.saturating_add(millis))
    }

    /// Returns the milliseconds from `earlier` to `self`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

macro_rules! unique {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// The identifier that means "none"; never generated.
            pub const NIL: Self = Self(Uuid::nil());

            /// Wraps random bytes; the caller owns the randomness (this crate has none).
            pub const fn new(value: Uuid) -> Self {
                Self(value)
            }

            /// Returns the UUID.
            pub const fn get(self) -> Uuid {
                self.0
            }

            /// Returns true for the identifier that means "none".
            pub const fn is_nil(self) -> bool {
                self.0.is_nil()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

unique!(
    /// A cluster: one quorum and its nodes. Generated at bootstrap, carried by every RPC.
    ClusterId
);
unique!(
    /// One recovery that began a generation: two recoveries may begin generations of the same number. Nil for the first
    /// generation, which begins once, and for generations under a protocol without such keys.
    GenerationKey
);
unique!(
    /// A data directory; generated on its creation. A node that returns with another one has lost its data.
    StorageId
);
unique!(
    /// One run of a process: distinguishes a repeated registration from a restart.
    BootId
);
unique!(
    /// Secret that a node gives only to the coordinators that it calls itself; a push with this key comes from one of
    /// them.
    PushKey
);
unique!(
    /// One client instance, for exactly-once retries.
    ClientId
);
unique!(
    /// One request to the coordinator, for exactly-once retries of admin commands.
    RequestId
);

/// A partition: its table and its number within it, `0..P`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct PartitionId {
    /// Table of the partition.
    pub table: TableId,
    /// Number, `0..P`.
    pub index: u32,
}

impl PartitionId {
    /// Creates the id of partition `index` of `table`.
    pub const fn new(table: TableId, index: u32) -> Self {
        Self { table, index }
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.table, self.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_is_checked() {
        assert_eq!(Epoch::new(1).next(), Some(Epoch::new(2)));
        assert_eq!(Epoch::new(u64::MAX).next(), None);
    }

    #[test]
    fn time_saturates_instead_of_wrapping() {
        assert_eq!(Millis::new(5).since(Millis::new(9)), 0);
        assert_eq!(Millis::new(u64::MAX).plus(1), Millis::new(u64::MAX));
    }
}
