//! Limits above or below which partitions of a table by ranges are split and merged automatically.

use crate::common::text::bytes_text;
use crate::error::{ErrorDetail, ErrorKind};
use crate::members::node_traits::present;
use crate::tables::merge::MERGE_BYTES_MAX;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Minimum size limit for automatic splits, in bytes: smaller partitions cost more than they hold.
pub const SPLIT_BYTES_MIN: u64 = 1024 * 1024;
/// Minimum rate limit for automatic splits, in operations per second: a lower rate is no load for any node.
pub const SPLIT_RATE_MIN: u64 = 100;
/// Inverse of the fraction of the split limits below which two partitions together may be merged automatically.
const MERGE_PART: u64 = 2;

/// Limits for automatic splits and merges in a range table; no limit means never.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct RangeLimits {
    /// Splits a partition above this many bytes of keys and values, at least [`SPLIT_BYTES_MIN`].
    pub split_above_bytes: Option<u64>,
    /// Splits a partition above this many operations per second, at least [`SPLIT_RATE_MIN`].
    pub split_above_rate: Option<u64>,
    /// Merges two neighbours that together have at most this many bytes: at most [`MERGE_BYTES_MAX`], and at most half
    /// of `split_above_bytes`.
    pub merge_below_bytes: Option<u64>,
}

/// Limit that a partition exceeds, as its leader found it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum ExceededLimit {
    /// Bytes of keys and values.
    Bytes(u64),
    /// Operations per second.
    Rate(u64),
}

/// Low size and load of a partition over a while, as its leader found them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct LowUsage {
    /// Bytes of keys and values, approximately.
    pub bytes: u64,
    /// Highest rate in operations per second, if counted: only in tables with a rate limit.
    pub rate: Option<u64>,
}

/// Traits of a table that an operator can change while it exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TableTraits {
    /// Desired replicas of each partition, `1..=7`.
    pub replication: u8,
    /// Limits for automatic splits and merges; only for tables by ranges.
    pub limits: RangeLimits,
}

/// A change of a table; `None` stays as it is. In JSON an absent field stays as it is, and `null` is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TableChange {
    /// Number of replicas of each partition, 1 to 7.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication: Option<u8>,
    /// Size in bytes above which a partition is split; null: never.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub split_above_bytes: Option<Option<u64>>,
    /// Operations per second above which a partition is split; null: never.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub split_above_rate: Option<Option<u64>>,
    /// Size in bytes up to which two neighbours are merged; null: never.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub merge_below_bytes: Option<Option<u64>>,
}

impl RangeLimits {
    /// No limits.
    pub const NONE: Self = Self { split_above_bytes: None, split_above_rate: None, merge_below_bytes: None };

    /// Returns true if any limit is set.
    pub const fn is_set(self) -> bool {
        self.split_above_bytes.is_some() || self.split_above_rate.is_some() || self.merge_below_bytes.is_some()
    }

    /// Returns true if this size or rate exceeds its limit.
    pub fn are_exceeded(self, by: ExceededLimit) -> bool {
        match by {
            ExceededLimit::Bytes(bytes) => self.split_above_bytes.is_some_and(|most| bytes > most),
            ExceededLimit::Rate(rate) => self.split_above_rate.is_some_and(|most| rate > most),
        }
    }

    /// Returns true if a partition is small enough to search for a small neighbour.
    pub fn may_merge(self, small: LowUsage) -> bool {
        let rate = || match self.split_above_rate {
            Some(most) => small.rate.is_some_and(|rate| rate <= most / MERGE_PART),
            None => true,
        };
        self.merge_below_bytes.is_some_and(|most| small.bytes <= most) && rate()
    }

    /// Returns true if the merged partition would not be split again soon.
    pub fn merges(self, left: LowUsage, right: LowUsage) -> bool {
        let rate = left.rate.zip(right.rate).map(|(left, right)| left.saturating_add(right));
        self.may_merge(LowUsage { bytes: left.bytes.saturating_add(right.bytes), rate })
    }

