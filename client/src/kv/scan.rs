//! Scans over all partitions. With hashed keys, pages of each partition are merged in key order, and only one page of
//! entries is kept. With ranges, partitions are read in turn ([`walk`]).

mod walk;

use crate::error::{Error, Outcome};
use crate::kv::{Client, copied, unexpected};
use archon_types::limits::{KEY_BYTES_MAX, check_scan};
use archon_types::{Answer, KeyRange, Millis, Op, PartitionId, Revision, ScanOrder, StoredValue, tag_of};
use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use tokio::time::{Instant, timeout_at};

/// Bytes of keys and values after which a page ends.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Maximum number of partitions read in parallel.
const CONCURRENT_MAX: usize = 64;
/// Maximum entries per read of a partition.
const PULL_MAX: u32 = 256;
/// Minimum entries per read of a partition, so that small pages need few round trips.
const PULL_MIN: u32 = 4;

/// A key with its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The key.
    pub key: Bytes,
    /// Its value.
    pub value: Bytes,
    /// The revision of the value.
    pub revision: Revision,
    /// Unix time in milliseconds at which it expires, if it does.
    pub expires_at_ms: Option<u64>,
}

/// One page of a scan.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Page {
    /// Entries, in byte order of the keys.
    pub entries: Vec<Entry>,
    /// Set if there may be more entries.
    pub more: bool,
}

/// A scan that has not started.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked before `page` or `entries`"]
pub struct Scan<'a> {
    client: &'a Client,
    prefix: Bytes,
    keys: KeyRange,
    after: Bytes,
    order: ScanOrder,
    limit: u32,
}

impl<'a> Scan<'a> {
    /// Default number of entries per page.
    pub const LIMIT_DEFAULT: u32 = 1_000;

    pub(crate) fn new(client: &'a Client, prefix: Bytes) -> Self {
        let keys = KeyRange::of_prefix(prefix.clone());
        let (after, order) = (Bytes::new(), ScanOrder::Ascending);
        Self { client, prefix, keys, after, order, limit: Self::LIMIT_DEFAULT }
    }

    /// Limits the scan to this key and greater ones.
    pub fn from(self, key: impl AsRef<[u8]>) -> Self {
        let from = KeyRange { begin: copied(key), end: None };
        Self { keys: self.keys.and(&from), ..self }
    }

    /// Limits the scan to keys below this one.
    pub fn to(self, key: impl AsRef<[u8]>) -> Self {
        Self { keys: self.keys.before(copied(key)), ..self }
    }

    /// Limits the scan to keys after this one in the order of the scan: greater ones, or lesser ones if reversed. To
    /// continue, pass the last key of the previous page. An empty key excludes nothing.
    pub fn after(self, key: impl AsRef<[u8]>) -> Self {
        Self { after: copied(key), ..self }
    }

    /// Reverses the order: the greatest key first.
    pub const fn reverse(mut self) -> Self {
        self.order = ScanOrder::Descending;
        self
    }

    /// Sets the maximum number of entries, 1 to 10,000; for [`Self::entries`], per page.
    pub const fn limit(mut self, limit: u32) -> Self {
        self.limit = limit;
        self
    }

    /// Returns the first page.
    ///
    /// A page is not a snapshot: each partition is read linearizably, but at its own moment. A page ends early, with
    /// `more` set, when it holds 4 MiB.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn page(self) -> Result<Page, Error> {
        let client = self.client;
        let deadline = Instant::now() + client.timeout();
        let timeout_ms = u64::try_from(client.timeout().as_millis()).unwrap_or(u64::MAX);
        let passed = Error::DeadlineExceeded { timeout_ms, outcome: Outcome::Read, last: None };
        let asked = PageRequest { keys: self.checked_keys()?, order: self.order, limit: self.limit, deadline };
        let page = async {
            match client.is_range() {
                true => walk::page(client, asked).await,
                false => merge(client, &self.prefix, asked).await,
            }
        };
        timeout_at(deadline, page).await.unwrap_or(Err(passed))
    }

    /// Returns the requested keys if they can be scanned. A range's bound may be one byte longer than a key, so a
    /// prefix that is too long would be accepted.
    fn checked_keys(&self) -> Result<KeyRange, Error> {
        for part in [&self.prefix, &self.after] {
            if part.len() > KEY_BYTES_MAX {
                let found = format!("a prefix or a start key has {} bytes", part.len());
                return Err(Error::invalid(format!("{found}; keys have at most {KEY_BYTES_MAX}")));
            }
        }
        let keys = self.keys.clone();
        let keys = if self.after.is_empty() { keys } else { keys.following(&self.after, self.order) };
        check_scan(&keys, self.limit)?;
        Ok(keys)
    }

    /// Returns all entries in order, reading page after page on demand. Ends after an error; to continue, use
    /// [`Self::after`] with the last key. Not a snapshot either.
    pub fn entries(self) -> impl Stream<Item = Result<Entry, Error>> + 'a {
        let pages = stream::try_unfold(Some(self), async |scan: Option<Self>| {
            let Some(scan) = scan else { return Ok::<_, Error>(None) };
            let page = scan.clone().page().await?;
            let last = page.entries.last().filter(|_| page.more).map(|entry| entry.key.clone());
            Ok(Some((page.entries, last.map(|last| scan.after(last)))))
        });
        pages.map_ok(|entries| stream::iter(entries.into_iter().map(Ok))).try_flatten()
    }
}

