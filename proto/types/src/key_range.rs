//! Keys between two bounds: what a partition of a table by ranges has, and what a scan asks for.

use crate::error::{ErrorDetail, ErrorKind};
use crate::limits::check_key;
use crate::text::shown_key;
use crate::word::words;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Keys from `begin` up to, not including, `end`, in order of bytes. Bounds need not be keys themselves.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct KeyRange {
    /// The least key in it; empty: from the first one on.
    pub begin: Bytes,
    /// The least key beyond it; `None`: up to the last one.
    pub end: Option<Bytes>,
}

impl KeyRange {
    /// Every key.
    pub const ALL: Self = Self { begin: Bytes::new(), end: None };

    /// The keys that begin with this.
    pub fn of_prefix(prefix: Bytes) -> Self {
        let end = prefix_end(&prefix);
        Self { begin: prefix, end }
    }

    /// Of these, the keys that are greater than this one; an empty one is before every key.
    pub fn after(mut self, key: &[u8]) -> Self {
        if !key.is_empty() && key >= &self.begin[..] {
            let mut next = Vec::with_capacity(key.len() + 1);
            next.extend_from_slice(key);
            next.push(0);
            self.begin = next.into();
        }
        self
    }

    /// Of these, the keys that are less than this one.
    pub fn before(mut self, key: Bytes) -> Self {
        if self.reaches(&key) {
            self.end = Some(key);
        }
        self
    }

    /// Of these, the keys that follow this one in the order of a scan.
    pub fn following(self, key: &Bytes, order: ScanOrder) -> Self {
        match order {
            ScanOrder::Ascending => self.after(key),
            ScanOrder::Descending => self.before(key.clone()),
        }
    }

    /// The keys that are in both.
    pub fn and(self, other: &Self) -> Self {
        let begin = if other.begin > self.begin { other.begin.clone() } else { self.begin.clone() };
        let within = Self { begin, ..self };
        match &other.end {
            Some(end) => within.before(end.clone()),
            None => within,
        }
    }

    /// Whether a key can be in both.
    pub fn overlaps(&self, other: &Self) -> bool {
        !self.clone().and(other).is_empty()
    }

    /// Whether the key is in it.
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= &self.begin[..] && self.end.as_ref().is_none_or(|end| key < &end[..])
    }

    /// Whether no key can be in it.
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.begin)
    }

    /// Whether every key is in it.
    pub fn is_all(&self) -> bool {
        self.begin.is_empty() && self.end.is_none()
    }

    /// Whether something at or beyond `key` may be in it, as far as its end says.
    fn reaches(&self, key: &Bytes) -> bool {
        self.end.as_ref().is_none_or(|end| end > key)
    }
}

/// The least byte string above all that begin with `prefix`; `None` if there is none.
fn prefix_end(prefix: &[u8]) -> Option<Bytes> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut end = prefix.get(..=last)?.to_vec();
    *end.last_mut()? += 1;
    Some(end.into())
}

words! {
    /// In which order a scan gives keys.
    #[derive(Serialize, Deserialize)]
    pub enum ScanOrder: "order of a scan" {
        /// The least first.
        Ascending = "ascending",
        /// The greatest first.
        Descending = "descending",
    }
}

/// Checks the keys at which a new table is split: each a key, in ascending order, none twice.
///
/// # Errors
/// `InvalidArgument`, naming the key and what is wrong with it.
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
    fn a_prefix_ends_before_what_is_greater_than_all_of_it() {
        assert_eq!(KeyRange::of_prefix(Bytes::from_static(b"ab")), range("ab", "ac"));
        let of = |prefix: &'static [u8]| KeyRange::of_prefix(Bytes::from_static(prefix)).end;
        assert_eq!(of(b"a\xff"), Some(Bytes::from_static(b"b")));
        assert_eq!((of(b"\xff\xff"), of(b"")), (None, None));
    }

    #[test]
    fn what_follows_an_empty_key_is_every_key() {
        assert_eq!(KeyRange::ALL.after(b""), KeyRange::ALL);
        assert_eq!(range("b", "").after(b"a"), range("b", ""));
    }

    #[test]
    fn split_points_are_keys_each_once_and_in_order() {
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
        fn bounds_say_what_the_keys_say(
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
