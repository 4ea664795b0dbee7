//! Scans of tables by ranges: partitions are read in turn, in the order of the scan.

use super::{Entry, PAGE_BYTES_MAX, Page, PageRequest, endless};
use crate::error::Error;
use crate::kv::{Client, unexpected};
use archon_types::{Answer, KeyRange, Millis, Op, ScanOrder};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Pause for a newer table when a partition has none of the requested keys.
const REFRESH_PAUSE: Duration = Duration::from_millis(20);

/// Returns a page: up to the limit, or all entries.
pub(super) async fn page(client: &Client, asked: PageRequest) -> Result<Page, Error> {
    let PageRequest { mut keys, order, limit, deadline } = asked;
    let mut entries: Vec<Entry> = Vec::new();
    let mut bytes = 0;
    loop {
        let wanted = limit.saturating_sub(u32::try_from(entries.len()).unwrap_or(u32::MAX));
        if keys.is_empty() || wanted == 0 || bytes >= PAGE_BYTES_MAX {
            return Ok(Page { entries, more: !keys.is_empty() });
        }
        let partition = client.first_of(&keys, order);
        let op = Op::Scan { keys: keys.clone(), order, limit: wanted };
        let left = deadline.saturating_duration_since(Instant::now());
        let (found, more, range) = match client.run_in(partition, op, left).await? {
            Answer::Page { entries, more, range } => (entries, more, range),
            other => return Err(unexpected("a scan", &other)),
        };
        let Some(rest) = beyond(&keys, &range, order) else {
            // The cached table is older than the partition's, and the answer is not the next part of the scan.
            client.want_refresh();
            sleep(REFRESH_PAUSE).await;
            continue;
        };
        keys = match found.last().filter(|_| more) {
            Some(last) => keys.following(&last.key, order),
            // Without entries, the range ends where the partition stopped reading.
            None if more && rest.is_empty() => return Err(endless()),
            None => rest,
        };
        bytes += found.iter().map(|entry| entry.key.len() + entry.value.len()).sum::<usize>();
        entries.extend(found.into_iter().map(|entry| Entry {
            key: entry.key,
            value: entry.value,
            revision: entry.revision,
            expires_at_ms: entry.expires.map(Millis::get),
        }));
    }
}

/// Returns the rest of the keys after a partition's part; `None` if it does not have the first ones, so that another
/// partition must be read.
pub(super) fn beyond(keys: &KeyRange, range: &KeyRange, order: ScanOrder) -> Option<KeyRange> {
    match order {
        ScanOrder::Ascending => {
            let begins = range.begin <= keys.begin && range.end.as_ref().is_none_or(|end| *end > keys.begin);
            let nothing = || KeyRange { begin: keys.begin.clone(), end: Some(keys.begin.clone()) };
            let rest = |end: &bytes::Bytes| KeyRange { begin: end.clone(), end: keys.end.clone() };
            begins.then(|| range.end.as_ref().map_or_else(nothing, rest))
        }
        ScanOrder::Descending => {
            let reaches = range.end.as_ref().is_none_or(|end| keys.end.as_ref().is_some_and(|to| end >= to));
            let ends = reaches && keys.end.as_ref().is_none_or(|end| range.begin < *end);
            ends.then(|| KeyRange { begin: keys.begin.clone(), end: Some(range.begin.clone()) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn range(begin: &'static str, end: &'static str) -> KeyRange {
        let end = (!end.is_empty()).then(|| Bytes::from_static(end.as_bytes()));
        KeyRange { begin: Bytes::from_static(begin.as_bytes()), end }
    }

    #[test]
    fn ascending_rest_begins_at_end_of_partition() {
        let up = |keys, of| beyond(&keys, &of, ScanOrder::Ascending);
        assert_eq!(up(range("b", ""), range("a", "m")), Some(range("m", "")));
        assert_eq!(up(range("b", "k"), range("a", "m")).map(|rest| rest.is_empty()), Some(true));
        assert_eq!(up(range("b", ""), range("a", "")).map(|rest| rest.is_empty()), Some(true));
        assert_eq!(up(range("m", ""), range("a", "m")), None, "it was split since");
        assert_eq!(up(range("b", ""), range("c", "m")), None);
    }

    #[test]
    fn descending_rest_ends_at_begin_of_partition() {
        let down = |keys, of| beyond(&keys, &of, ScanOrder::Descending);
        assert_eq!(down(range("", "z"), range("m", "")), Some(range("", "m")));
        assert_eq!(down(range("", ""), range("m", "")), Some(range("", "m")));
        assert_eq!(down(range("p", ""), range("m", "")).map(|rest| rest.is_empty()), Some(true));
        assert_eq!(down(range("", ""), range("", "")).map(|rest| rest.is_empty()), Some(true));
        assert_eq!(down(range("", ""), range("m", "p")), None, "it was split since");
        assert_eq!(down(range("", "c"), range("m", "")), None);
    }
}
