//! Commands on all keys of this node: those of the partitions that `CLUSTER SLOTS` shows as its own. Clients of a cluster
//! ask every node, and join what they get.
//!
//! Keys are read in pages by the scans of all other interfaces, with their rights and admission, and one page at a time.

use super::cursors::{Cursors, Position};
use super::refusal::{CommandResult, Refusal};
use archon_resp::{KeyPattern, NOT_AN_INTEGER, Reply, ScanArguments, parse_integer};
use archon_types::limits::KEY_BYTES_MAX;
use archon_types::op::Entry;
use archon_types::{KeyRange, SLOTS, ScanOrder, partition_of, slot_of, tag_of};
use bytes::Bytes;

/// Most keys that one command looks at, other than `SCAN`.
const KEYS_MAX: usize = 10_000;
/// Bytes of keys and values that it reads.
const READ_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes of keys that it returns.
const FOUND_BYTES_MAX: usize = 1024 * 1024;
/// Keys of one page.
const PAGE_KEYS: u32 = 1_024;
/// Most pages that one `SCAN` reads: partitions may be empty.
const SCAN_PAGES_MAX: u32 = 16;
/// Most partitions in which `RANDOMKEY` looks for a key.
const RANDOM_PARTITIONS_MAX: usize = 64;
/// Keys among which it chooses.
const RANDOM_KEYS: u32 = 16;

/// A page of keys.
pub(super) struct Page {
    pub(super) entries: Vec<Entry>,
    /// First key that was not looked at, if any may follow.
    pub(super) next: Option<Bytes>,
}

/// Keys in the partitions of a node.
pub(super) trait Pages: Send {
    /// Returns the number of partitions of the table.
    fn partitions(&self) -> u32;

    /// Returns whether clients look for the keys of a partition at this node.
    fn serves(&self, partition: u32) -> bool;

    /// Reads a page of a partition, also if another node leads it.
    fn page(
        &mut self,
        partition: u32,
        keys: KeyRange,
        order: ScanOrder,
        limit: u32,
    ) -> impl Future<Output = Result<Page, Refusal>> + Send;
}

/// Steps of comparisons after which other tasks of the thread have their turn.
const STEPS_MAX: usize = 64 * 1024;

/// Counts steps of comparisons, and gives way to other tasks of the thread, above all its shard.
#[derive(Default)]
struct Pace(usize);

impl Pace {
    async fn spend(&mut self, steps: usize) {
        self.0 = self.0.saturating_add(steps);
        if self.0 >= STEPS_MAX {
            self.0 = 0;
            tokio::task::yield_now().await;
        }
    }
}

/// Calls `take` with each key of a partition in this range, until that returns false.
async fn each_key(
    pages: &mut impl Pages,
    partition: u32,
    matching: &MatchingKeys,
    budget: &mut Budget,
    mut take: impl FnMut(&Bytes) -> Result<bool, Refusal>,
) -> Result<(), Refusal> {
    let (mut rest, mut pace) = (matching.range.clone(), Pace::default());
    while !rest.is_empty() {
        let page = pages.page(partition, rest.clone(), ScanOrder::Ascending, PAGE_KEYS).await?;
        for entry in &page.entries {
            budget.spend(entry)?;
            if !take(&entry.key)? {
                return Ok(());
            }
            pace.spend(matching.pattern.steps(&entry.key)).await;
        }
        let Some(next) = page.next else { break };
        if page.entries.is_empty() {
            // It has passed over expired values.
            budget.spend_page()?;
        }
        rest.begin = next;
    }
    Ok(())
}

/// Keys and bytes that a command may still read.
struct Budget {
    keys: usize,
    bytes: usize,
}

impl Budget {
    const fn new() -> Self {
        Self { keys: KEYS_MAX, bytes: READ_BYTES_MAX }
    }

    fn spend(&mut self, entry: &Entry) -> Result<(), Refusal> {
        let left = self.keys.checked_sub(1).zip(self.bytes.checked_sub(entry.key.len() + entry.value.len()));
        (self.keys, self.bytes) = left.ok_or_else(too_many)?;
        Ok(())
    }

    fn spend_page(&mut self) -> Result<(), Refusal> {
        self.keys = self.keys.checked_sub(PAGE_KEYS as usize).ok_or_else(too_many)?;
        Ok(())
    }
}

