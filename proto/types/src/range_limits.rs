//! From when on the partitions of a table by ranges are split and merged without anybody asking for it.

use crate::error::{ErrorDetail, ErrorKind};
use crate::merge::MERGE_BYTES_MAX;
use crate::text::bytes_text;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Least size above which partitions can be split by themselves, in bytes: smaller ones cost more to look after than they hold.
pub const SPLIT_BYTES_MIN: u64 = 1024 * 1024;
/// Least number of operations per second above which they can be: fewer are no load for any node.
pub const SPLIT_RATE_MIN: u64 = 100;
/// Two partitions are merged by themselves only if they have together at most this part of what would split them again.
const MERGE_PART: u64 = 2;

/// When partitions of a table by ranges are split and merged by themselves; without any limit none is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct RangeLimits {
    /// One is split above so many bytes of its keys and values, [`SPLIT_BYTES_MIN`] at least.
    pub split_above_bytes: Option<u64>,
    /// One is split above so many operations on it per second, [`SPLIT_RATE_MIN`] at least.
    pub split_above_rate: Option<u64>,
    /// Two neighbours are merged if they have together at most so many bytes: [`MERGE_BYTES_MAX`] at most, and at most half of
    /// `split_above_bytes`.
    pub merge_below_bytes: Option<u64>,
}

/// By what a partition is above a limit of its table, as its leader found it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Outgrown {
    /// So many bytes of keys and values.
    Bytes(u64),
    /// So many operations per second.
    Rate(u64),
}

/// How little a partition has been holding and getting for a while, as its leader found it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Undersized {
    /// Bytes of keys and values, about.
    pub bytes: u64,
    /// The most operations per second, if they are counted: only of tables that are split by them.
    pub rate: Option<u64>,
}

/// What an operator says of a table while it is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TableTraits {
    /// Copies wanted of each partition, `1..=7`.
    pub replication: u8,
    /// When partitions are split and merged by themselves; of tables by ranges alone.
    pub limits: RangeLimits,
}

/// What is to change of a table; `None` stays as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableChange {
    /// Copies wanted of each partition.
    pub replication: Option<u8>,
    /// The bytes above which a partition is split, or that none is.
    pub split_above_bytes: Option<Option<u64>>,
    /// The operations per second above which a partition is split, or that none is.
    pub split_above_rate: Option<Option<u64>>,
    /// The bytes up to which two neighbours are merged, or that none are.
    pub merge_below_bytes: Option<Option<u64>>,
}

impl RangeLimits {
    /// There is none.
    pub const NONE: Self = Self { split_above_bytes: None, split_above_rate: None, merge_below_bytes: None };

    /// Whether there is any limit.
    pub const fn is_set(self) -> bool {
        self.split_above_bytes.is_some() || self.split_above_rate.is_some() || self.merge_below_bytes.is_some()
    }

    /// Whether a partition of which that is true is above its limit.
    pub fn are_exceeded(self, by: Outgrown) -> bool {
        match by {
            Outgrown::Bytes(bytes) => self.split_above_bytes.is_some_and(|most| bytes > most),
            Outgrown::Rate(rate) => self.split_above_rate.is_some_and(|most| rate > most),
        }
    }

    /// Whether a partition is small enough that it is worth looking for a neighbour that is, too.
    pub fn may_merge(self, small: Undersized) -> bool {
        let rate = || match self.split_above_rate {
            Some(most) => small.rate.is_some_and(|rate| rate <= most / MERGE_PART),
            None => true,
        };
        self.merge_below_bytes.is_some_and(|most| small.bytes <= most) && rate()
    }

    /// Whether a partition that has what these two have is one that nothing splits soon.
    pub fn merges(self, left: Undersized, right: Undersized) -> bool {
        let rate = left.rate.zip(right.rate).map(|(left, right)| left.saturating_add(right));
        self.may_merge(Undersized { bytes: left.bytes.saturating_add(right.bytes), rate })
    }

