//! From when on the partitions of a table by ranges are split without anybody asking for it.

use crate::error::{ErrorDetail, ErrorKind};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Least size above which partitions can be split by themselves, in bytes: smaller ones cost more to look after than they hold.
pub const SPLIT_BYTES_MIN: u64 = 1024 * 1024;
/// Least number of operations per second above which they can be: fewer are no load for any node.
pub const SPLIT_RATE_MIN: u64 = 100;

/// Above what a partition of a table by ranges is split by itself; without either limit none is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct SplitLimits {
    /// Bytes of its keys and values, [`SPLIT_BYTES_MIN`] at least.
    pub bytes: Option<u64>,
    /// Operations on it per second, [`SPLIT_RATE_MIN`] at least.
    pub rate: Option<u64>,
}

/// By what a partition is above a limit of its table, as its leader found it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Outgrown {
    /// So many bytes of keys and values.
    Bytes(u64),
    /// So many operations per second.
    Rate(u64),
}

/// What an operator says of a table while it is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TableTraits {
    /// Copies wanted of each partition, `1..=7`.
    pub replication: u8,
    /// When partitions are split by themselves; of tables by ranges alone.
    pub split_above: SplitLimits,
}

/// What is to change of a table; `None` stays as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableChange {
    /// Copies wanted of each partition.
    pub replication: Option<u8>,
    /// The limit of bytes, or none.
    pub split_above_bytes: Option<Option<u64>>,
    /// The limit of operations per second, or none.
    pub split_above_rate: Option<Option<u64>>,
}

impl SplitLimits {
    /// Whether there is any limit.
    pub const fn is_set(self) -> bool {
        self.bytes.is_some() || self.rate.is_some()
    }

    /// Whether a partition of which that is true is above its limit.
    pub fn are_exceeded(self, by: Outgrown) -> bool {
        match by {
            Outgrown::Bytes(bytes) => self.bytes.is_some_and(|most| bytes > most),
            Outgrown::Rate(rate) => self.rate.is_some_and(|most| rate > most),
        }
    }

    /// Accepts only what does not make dust of a table.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`], naming what was found and the least that is possible.
    pub fn check(self) -> Result<(), ErrorDetail> {
        let invalid = |message: String| Err(ErrorDetail::new(ErrorKind::InvalidArgument, message));
        match self {
            Self { bytes: Some(bytes), .. } if bytes < SPLIT_BYTES_MIN => invalid(format!(
                "partitions cannot be split above {bytes} bytes: the least limit is {SPLIT_BYTES_MIN} (1MiB), and 1GiB is ordinary"
            )),
            Self { rate: Some(rate), .. } if rate < SPLIT_RATE_MIN => invalid(format!(
                "partitions cannot be split above {rate} operations per second: the least limit is {SPLIT_RATE_MIN}"
            )),
            _ => Ok(()),
        }
    }
}

impl TableTraits {
    /// These with what is to change.
    pub fn with(self, change: &TableChange) -> Self {
        let SplitLimits { bytes, rate } = self.split_above;
        Self {
            replication: change.replication.unwrap_or(self.replication),
            split_above: SplitLimits {
                bytes: change.split_above_bytes.unwrap_or(bytes),
                rate: change.split_above_rate.unwrap_or(rate),
            },
        }
    }
}

impl fmt::Display for SplitLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.bytes, self.rate) {
            (None, None) => f.write_str("partitions are split by operators alone"),
            (Some(bytes), None) => write!(f, "partitions are split above {bytes} bytes"),
            (None, Some(rate)) => write!(f, "partitions are split above {rate} operations per second"),
            (Some(bytes), Some(rate)) => {
                write!(f, "partitions are split above {bytes} bytes and above {rate} operations per second")
            }
        }
    }
}

impl fmt::Display for Outgrown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "it holds {bytes} bytes"),
            Self::Rate(rate) => write!(f, "it gets {rate} operations per second"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_would_make_dust_are_refused_with_the_least_there_is() {
        let limits = |bytes, rate| SplitLimits { bytes, rate };
        for good in
            [limits(None, None), limits(Some(SPLIT_BYTES_MIN), Some(SPLIT_RATE_MIN)), limits(Some(u64::MAX), None)]
        {
            assert_eq!(good.check(), Ok(()));
        }
        for (bad, least) in
            [(limits(Some(SPLIT_BYTES_MIN - 1), None), "1MiB"), (limits(None, Some(0)), "the least limit is 100")]
        {
            let error = bad.check().unwrap_err();
            assert!(error.kind == ErrorKind::InvalidArgument && error.message.contains(least), "{error:?}");
        }
    }

    #[test]
    fn a_limit_is_exceeded_by_more_of_what_it_limits() {
        let limits = SplitLimits { bytes: Some(SPLIT_BYTES_MIN), rate: None };
        assert!(limits.are_exceeded(Outgrown::Bytes(SPLIT_BYTES_MIN + 1)));
        assert!(!limits.are_exceeded(Outgrown::Bytes(SPLIT_BYTES_MIN)));
        assert!(!limits.are_exceeded(Outgrown::Rate(u64::MAX)), "there is no such limit");
        assert!(
            SplitLimits { rate: Some(SPLIT_RATE_MIN), bytes: None }.are_exceeded(Outgrown::Rate(SPLIT_RATE_MIN + 1))
        );
    }

    #[test]
    fn what_is_not_said_stays() {
        let before =
            TableTraits { replication: 3, split_above: SplitLimits { bytes: Some(SPLIT_BYTES_MIN), rate: None } };
        let change = TableChange { split_above_rate: Some(Some(500)), ..TableChange::default() };
        let after = before.with(&change);
        assert_eq!(after.split_above, SplitLimits { bytes: Some(SPLIT_BYTES_MIN), rate: Some(500) });
        let off = TableChange { split_above_bytes: Some(None), replication: Some(2), ..TableChange::default() };
        let expected = TableTraits { replication: 2, split_above: SplitLimits { bytes: None, rate: Some(500) } };
        assert_eq!(after.with(&off), expected);
    }
}
