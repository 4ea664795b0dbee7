//! The window of effects not yet known to be in the engine: many versions of a row, three readers.
//!
//! Conditions see the newest entry, also what is still uncommitted, since the entry they decide on goes after it. Reads
//! see the newest at or below the commit position. Truncation cuts the end, when another leader's log replaces it.
//! Entries leave once the flusher has written them to the engine; what a reader does not find here is there.

use super::effect::RowChange;
use super::view::Reader;
use archon_types::Seq;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that all windows of a node may hold together.
pub const RECENT_BYTES_MAX: usize = 256 * 1024 * 1024;
/// What a row costs beside its key and value.
const ROW_OVERHEAD_BYTES: usize = 128;

/// The bound on all windows of a node together. Clones share it.
#[derive(Clone, Debug)]
pub struct RecentBudget {
    used: Arc<AtomicUsize>,
    max: usize,
}

impl Default for RecentBudget {
    fn default() -> Self {
        Self::new(RECENT_BYTES_MAX)
    }
}

impl RecentBudget {
    /// A budget of `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { used: Arc::default(), max: bytes_max }
    }

    /// Whether new writes must be refused. What is already decided (a follower's entries, a replay) is still taken, so
    /// the bound can be passed by what was under way.
    pub fn is_full(&self) -> bool {
        self.bytes_used() >= self.max
    }

    /// Bytes held by all windows now.
    pub fn bytes_used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

/// Why the window refuses a change to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecentError {
    /// Positions only rise.
    #[error("position {found} does not come after {last}")]
    NotNext {
        /// The position given.
        found: Seq,
        /// The last position held.
        last: Seq,
    },
    /// A committed entry is never cut (invariant P).
    #[error("cutting after {after} would remove committed entries up to {commit}; this replica has lost data")]
    CutBelowCommit {
        /// Where to cut.
        after: Seq,
        /// What is committed.
        commit: Seq,
    },
}

/// What a row became at a position.
type Version = (Seq, Option<Bytes>);
/// A row's versions, oldest first.
type Versions = VecDeque<Version>;

/// One partition's window.
#[derive(Debug)]
pub struct Recent {
    /// Per key its versions, oldest first. A key without versions is removed.
    rows: BTreeMap<Bytes, Versions>,
    /// Per position the keys it wrote, oldest first.
    positions: VecDeque<(Seq, Vec<Bytes>)>,
    last: Seq,
    commit: Seq,
    bytes: usize,
    budget: RecentBudget,
}

impl Recent {
    /// An empty window over an engine that holds everything up to `flushed`.
    pub fn new(flushed: Seq, budget: RecentBudget) -> Self {
        Self { rows: BTreeMap::new(), positions: VecDeque::new(), last: flushed, commit: flushed, bytes: 0, budget }
    }

    /// Adds the effect at `seq`.
    ///
    /// # Errors
    /// [`RecentError::NotNext`] unless `seq` is above every position seen.
    pub fn push(&mut self, seq: Seq, changes: impl IntoIterator<Item = RowChange>) -> Result<(), RecentError> {
        if seq <= self.last {
            return Err(RecentError::NotNext { found: seq, last: self.last });
        }
        let mut keys = Vec::new();
        let mut added = 0;
        for RowChange { key, value } in changes {
            let versions = self.rows.entry(key.clone()).or_default();
            let cost = cost(&key, value.as_ref());
            match versions.back_mut() {
                // Within one effect the later change of a row wins.
                Some((at, present)) if *at == seq => {
                    let before = self::cost(&key, present.as_ref());
                    *present = value;
                    self.bytes -= before;
                    self.budget.used.fetch_sub(before, Ordering::Relaxed);
                }
                _ => {
                    versions.push_back((seq, value));
                    keys.push(key);
                }
            }
            self.bytes += cost;
            added += cost;
        }
        self.budget.used.fetch_add(added, Ordering::Relaxed);
        self.positions.push_back((seq, keys));
        self.last = seq;
        Ok(())
    }

    /// Takes in that everything up to `seq` is committed. Never goes back, nor beyond the last entry.
    pub fn commit(&mut self, seq: Seq) {
        self.commit = self.commit.max(seq.min(self.last));
    }

