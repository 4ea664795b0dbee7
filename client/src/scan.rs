//! Scans over all partitions: pages are pulled from each and merged in order of keys.

use crate::error::{Error, Outcome};
use crate::kv::{Client, unexpected};
use archon_types::limits::check_scan;
use archon_types::{Answer, Op, PartitionId, Revision, tag_of};
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use tokio::time::{Instant, timeout_at};

/// Bytes of keys and values after which a page ends.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Partitions asked at the same time.
const CONCURRENT_MAX: usize = 64;
/// Entries asked of one partition at once.
const PULL_MAX: u32 = 256;
/// Entries asked of one partition at least, so that small pages do not cost many trips.
const PULL_MIN: u32 = 4;

/// A key with its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The key.
    pub key: Bytes,
    /// Its value.
    pub value: Bytes,
    /// The number of this value.
    pub revision: Revision,
}

/// A part of a scan.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Page {
    /// What was found, in order of the keys' bytes.
    pub entries: Vec<Entry>,
    /// Whether there may be more after the last entry.
    pub more: bool,
}

/// What has been pulled from one partition and not been given out yet.
struct Source {
    partition: PartitionId,
    pulled: VecDeque<archon_types::op::Entry>,
    /// The last key pulled.
    after: Bytes,
    more: bool,
}

pub(crate) async fn scan(client: &Client, prefix: Bytes, after: Bytes, limit: u32) -> Result<Page, Error> {
    check_scan(&prefix, &after, limit)?;
    let deadline = Instant::now() + client.timeout();
    let timeout_ms = u64::try_from(client.timeout().as_millis()).unwrap_or(u64::MAX);
    let passed = Error::DeadlineExceeded { timeout_ms, outcome: Outcome::Read, last: None };
    timeout_at(deadline, merge(client, prefix, after, limit, deadline)).await.unwrap_or(Err(passed))
}

async fn merge(client: &Client, prefix: Bytes, after: Bytes, limit: u32, deadline: Instant) -> Result<Page, Error> {
    let partitions = match tag_of(&prefix) {
        Some(_) => vec![client.partition_of(&prefix)],
        None => client.partitions(),
    };
    let share = limit.div_ceil(u32::try_from(partitions.len()).unwrap_or(u32::MAX).max(1));
    let pull = share.saturating_mul(2).clamp(PULL_MIN, PULL_MAX).min(limit);
    let pulls = partitions.into_iter().map(|partition| {
        let source = Source { partition, pulled: VecDeque::new(), after: after.clone(), more: true };
        refill(client, source, &prefix, pull, deadline)
    });
    let mut sources: Vec<Source> = stream::iter(pulls).buffer_unordered(CONCURRENT_MAX).try_collect().await?;

    let mut heads: BinaryHeap<Reverse<(Bytes, usize)>> = BinaryHeap::with_capacity(sources.len());
    heads.extend(sources.iter().enumerate().filter_map(|(index, source)| Some(Reverse((head(source)?, index)))));
    let mut page = Page::default();
    let mut bytes = 0;
    while let Some(Reverse((_, index))) = heads.pop() {
        if page.entries.len() as u64 >= u64::from(limit) || bytes >= PAGE_BYTES_MAX {
            page.more = true;
            return Ok(page);
        }
        let Some(source) = sources.get_mut(index) else { continue };
        let Some(entry) = source.pulled.pop_front() else { continue };
        bytes += entry.key.len() + entry.value.len();
        page.entries.push(Entry { key: entry.key, value: entry.value, revision: entry.revision });
        if source.pulled.is_empty() && source.more {
            // Nothing may be given out before this partition's next key is known.
            let empty = Source { pulled: VecDeque::new(), after: source.after.clone(), ..*source };
            *source = refill(client, empty, &prefix, pull, deadline).await?;
        }
        if let Some(key) = head(source) {
            heads.push(Reverse((key, index)));
        }
    }
    Ok(page)
}

fn head(source: &Source) -> Option<Bytes> {
    source.pulled.front().map(|entry| entry.key.clone())
}

/// Pulls the next page of a partition. A page without entries that promises more would never end, so it is an error.
async fn refill(
    client: &Client,
    mut source: Source,
    prefix: &Bytes,
    pull: u32,
    deadline: Instant,
) -> Result<Source, Error> {
    let op = Op::Scan { prefix: prefix.clone(), after: source.after.clone(), limit: pull };
    let left = deadline.saturating_duration_since(Instant::now());
    match client.run_in(source.partition, op, left).await? {
        Answer::Page { entries, more } if !(entries.is_empty() && more) => {
            if let Some(last) = entries.last() {
                source.after = last.key.clone();
            }
            source.pulled = entries.into();
            source.more = more;
            Ok(source)
        }
        other => Err(unexpected("a scan", &other)),
    }
}