    /// Accepts only what neither makes dust of a table nor has the same partition split and merged in turn.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`], naming what was found and what is possible.
    pub fn check(self) -> Result<(), ErrorDetail> {
        let invalid = |message: String| Err(ErrorDetail::new(ErrorKind::InvalidArgument, message));
        match self {
            Self { split_above_bytes: Some(bytes), .. } if bytes < SPLIT_BYTES_MIN => invalid(format!(
                "partitions cannot be split above {}: the least limit is {SPLIT_BYTES_MIN} bytes (1MiB), and 1GiB is ordinary",
                bytes_text(bytes)
            )),
            Self { split_above_rate: Some(rate), .. } if rate < SPLIT_RATE_MIN => invalid(format!(
                "partitions cannot be split above {rate} operations per second: the least limit is {SPLIT_RATE_MIN}"
            )),
            Self { merge_below_bytes: Some(bytes), .. } if bytes == 0 || bytes > MERGE_BYTES_MAX => invalid(format!(
                "partitions cannot be merged below {}: the limit is one of 1 to {MERGE_BYTES_MAX} bytes (16MiB)",
                bytes_text(bytes)
            )),
            Self { merge_below_bytes: Some(below), split_above_bytes: Some(above), .. }
                if below > above / MERGE_PART =>
            {
                invalid(format!(
                    "partitions cannot be merged below {} and split above {}: what was merged would soon be split again; \
                     merge below half of what is split at most, or change both",
                    bytes_text(below),
                    bytes_text(above)
                ))
            }
            _ => Ok(()),
        }
    }
}

impl TableTraits {
    /// These with what is to change.
    pub fn with(self, change: &TableChange) -> Self {
        let RangeLimits { split_above_bytes, split_above_rate, merge_below_bytes } = self.limits;
        Self {
            replication: change.replication.unwrap_or(self.replication),
            limits: RangeLimits {
                split_above_bytes: change.split_above_bytes.unwrap_or(split_above_bytes),
                split_above_rate: change.split_above_rate.unwrap_or(split_above_rate),
                merge_below_bytes: change.merge_below_bytes.unwrap_or(merge_below_bytes),
            },
        }
    }
}

impl TableChange {
    /// The limits that it sets, as far as they can be judged without those of the table.
    pub fn limits(&self) -> RangeLimits {
        RangeLimits {
            split_above_bytes: self.split_above_bytes.flatten(),
            split_above_rate: self.split_above_rate.flatten(),
            merge_below_bytes: self.merge_below_bytes.flatten(),
        }
    }
}