    /// Removes every entry after `after`.
    ///
    /// # Errors
    /// [`RecentError::CutBelowCommit`]; nothing is removed then.
    pub fn truncate(&mut self, after: Seq) -> Result<(), RecentError> {
        if after < self.commit {
            return Err(RecentError::CutBelowCommit { after, commit: self.commit });
        }
        while let Some((_, keys)) = self.positions.pop_back_if(|(seq, _)| *seq > after) {
            for key in keys {
                self.remove(&key, VecDeque::pop_back);
            }
        }
        self.last = self.last.min(after);
        Ok(())
    }

    /// Lets go of every entry up to `upto`, which the engine holds now. Only committed entries go.
    pub fn flushed(&mut self, upto: Seq) {
        let upto = upto.min(self.commit);
        while let Some((_, keys)) = self.positions.pop_front_if(|(seq, _)| *seq <= upto) {
            for key in keys {
                self.remove(&key, VecDeque::pop_front);
            }
        }
    }

    /// What `reader` sees of a row here: `None` if the engine must be asked, `Some(None)` if the row was removed.
    pub fn get(&self, key: &[u8], reader: Reader) -> Option<Option<&Bytes>> {
        self.version(self.rows.get(key)?, reader)
    }

    /// What `reader` sees of the rows from `from` to `to`, in order of key; removed rows as `None`.
    pub fn range(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        reader: Reader,
    ) -> impl Iterator<Item = (&Bytes, Option<&Bytes>)> {
        // The map panics on a range that ends before it starts.
        let empty = match (from, to) {
            (Bound::Included(from), Bound::Included(to)) => from > to,
            (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from >= to,
            _ => false,
        };
        let rows = (!empty).then(|| self.rows.range::<[u8], _>((from, to)));
        rows.into_iter().flatten().filter_map(move |(key, versions)| Some((key, self.version(versions, reader)?)))
    }

    /// The last position held, or up to which the engine held everything at the start.
    pub const fn last(&self) -> Seq {
        self.last
    }

    /// The commit position, as far as it is known here.
    pub const fn committed(&self) -> Seq {
        self.commit
    }

    /// Bytes held.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether no entry is held.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// The committed entries after `after`, oldest first: what the flusher is to write, all as row changes.
    pub fn committed_after(&self, after: Seq) -> impl Iterator<Item = (Seq, Vec<RowChange>)> + '_ {
        let start = self.positions.partition_point(|(seq, _)| *seq <= after);
        self.positions.range(start..).take_while(|(seq, _)| *seq <= self.commit).map(|(seq, keys)| {
            let change = |key: &Bytes| {
                let versions = self.rows.get(key)?;
                let at = versions.binary_search_by_key(seq, |(seq, _)| *seq).ok()?;
                Some(RowChange { key: key.clone(), value: versions[at].1.clone() })
            };
            (*seq, keys.iter().filter_map(change).collect())
        })
    }

    fn version<'a>(&self, versions: &'a Versions, reader: Reader) -> Option<Option<&'a Bytes>> {
        let newest = match reader {
            Reader::Newest => versions.back(),
            Reader::Committed => versions.iter().rev().find(|(seq, _)| *seq <= self.commit),
        };
        newest.map(|(_, value)| value.as_ref())
    }

    fn remove(&mut self, key: &Bytes, pop: fn(&mut Versions) -> Option<Version>) {
        let Some(versions) = self.rows.get_mut(key) else { return };
        if let Some((_, value)) = pop(versions) {
            let cost = cost(key, value.as_ref());
            self.bytes -= cost;
            self.budget.used.fetch_sub(cost, Ordering::Relaxed);
        }
        if versions.is_empty() {
            self.rows.remove(key);
        }
    }
}

impl Drop for Recent {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

fn cost(key: &Bytes, value: Option<&Bytes>) -> usize {
    ROW_OVERHEAD_BYTES + key.len() + value.map_or(0, Bytes::len)
}

#[cfg(test)]
#[path = "recent_tests.rs"]
mod tests;
