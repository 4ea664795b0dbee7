//! Ranges of keys, and scans of them.

use super::bounded_part;
use crate::convert::{ConvertError, in_range};
use crate::v1;
use archon_types::limits::SCAN_LIMIT_MAX;
use archon_types::{KeyRange, Op, ScanOrder};

impl From<KeyRange> for v1::KeyRange {
    fn from(range: KeyRange) -> Self {
        Self { begin: range.begin, end: range.end }
    }
}

impl TryFrom<v1::KeyRange> for KeyRange {
    type Error = ConvertError;

    fn try_from(wire: v1::KeyRange) -> Result<Self, ConvertError> {
        let range = Self { begin: wire.begin, end: wire.end };
        check_range(&range, "KeyRange")?;
        Ok(range)
    }
}

/// Returns the wire field of a range; `None` for all keys.
pub fn range_field(range: KeyRange) -> Option<v1::KeyRange> {
    (!range.is_all()).then(|| range.into())
}

/// Reverses [`range_field`].
pub(in crate::convert) fn from_range_field(wire: Option<v1::KeyRange>) -> Result<KeyRange, ConvertError> {
    wire.map_or(Ok(KeyRange::ALL), TryInto::try_into)
}

/// Checks the lengths of both bounds.
pub(super) fn check_range(range: &KeyRange, field: &'static str) -> Result<(), ConvertError> {
    bounded_part(&range.begin, field)?;
    range.end.iter().try_for_each(|end| bounded_part(end, field))
}

/// Returns the order of a scan.
pub(super) const fn order_of(descending: bool) -> ScanOrder {
    if descending { ScanOrder::Descending } else { ScanOrder::Ascending }
}

/// Returns the scan requested by a plain request, for any partition.
///
/// # Errors
/// [`ConvertError`] for bounds longer than any key, and a limit out of range.
pub fn scan_of(request: &v1::ScanRequest) -> Result<Op, ConvertError> {
    bounded_part(&request.prefix, "ScanRequest.prefix")?;
    bounded_part(&request.after, "ScanRequest.after")?;
    let order = order_of(request.descending);
    let keys = KeyRange::of_prefix(request.prefix.clone()).and(&from_range_field(request.keys.clone())?);
    let keys = if request.after.is_empty() { keys } else { keys.following(&request.after, order) };
    Ok(Op::Scan { keys, order, limit: in_range(request.limit, 1, SCAN_LIMIT_MAX, "ScanRequest.limit")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scan_continues_in_order_within_prefix_and_range() {
        let keys = v1::KeyRange { begin: "ab".into(), end: Some("ax".into()) };
        let ask = |descending, after: &'static str| {
            let request = v1::ScanRequest {
                prefix: "a".into(),
                keys: Some(keys.clone()),
                after: after.into(),
                limit: 1,
                descending,
                ..v1::ScanRequest::default()
            };
            let Ok(Op::Scan { keys, .. }) = scan_of(&request) else { panic!("refused") };
            (keys.begin, keys.end)
        };
        assert_eq!(ask(false, ""), ("ab".into(), Some("ax".into())));
        assert_eq!(ask(false, "am"), ("am\0".into(), Some("ax".into())));
        assert_eq!(ask(true, "am"), ("ab".into(), Some("am".into())));
        assert!(scan_of(&v1::ScanRequest::default()).is_err(), "a limit of none");
    }
}