/// Parameters of a page.
#[derive(Clone, Debug)]
struct PageRequest {
    keys: KeyRange,
    order: ScanOrder,
    limit: u32,
    deadline: Instant,
}

/// A partition that may have more entries.
struct Source {
    partition: PartitionId,
    /// Keys that were not read yet.
    keys: KeyRange,
    /// The last key that was read.
    last: Option<Bytes>,
}

/// A key in the order of a scan.
#[derive(Clone, PartialEq, Eq)]
struct InOrder {
    key: Bytes,
    order: ScanOrder,
}

impl Ord for InOrder {
    fn cmp(&self, other: &Self) -> Ordering {
        match self.order {
            ScanOrder::Ascending => self.key.cmp(&other.key),
            ScanOrder::Descending => other.key.cmp(&self.key),
        }
    }
}

impl PartialOrd for InOrder {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The first entries read so far, at most one page regardless of the number of partitions.
struct FirstEntries {
    entries: BTreeMap<InOrder, StoredValue>,
    order: ScanOrder,
    bytes: usize,
    most: usize,
    /// Set if there are more entries.
    more: bool,
}

impl FirstEntries {
    fn new(limit: u32, order: ScanOrder) -> Self {
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        Self { entries: BTreeMap::new(), order, bytes: 0, most, more: false }
    }

    /// Adds the entries of a partition, in key order.
    fn take(&mut self, entries: Vec<archon_types::op::Entry>) {
        for entry in entries {
            // The following entries are also beyond the page.
            let stored = entry.stored();
            let key = InOrder { key: entry.key, order: self.order };
            if self.last().is_some_and(|last| key > *last) {
                self.more = true;
                return;
            }
            self.bytes += key.key.len() + entry.value.len();
            let size = |(key, stored): (&InOrder, &StoredValue)| key.key.len() + stored.value.len();
            if let Some(before) = self.entries.get_key_value(&key) {
                self.bytes -= size(before);
            }
            self.entries.insert(key, stored);
            // The page ends with the entry that fills it.
            while let Some(last) = self.entries.last_key_value().map(size)
                && self.is_page(self.entries.len() - 1, self.bytes - last)
            {
                self.entries.pop_last();
                self.bytes -= last;
                self.more = true;
            }
        }
    }

    fn is_page(&self, entries: usize, bytes: usize) -> bool {
        entries >= self.most || bytes >= PAGE_BYTES_MAX
    }

    /// Returns the last key of the page, if the page is full.
    fn last(&self) -> Option<&InOrder> {
        let full = self.is_page(self.entries.len(), self.bytes);
        self.entries.last_key_value().filter(|_| full).map(|(key, _)| key)
    }

    /// Returns whether entries after this key may belong to the page.
    fn wants(&self, after: &Bytes) -> bool {
        self.last().is_none_or(|last| InOrder { key: after.clone(), order: self.order } < *last)
    }

