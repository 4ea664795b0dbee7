//! Overlay of two lists of rows.

use bytes::Bytes;

/// Merges two lists in the same order of key; for keys in both, the first list's row is used.
pub(crate) fn newer<'a>(
    first: impl Iterator<Item = (&'a Bytes, Option<&'a Bytes>)>,
    second: impl Iterator<Item = (&'a Bytes, Option<&'a Bytes>)>,
    order: impl Fn(&Bytes, &Bytes) -> std::cmp::Ordering,
) -> impl Iterator<Item = (&'a Bytes, Option<&'a Bytes>)> {
    let (mut first, mut second) = (first.peekable(), second.peekable());
    std::iter::from_fn(move || match (first.peek(), second.peek()) {
        (Some((one, _)), Some((other, _))) => match order(one, other) {
            std::cmp::Ordering::Less => first.next(),
            std::cmp::Ordering::Equal => {
                second.next();
                first.next()
            }
            std::cmp::Ordering::Greater => second.next(),
        },
        (Some(_), None) => first.next(),
        (None, _) => second.next(),
    })
}