    /// Rejects limits that would create tiny partitions, or split and merge the same partition in turn.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`], naming the value found and the valid values.
    pub fn check(self) -> Result<(), ErrorDetail> {
        let invalid = |message: String| Err(ErrorDetail::new(ErrorKind::InvalidArgument, message));
        match self {
            Self { split_above_bytes: Some(bytes), .. } if bytes < SPLIT_BYTES_MIN => invalid(format!(
                "partitions cannot be split above {}: the minimum is {SPLIT_BYTES_MIN} bytes (1MiB), and 1GiB is typical",
                bytes_text(bytes)
            )),
            Self { split_above_rate: Some(rate), .. } if rate < SPLIT_RATE_MIN => invalid(format!(
                "partitions cannot be split above {rate} operations per second: the minimum is {SPLIT_RATE_MIN}"
            )),
            Self { merge_below_bytes: Some(bytes), .. } if bytes == 0 || bytes > MERGE_BYTES_MAX => invalid(format!(
                "partitions cannot be merged below {}: the limit must be 1 to {MERGE_BYTES_MAX} bytes (16MiB)",
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
    /// Returns these traits with a change applied.
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
    /// Returns the limits that it sets, as far as they can be checked without those of the table.
    pub fn limits(&self) -> RangeLimits {
        RangeLimits {
            split_above_bytes: self.split_above_bytes.flatten(),
            split_above_rate: self.split_above_rate.flatten(),
            merge_below_bytes: self.merge_below_bytes.flatten(),
        }
    }
}

impl fmt::Display for ExceededLimit {
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
    fn limits_below_minimum_are_rejected_naming_the_minimum() {
        for good in [
            RangeLimits::NONE,
            limits(Some(SPLIT_BYTES_MIN), Some(SPLIT_RATE_MIN), None),
            limits(Some(u64::MAX), None, None),
        ] {
            assert_eq!(good.check(), Ok(()));
        }
        for (bad, least) in [
            (limits(Some(SPLIT_BYTES_MIN - 1), None, None), "1MiB"),
            (limits(None, Some(0), None), "the minimum is 100"),
        ] {
            let error = bad.check().unwrap_err();
            assert!(error.kind == ErrorKind::InvalidArgument && error.message.contains(least), "{error:?}");
        }
    }

    #[test]
    fn merged_partitions_are_small_and_far_from_a_split() {
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
    fn limit_is_exceeded_only_by_its_own_quantity() {
        let bytes = limits(Some(SPLIT_BYTES_MIN), None, None);
        assert!(bytes.are_exceeded(ExceededLimit::Bytes(SPLIT_BYTES_MIN + 1)));
        assert!(!bytes.are_exceeded(ExceededLimit::Bytes(SPLIT_BYTES_MIN)));
        assert!(!bytes.are_exceeded(ExceededLimit::Rate(u64::MAX)), "there is no such limit");
        assert!(limits(None, Some(SPLIT_RATE_MIN), None).are_exceeded(ExceededLimit::Rate(SPLIT_RATE_MIN + 1)));
    }

    #[test]
    fn partition_of_unknown_rate_is_not_merged_if_rate_splits() {
        let small = |bytes, rate| LowUsage { bytes, rate };
        let by_load = limits(None, Some(1_000), Some(MIB));
        assert!(by_load.merges(small(0, Some(200)), small(MIB, Some(300))));
        assert!(!by_load.merges(small(0, Some(200)), small(MIB, Some(301))), "half of what splits it at most");
        assert!(!by_load.merges(small(0, None), small(0, Some(0))));
        let by_size = limits(None, None, Some(MIB));
        assert!(by_size.merges(small(0, None), small(MIB, None)) && !by_size.merges(small(1, None), small(MIB, None)));
        assert!(!RangeLimits::NONE.merges(small(0, None), small(0, None)), "nobody asked for it");
    }

    #[test]
    fn unset_values_are_kept() {
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
        /// Accepted limits never merge partitions that would be split at once.
        #[test]
        fn merged_partition_exceeds_no_limit(
            split in proptest::option::of(SPLIT_BYTES_MIN..64 * MIB),
            rate in proptest::option::of(SPLIT_RATE_MIN..10_000),
            merge in 1..=MERGE_BYTES_MAX,
            left in (0..64 * MIB, proptest::option::of(0..10_000_u64)),
            right in (0..64 * MIB, proptest::option::of(0..10_000_u64)),
        ) {
            let limits = limits(split, rate, Some(merge));
            let small = |(bytes, rate)| LowUsage { bytes, rate };
            if limits.check().is_ok() && limits.merges(small(left), small(right)) {
                prop_assert!(!limits.are_exceeded(ExceededLimit::Bytes(left.0 + right.0)));
                let rate = left.1.unwrap_or_default() + right.1.unwrap_or_default();
                prop_assert!(rate == 0 || !limits.are_exceeded(ExceededLimit::Rate(rate)) );
                prop_assert!(limits.may_merge(small(left)) && limits.may_merge(small(right)), "each is small by itself");
            }
        }
    }
}