    fn into_page(self) -> Page {
        let entry = |(key, stored): (InOrder, StoredValue)| {
            let expires_at_ms = stored.expires.map(Millis::get);
            Entry { key: key.key, value: stored.value, revision: stored.revision, expires_at_ms }
        };
        Page { entries: self.entries.into_iter().map(entry).collect(), more: self.more }
    }
}

/// Returns a page of a table with hashed keys: from every partition, unless a tag determines one.
async fn merge(client: &Client, prefix: &Bytes, asked: PageRequest) -> Result<Page, Error> {
    let partitions = match tag_of(prefix) {
        Some(_) => vec![client.partition_of(prefix)],
        None => client.partitions(),
    };
    let pull = pull(asked.limit, partitions.len());
    let source = |partition| Source { partition, keys: asked.keys.clone(), last: None };
    let mut open: Vec<Source> = partitions.into_iter().map(source).collect();
    let mut gathered = FirstEntries::new(asked.limit, asked.order);
    while !open.is_empty() {
        let mut unfinished = Vec::new();
        let pulls = open.drain(..).map(|source| refill(client, source, asked.order, pull, asked.deadline));
        let mut pulls = stream::iter(pulls).buffer_unordered(CONCURRENT_MAX);
        while let Some((source, entries, more)) = pulls.try_next().await? {
            gathered.take(entries);
            unfinished.extend(more.then_some(source));
        }
        drop(pulls);
        // The page is complete once no partition has more entries before its end.
        let all = unfinished.len();
        unfinished.retain(|source| source.last.as_ref().is_none_or(|last| gathered.wants(last)));
        gathered.more |= unfinished.len() < all;
        open = unfinished;
    }
    Ok(gathered.into_page())
}

/// Returns the number of entries to read from each partition: twice its share, so that one round usually suffices.
fn pull(limit: u32, partitions: usize) -> u32 {
    let partitions = u32::try_from(partitions).unwrap_or(u32::MAX).max(1);
    // With more partitions than wanted entries, one entry of each is enough.
    let least = if limit < partitions { 1 } else { PULL_MIN };
    let twice = if limit < partitions { 1 } else { limit.div_ceil(partitions).saturating_mul(2) };
    twice.clamp(least, PULL_MAX).min(limit)
}

/// Returns the error for a page without entries that promises more but comes no further: such a scan would never end.
fn endless() -> Error {
    let page = Answer::Page { entries: Vec::new(), more: true, range: KeyRange::ALL };
    unexpected("a scan", &page)
}

/// Reads the next page of a partition. If it has no entries but promises more, its range ends where the partition stopped
/// reading.
async fn refill(
    client: &Client,
    source: Source,
    order: ScanOrder,
    pull: u32,
    deadline: Instant,
) -> Result<(Source, Vec<archon_types::op::Entry>, bool), Error> {
    let op = Op::Scan { keys: source.keys.clone(), order, limit: pull };
    let left = deadline.saturating_duration_since(Instant::now());
    match client.run_in(source.partition, op, left).await? {
        Answer::Page { entries, more: true, range } if entries.is_empty() => {
            let rest = walk::beyond(&source.keys, &range, order).filter(|rest| !rest.is_empty());
            let keys = rest.ok_or_else(endless)?;
            let last = match order {
                ScanOrder::Ascending => Some(keys.begin.clone()),
                ScanOrder::Descending => keys.end.clone(),
            };
            Ok((Source { partition: source.partition, keys, last }, entries, true))
        }
        Answer::Page { entries, more, .. } => {
            let last = entries.last().map(|last| last.key.clone()).or(source.last);
            let keys = last.iter().fold(source.keys, |keys, last| keys.following(last, order));
            Ok((Source { partition: source.partition, keys, last }, entries, more))
        }
        other => Err(unexpected("a scan", &other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::op;
    use proptest::prelude::*;

    fn entry(key: String, value: &Bytes) -> op::Entry {
        op::Entry { key: key.into(), value: value.clone(), revision: Revision::default(), expires: None }
    }

    #[test]
    fn scan_keeps_at_most_one_page_in_memory() {
        let value = Bytes::from(vec![7; 1024 * 1024]);
        let mut gathered = FirstEntries::new(10_000, ScanOrder::Ascending);
        for partition in 0..16_384 {
            gathered.take((0..4).map(|row| entry(format!("{row}-{partition:05}"), &value)).collect());
            assert!(gathered.bytes < PAGE_BYTES_MAX + 2 * 1024 * 1024, "{} bytes are held", gathered.bytes);
        }
        let page = gathered.into_page();
        assert!(page.more && page.entries.len() == 4 && page.entries[3].key == "0-00003", "{}", page.entries.len());
    }

    #[test]
    fn entries_read_per_partition_follow_from_the_limit() {
        assert_eq!((pull(10, 16_384), pull(10, 9), pull(10, 1), pull(1, 1)), (1, 4, 10, 1));
        assert_eq!((pull(1_000, 9), pull(10_000, 9), pull(10_000, 1)), (224, 256, 256));
    }

    proptest! {
        /// For any pages and order of the partitions' answers, the page has the first entries of all of them.
        #[test]
        fn page_has_the_first_entries_of_all_partitions(
            partitions in proptest::collection::vec(proptest::collection::btree_set("[a-d]{1,4}", 0..12), 1..6),
            limit in 1u32..12,
            part in 1usize..5,
            back: bool,
        ) {
            let order = if back { ScanOrder::Descending } else { ScanOrder::Ascending };
            let value = Bytes::from_static(b"v");
            let keys = |number: usize, keys: &std::collections::BTreeSet<String>| -> Vec<String> {
                keys.iter().map(|key| format!("{key}{number}")).collect()
            };
            let mut open: Vec<Vec<String>> = partitions.iter().enumerate().map(|(n, held)| keys(n, held)).collect();
            open.iter_mut().for_each(|keys| keys.sort());
            if back {
                open.iter_mut().for_each(|keys| keys.reverse());
            }
            let mut all: Vec<String> = open.iter().flatten().cloned().collect();
            all.sort();
            if back {
                all.reverse();
            }
            let mut gathered = FirstEntries::new(limit, order);
            while !open.is_empty() {
                for keys in &mut open {
                    let pulled: Vec<String> = keys.drain(..part.min(keys.len())).collect();
                    let after = pulled.last().cloned().unwrap_or_default();
                    gathered.take(pulled.into_iter().map(|key| entry(key, &value)).collect());
                    if !keys.is_empty() && !gathered.wants(&after.into()) {
                        gathered.more = true;
                        keys.clear();
                    }
                }
                open.retain(|keys| !keys.is_empty());
            }
            let page = gathered.into_page();
            let found: Vec<&[u8]> = page.entries.iter().map(|entry| &entry.key[..]).collect();
            let first: Vec<&[u8]> = all.iter().take(limit as usize).map(String::as_bytes).collect();
            prop_assert_eq!(found, first);
            prop_assert_eq!(page.more, all.len() > limit as usize);
        }
    }
}