impl fmt::Display for Outgrown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "it holds {}", bytes_text(*bytes)),
            Self::Rate(rate) => write!(f, "it gets {rate} operations per second"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1024 * 1024;

    fn limits(bytes: Option<u64>, rate: Option<u64>, merge: Option<u64>) -> RangeLimits {
        RangeLimits { split_above_bytes: bytes, split_above_rate: rate, merge_below_bytes: merge }
    }

    #[test]
    fn limits_that_would_make_dust_are_refused_with_the_least_there_is() {
        for good in [
            RangeLimits::NONE,
            limits(Some(SPLIT_BYTES_MIN), Some(SPLIT_RATE_MIN), None),
            limits(Some(u64::MAX), None, None),
        ] {
            assert_eq!(good.check(), Ok(()));
        }
        for (bad, least) in [
            (limits(Some(SPLIT_BYTES_MIN - 1), None, None), "1MiB"),
            (limits(None, Some(0), None), "the least limit is 100"),
        ] {
            let error = bad.check().unwrap_err();
            assert!(error.kind == ErrorKind::InvalidArgument && error.message.contains(least), "{error:?}");
        }
    }

    #[test]
    fn what_is_merged_is_small_and_far_from_being_split_again() {
        for good in
            [(None, 1), (None, MERGE_BYTES_MAX), (Some(32 * MIB), MERGE_BYTES_MAX), (Some(SPLIT_BYTES_MIN), MIB / 2)]
        {
            assert_eq!(limits(good.0, None, Some(good.1)).check(), Ok(()), "{good:?}");
        }
        for (split, merge, why) in [
            (None, 0, "1 to"),
            (None, MERGE_BYTES_MAX + 1, "16MiB"),
            (Some(32 * MIB - 2), MERGE_BYTES_MAX, "soon be split again"),
        ] {
            let error = limits(split, None, Some(merge)).check().unwrap_err();
            assert!(error.kind == ErrorKind::InvalidArgument && error.message.contains(why), "{error:?}");
        }
    }

    #[test]
    fn a_limit_is_exceeded_by_more_of_what_it_limits() {
        let bytes = limits(Some(SPLIT_BYTES_MIN), None, None);
        assert!(bytes.are_exceeded(Outgrown::Bytes(SPLIT_BYTES_MIN + 1)));
        assert!(!bytes.are_exceeded(Outgrown::Bytes(SPLIT_BYTES_MIN)));
        assert!(!bytes.are_exceeded(Outgrown::Rate(u64::MAX)), "there is no such limit");
        assert!(limits(None, Some(SPLIT_RATE_MIN), None).are_exceeded(Outgrown::Rate(SPLIT_RATE_MIN + 1)));
    }

    #[test]
    fn a_partition_whose_load_nobody_counted_is_not_merged_in_a_table_that_is_split_by_load() {
        let small = |bytes, rate| Undersized { bytes, rate };
        let by_load = limits(None, Some(1_000), Some(MIB));
        assert!(by_load.merges(small(0, Some(200)), small(MIB, Some(300))));
        assert!(!by_load.merges(small(0, Some(200)), small(MIB, Some(301))), "half of what splits it at most");
        assert!(!by_load.merges(small(0, None), small(0, Some(0))));
        let by_size = limits(None, None, Some(MIB));
        assert!(by_size.merges(small(0, None), small(MIB, None)) && !by_size.merges(small(1, None), small(MIB, None)));
        assert!(!RangeLimits::NONE.merges(small(0, None), small(0, None)), "nobody asked for it");
    }

    #[test]
    fn what_is_not_said_stays() {
        let before = TableTraits { replication: 3, limits: limits(Some(SPLIT_BYTES_MIN), None, Some(9)) };
        let change = TableChange { split_above_rate: Some(Some(500)), ..TableChange::default() };
        let after = before.with(&change);
        assert_eq!(after.limits, limits(Some(SPLIT_BYTES_MIN), Some(500), Some(9)));
        let off = TableChange {
            split_above_bytes: Some(None),
            merge_below_bytes: Some(None),
            replication: Some(2),
            ..TableChange::default()
        };
        let expected = TableTraits { replication: 2, limits: limits(None, Some(500), None) };
        assert_eq!(after.with(&off), expected);
    }

    proptest! {
        /// With limits that are accepted nothing is merged that is to be split at once.
        #[test]
        fn what_is_merged_is_above_no_limit(
            split in proptest::option::of(SPLIT_BYTES_MIN..64 * MIB),
            rate in proptest::option::of(SPLIT_RATE_MIN..10_000),
            merge in 1..=MERGE_BYTES_MAX,
            left in (0..64 * MIB, proptest::option::of(0..10_000_u64)),
            right in (0..64 * MIB, proptest::option::of(0..10_000_u64)),
        ) {
            let limits = limits(split, rate, Some(merge));
            let small = |(bytes, rate)| Undersized { bytes, rate };
            if limits.check().is_ok() && limits.merges(small(left), small(right)) {
                prop_assert!(!limits.are_exceeded(Outgrown::Bytes(left.0 + right.0)));
                let rate = left.1.unwrap_or_default() + right.1.unwrap_or_default();
                prop_assert!(rate == 0 || !limits.are_exceeded(Outgrown::Rate(rate)) );
                prop_assert!(limits.may_merge(small(left)) && limits.may_merge(small(right)), "each is small by itself");
            }
        }
    }
}
