//! Ranges of keys, of partitions in tables by ranges and of scans.

use crate::admin::open_enum::words;
use crate::common::limits::check_key;
use crate::common::text::shown_key;
use crate::error::{ErrorDetail, ErrorKind};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Keys from `begin` up to, not including, `end`, in byte order. Bounds need not be keys themselves.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct KeyRange {
    /// First key of the range; empty: from the first key.
    pub begin: Bytes,
    /// First key beyond the range; `None`: up to the last key.
    pub end: Option<Bytes>,
}

impl KeyRange {
    /// All keys.
    pub const ALL: Self = Self { begin: Bytes::new(), end: None };

    /// Returns the range of keys with this prefix.
    pub fn of_prefix(prefix: Bytes) -> Self {
        let end = prefix_end(&prefix);
        Self { begin: prefix, end }
    }

    /// Returns the part of the range above this key; an empty key is below every key.
    pub fn after(mut self, key: &[u8]) -> Self {
        if !key.is_empty() && key >= &self.begin[..] {
            let mut next = Vec::with_capacity(key.len() + 1);
            next.extend_from_slice(key);
            next.push(0);
            self.begin = next.into();
        }
        self
    }

    /// Returns the part of the range below this key.
    pub fn before(mut self, key: Bytes) -> Self {
        if self.reaches(&key) {
            self.end = Some(key);
        }
        self
    }

    /// Returns the part of the range that follows this key in scan order.
    pub fn following(self, key: &Bytes, order: ScanOrder) -> Self {
        match order {
            ScanOrder::Ascending => self.after(key),
            ScanOrder::Descending => self.before(key.clone()),
        }
    }

    /// Returns the intersection of both ranges.
    pub fn and(self, other: &Self) -> Self {
        let begin = if other.begin > self.begin { other.begin.clone() } else { self.begin.clone() };
        let within = Self { begin, ..self };
        match &other.end {
            Some(end) => within.before(end.clone()),
            None => within,
        }
    }

    /// Returns true if a key can be in both ranges.
    pub fn overlaps(&self, other: &Self) -> bool {
        !self.clone().and(other).is_empty()
    }

    /// Returns true if the range contains the key.
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= &self.begin[..] && self.end.as_ref().is_none_or(|end| key < &end[..])
    }

    /// Returns true if no key can be in the range.
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.begin)
    }

    /// Returns true if the range contains every key.
    pub fn is_all(&self) -> bool {
        self.begin.is_empty() && self.end.is_none()
    }

    /// Returns true if the end of the range lies above `key`.
    fn reaches(&self, key: &Bytes) -> bool {
        self.end.as_ref().is_none_or(|end| end > key)
    }
}

/// Returns the lowest byte string above all strings with this prefix; `None` if there is none.
fn prefix_end(prefix: &[u8]) -> Option<Bytes> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut end = prefix.get(..=last)?.to_vec();
    *end.last_mut()? += 1;
    Some(end.into())
}

words! {
    /// Key order of a scan.
    #[derive(Serialize, Deserialize)]
    pub enum ScanOrder: "order of a scan" {
        /// The least first.
        Ascending = "ascending",
        /// The greatest first.
        Descending = "descending",
    }
}

/// Checks the split points of a new table: valid keys, in ascending order, without duplicates.
///
/// # Errors
/// `InvalidArgument`, naming the key and its fault.
pub fn check_split_points(points: &[Bytes]) -> Result<(), ErrorDetail> {
    points.iter().try_for_each(|point| check_key(point))?;
    let Some(pair) = points.windows(2).find(|pair| pair[0] >= pair[1]) else { return Ok(()) };
    let point = shown_key(&pair[1]);
    let why = match pair[0] == pair[1] {
        true => format!("the split point {point} stands there twice; give each once"),
        false => format!("the split point {point} stands there after a greater one; give them in order of bytes"),
    };
    Err(ErrorDetail::new(ErrorKind::InvalidArgument, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(begin: &'static str, end: &'static str) -> KeyRange {
        let end = (!end.is_empty()).then(|| Bytes::from_static(end.as_bytes()));
        KeyRange { begin: Bytes::from_static(begin.as_bytes()), end }
    }

    #[test]
    fn prefix_range_ends_before_next_greater_key() {
        assert_eq!(KeyRange::of_prefix(Bytes::from_static(b"ab")), range("ab", "ac"));
        let of = |prefix: &'static [u8]| KeyRange::of_prefix(Bytes::from_static(prefix)).end;
        assert_eq!(of(b"a\xff"), Some(Bytes::from_static(b"b")));
        assert_eq!((of(b"\xff\xff"), of(b"")), (None, None));
    }

    #[test]
    fn every_key_follows_the_empty_key() {
        assert_eq!(KeyRange::ALL.after(b""), KeyRange::ALL);
        assert_eq!(range("b", "").after(b"a"), range("b", ""));
    }

    #[test]
    fn split_points_are_valid_ascending_and_unique() {
        let check = |points: &[&'static str]| {
            let points: Vec<Bytes> = points.iter().map(|point| Bytes::from_static(point.as_bytes())).collect();
            check_split_points(&points).map_err(|error| error.message)
        };
        assert_eq!(check(&["a", "b"]), Ok(()));
        assert!(check(&["a", "a"]).unwrap_err().contains("twice"));
        assert!(check(&["b", "a"]).unwrap_err().contains("in order"));
        assert!(check(&[""]).is_err());
    }

    proptest! {
        #[test]
        fn bounds_agree_with_the_keys(
            begin in "[a-c]{0,2}", end in proptest::option::of("[a-c]{0,2}"), other in "[a-c]{0,2}",
            until in proptest::option::of("[a-c]{0,2}"), key in "[a-c]{1,3}", at in "[a-c]{0,2}",
        ) {
            let range = KeyRange { begin: begin.into(), end: end.map(Into::into) };
            let other = KeyRange { begin: other.into(), end: until.map(Into::into) };
            let key = key.as_bytes();
            let (within, at) = (range.contains(key), Bytes::from(at));
            prop_assert_eq!(range.clone().and(&other).contains(key), within && other.contains(key));
            prop_assert_eq!(range.clone().after(&at).contains(key), within && key > &at[..]);
            prop_assert_eq!(range.clone().before(at.clone()).contains(key), within && key < &at[..]);
            prop_assert!(!(range.is_empty() && within));
            prop_assert_eq!(KeyRange::of_prefix(at.clone()).contains(key), key.starts_with(&at));
        }
    }
}