fn too_many() -> Refusal {
    Refusal::new(format!(
        "ERR this command reads at most {KEYS_MAX} keys and {} MiB on a node, and there are more; use SCAN",
        READ_BYTES_MAX >> 20
    ))
}

/// Keys that can match a pattern: their range, and their partition if all have the same tag.
struct MatchingKeys {
    pattern: KeyPattern,
    range: KeyRange,
    partition: Option<u32>,
}

impl MatchingKeys {
    fn new(pattern: KeyPattern, partitions: u32) -> Self {
        let prefix = pattern.prefix();
        let partition = tag_of(prefix).map(|_| partition_of(slot_of(prefix), partitions));
        let range = match prefix.len() {
            0..=KEY_BYTES_MAX => KeyRange::of_prefix(Bytes::copy_from_slice(prefix)),
            // No key is so long.
            _ => KeyRange { begin: Bytes::new(), end: Some(Bytes::new()) },
        };
        Self { range, partition, pattern }
    }

    /// Returns all keys.
    fn all() -> Self {
        Self { pattern: KeyPattern::default(), range: KeyRange::ALL, partition: None }
    }

    /// Returns whether a partition can have such keys.
    fn may_be_in(&self, partition: u32) -> bool {
        self.partition.is_none_or(|only| only == partition)
    }
}

/// Executes `SCAN`.
pub(super) async fn scan(pages: &mut impl Pages, cursors: &Cursors, arguments: ScanArguments) -> CommandResult {
    let partitions = pages.partitions();
    let matching = MatchingKeys::new(arguments.pattern, partitions);
    let mut position = cursors.position_of(arguments.cursor, partitions);
    let (mut found, mut left, mut bytes, mut pace) = (Vec::new(), arguments.count, 0, Pace::default());
    for _ in 0..SCAN_PAGES_MAX {
        let Some(Position { partition, begin }) = position else { break };
        // A partition that was begun is ended here, also if another node leads it by now.
        let serves = |partition: u32| matching.may_be_in(partition) && pages.serves(partition);
        let next = if begin.is_some() { Some(partition) } else { (partition..partitions).find(|at| serves(*at)) };
        let Some(next) = next else {
            position = None;
            break;
        };
        let mut range = matching.range.clone();
        if let Some(begin) = begin.filter(|begin| *begin > range.begin) {
            range.begin = begin;
        }
        let after = Some(Position { partition: next + 1, begin: None });
        position = after.filter(|after| after.partition < partitions);
        if range.is_empty() {
            continue;
        }
        let page = pages.page(next, range, ScanOrder::Ascending, left).await?;
        if let Some(begin) = page.next {
            position = Some(Position { partition: next, begin: Some(begin) });
        }
        left = left.saturating_sub(u32::try_from(page.entries.len()).unwrap_or(u32::MAX));
        for entry in page.entries {
            if arguments.takes_strings && matching.pattern.matches(&entry.key) {
                bytes += entry.key.len();
                found.push(copy(&entry.key));
            }
            pace.spend(matching.pattern.steps(&entry.key)).await;
        }
        if left == 0 || bytes >= FOUND_BYTES_MAX {
            break;
        }
    }
    let cursor = position.map_or(0, |position| cursors.number_of(&position));
    Ok(Reply::Array(vec![Reply::bulk(cursor.to_string()), Reply::Array(found)]))
}

/// Executes `KEYS`.
pub(super) async fn keys(pages: &mut impl Pages, pattern: &[u8]) -> CommandResult {
    let matching = MatchingKeys::new(KeyPattern::parse(pattern)?, pages.partitions());
    let (mut found, mut bytes, mut budget) = (Vec::new(), 0, Budget::new());
    for partition in 0..pages.partitions() {
        if !matching.may_be_in(partition) || !pages.serves(partition) {
            continue;
        }
        let take = |key: &Bytes| {
            if matching.pattern.matches(key) {
                bytes += key.len();
                found.push(copy(key));
            }
            if bytes > FOUND_BYTES_MAX { Err(too_many()) } else { Ok(true) }
        };
        each_key(pages, partition, &matching, &mut budget, take).await?;
    }
    Ok(Reply::Array(found))
}

/// Executes `RANDOMKEY`: one of the keys that follow a random position in a random partition.
pub(super) async fn random_key(pages: &mut impl Pages) -> CommandResult {
    let served: Vec<u32> = (0..pages.partitions()).filter(|partition| pages.serves(*partition)).collect();
    let begin = random_below(served.len());
    for partition in served.iter().cycle().skip(begin).take(served.len().min(RANDOM_PARTITIONS_MAX)) {
        let first = pages.page(*partition, KeyRange::ALL, ScanOrder::Ascending, 1).await?.entries.pop();
        let last = pages.page(*partition, KeyRange::ALL, ScanOrder::Descending, 1).await?.entries.pop();
        let Some((first, last)) = first.zip(last) else { continue };
        let from = between(&first.key, &last.key, rand::random());
        let range = KeyRange { begin: from, end: None };
        let mut page = pages.page(*partition, range, ScanOrder::Ascending, RANDOM_KEYS).await?.entries;
        let key = if page.is_empty() { first.key } else { page.swap_remove(random_below(page.len())).key };
        return Ok(Reply::Bulk(key));
    }
    Ok(Reply::Null)
}

/// Executes `CLUSTER COUNTKEYSINSLOT`, and `GETKEYSINSLOT` with a number of keys.
pub(super) async fn keys_in_slot(pages: &mut impl Pages, slot: &[u8], count: Option<&[u8]>) -> CommandResult {
    let integer = |text: &[u8]| parse_integer(text).ok_or(Refusal::new(NOT_AN_INTEGER));
    let invalid = if count.is_some() { "ERR Invalid slot or number of keys" } else { "ERR Invalid slot" };
    let slot = u16::try_from(integer(slot)?).ok().filter(|slot| *slot < SLOTS).ok_or(invalid)?;
    let most = match count {
        Some(count) => usize::try_from(integer(count)?).map_err(|_| Refusal::new(invalid))?,
        None => usize::MAX,
    };
    let partition = partition_of(slot, pages.partitions());
    let (mut found, mut counted, mut bytes) = (Vec::new(), 0, 0);
    if most > 0 && pages.serves(partition) {
        let take = |key: &Bytes| {
            if slot_of(key) == slot {
                counted += 1;
                if count.is_some() {
                    bytes += key.len();
                    found.push(copy(key));
                }
            }
            // Fewer keys than are asked for are a valid reply.
            Ok(counted < most && bytes < FOUND_BYTES_MAX)
        };
        each_key(pages, partition, &MatchingKeys::all(), &mut Budget::new(), take).await?;
    }
    let counted = || Reply::Integer(i64::try_from(counted).unwrap_or(i64::MAX));
    Ok(if count.is_some() { Reply::Array(found) } else { counted() })
}

/// Returns a copy of a key: a part of a page would keep the whole page in memory.
fn copy(key: &[u8]) -> Reply {
    Reply::Bulk(Bytes::copy_from_slice(key))
}

/// Returns a random index below `end`; zero if there is none.
fn random_below(end: usize) -> usize {
    let random = usize::try_from(rand::random::<u32>()).unwrap_or(0);
    random.checked_rem(end).unwrap_or(0)
}

/// Returns a string between two keys: what they have in common, and a random number in the range of their next 4 bytes.
fn between(first: &[u8], last: &[u8], random: u32) -> Bytes {
    let common = first.iter().zip(last).take_while(|(one, other)| one == other).count();
    let next = |key: &[u8]| {
        let bytes = key.iter().skip(common).copied().chain(std::iter::repeat(0)).take(4);
        bytes.fold(0u32, |number, byte| number << 8 | u32::from(byte))
    };
    let (low, high) = (next(first), next(last));
    let span = u64::from(high.saturating_sub(low)) + 1;
    let drawn = u64::from(low) + ((u64::from(random) * span) >> 32);
    let drawn = u32::try_from(drawn).unwrap_or(high).to_be_bytes();
    let mut key = [first.get(..common).unwrap_or_default(), &drawn].concat();
    key.truncate(KEY_BYTES_MAX);
    key.into()
}

#[cfg(test)]
#[path = "keyspace_tests.rs"]
mod tests;
