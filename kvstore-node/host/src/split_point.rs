//! Partitions that are split without anybody asking: how a leader notices that its partition is above a limit of its table, and
//! finds the key at which it should be split. The coordinator judges that. Those that are small are the business of [`SmallWatch`].
//!
//! By size: what is stored is counted anyway, roughly and in the background. Where that is above the limit, or not known yet, the
//! rows of the partition are walked over once, outside the shard, which says exactly how many bytes they are and where the middle
//! is. Where a partition grows at its end, as a time series does, it is split there: what is parted off is copied, and what stays
//! has its size for good. By load: see [`Heat`].

use crate::byte_halves::ByteHalves;
use crate::heat::{Heat, Hot};
use crate::local_copy::LocalCopy;
use crate::partitions::Partitions;
use crate::shell::Shell;
use crate::turn::Turn;
use crate::undersized::SmallWatch;
use archon_types::split::check_split_at;
use archon_types::{Fact, KeyRange, Millis, Op, Outgrown, PartitionId, PlacementId, RangeLimits, Undersized};
use bytes::Bytes;

/// How often a leader looks, in milliseconds.
const LOOK_MS: u64 = 1_000;
/// How long rows are not walked over again at least after it was found that they are within their limit, in milliseconds.
const REST_MS_MIN: u64 = 2_000;
/// So many times as long as a walk took, which rests most of that time itself.
const REST_FACTOR: u64 = 10;
/// It is walked over again before that once it has grown by what it had left, but not before it has grown by this part of its limit.
const REST_ROOM_PART: u64 = 16;
/// How often a split is proposed that does not begin, in milliseconds.
const SAY_AGAIN_MS: u64 = 2_000;
/// How long the middle that a walk found is good at most, in milliseconds: the partition goes on changing.
pub(crate) const MIDDLE_MS_MAX: u64 = 30_000;

/// A walk over the rows of a partition, to find out how many bytes of users' keys and values they are, and where the middle is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SplitSearch {
    /// The partition.
    pub partition: PartitionId,
    /// Its copy here.
    pub placement: PlacementId,
    /// The keys that it has.
    pub range: KeyRange,
}

/// What a leader knows of how its partition grows, if its table has limits.
#[derive(Debug, Default)]
pub(crate) struct SplitWatch {
    /// The operations on it, if these are limited.
    heat: Option<Heat>,
    walk: Walk,
    /// Since when it is small, if such ones are merged.
    small: Option<SmallWatch>,
}

#[derive(Debug, Default)]
enum Walk {
    /// None is needed before that.
    #[default]
    Ready,
    /// It is asked for.
    UnderWay,
    /// It was within its limit, and is until it stores so much, as far as that is known.
    Rest { until: Millis, grown_to: Option<u64> },
    /// It is above its limit, and that is its middle.
    Found { range: KeyRange, at: Bytes, bytes: u64, found: Millis, said: Millis },
}

impl SplitWatch {
    /// An operation is carried out.
    pub(crate) fn note(&mut self, op: &Op) {
        let Some(heat) = &mut self.heat else { return };
        match op {
            Op::Scan { keys, .. } => heat.add(&keys.begin),
            op => op.key().into_iter().for_each(|key| heat.add(key)),
        }
    }
}

impl<S: Shell> Partitions<S> {
    /// Now and then: looks at all partitions that are served here, if any table has limits.
    pub(crate) fn look_for_splits(&mut self) {
        if self.turn.now < self.looks_at {
            return;
        }
        self.looks_at = self.turn.now.plus(LOOK_MS);
        let any = self.turn.shell.limits_any();
        if !any && !self.watched {
            return;
        }
        self.watched = any;
        for local in self.copies.values_mut() {
            self.turn.look_for_split(local);
        }
    }

    /// A walk over the rows of a partition, which took so long, came to its end, or to nothing.
    pub fn split_point(&mut self, search: &SplitSearch, found: Option<&ByteHalves>, took_ms: u64) {
        if let Some(local) = self.copies.get_mut(&search.placement) {
            local.middle.walked(search, found, self.turn.now);
            self.turn.walked(local, search, found, took_ms);
        }
    }
}

impl<S: Shell> Turn<S> {
    fn look_for_split(&mut self, local: &mut LocalCopy<S>) {
        let row = local.row().filter(|row| local.serving && !row.is_reshaped());
        let limits = row.map(|row| self.shell.range_limits(row.id.table)).unwrap_or_default();
        if !limits.is_set() {
            local.watch = None;
            return;
        }
        let mut watch = local.watch.take().unwrap_or_default();
        watch.heat = watch.heat.take().filter(|_| limits.split_above_rate.is_some());
        if let Some(most) = limits.split_above_rate {
            let hot = watch.heat.get_or_insert_with(|| Heat::new(self.now)).judge(self.now, most);
            if let Some(Hot { rate, at }) = hot {
                self.propose_split(local, at, Outgrown::Rate(rate));
            }
        }
        watch.walk = match limits.split_above_bytes {
            Some(most) => self.look_at_bytes(local, watch.walk, most),
            None => Walk::Ready,
        };
        watch.small = self.look_whether_small(local, watch.small.take(), watch.heat.as_ref(), limits);
        local.watch = Some(watch);
    }

    fn look_whether_small(
        &mut self,
        local: &LocalCopy<S>,
        small: Option<SmallWatch>,
        heat: Option<&Heat>,
        limits: RangeLimits,
    ) -> Option<SmallWatch> {
        let range = local.range()?;
        let rate = heat.and_then(Heat::rate);
        let has = self.stored_bytes(local).map(|bytes| Undersized { bytes, rate });
        let (watch, says) = SmallWatch::look(small, self.now, limits, range, has);
        if let Some(has) = says {
            self.report(local, Fact::Undersized(has));
        }
        watch
    }

    /// What the partition stores, as it was counted; `None` before that, and once some of what was counted has been cleared.
    fn stored_bytes(&self, local: &LocalCopy<S>) -> Option<u64> {
        local.memtable.grown().and_then(|_| self.shell.stored_bytes(local.placement))
    }

    fn look_at_bytes(&mut self, local: &LocalCopy<S>, walk: Walk, most: u64) -> Walk {
        let Some(range) = local.range() else { return Walk::Ready };
        let stored = self.stored_bytes(local);
        // What is not known yet says nothing; what was not known then says so now.
        let has_grown =
            |to: Option<u64>| stored.is_some_and(|stored| stored > most && to.is_none_or(|to| stored >= to));
        match walk {
            Walk::UnderWay => walk,
            Walk::Rest { until, grown_to } if self.now < until && !has_grown(grown_to) => walk,
            Walk::Found { range: of, at, bytes, found, said }
                if of == *range && bytes > most && self.now.since(found) < MIDDLE_MS_MAX =>
            {
                let due = self.now.since(said) >= SAY_AGAIN_MS;
                let said = if due { self.now } else { said };
                if due {
                    self.propose_split(local, at.clone(), Outgrown::Bytes(bytes));
                }
                Walk::Found { range: of, at, bytes, found, said }
            }
            _ if stored.is_some_and(|bytes| bytes <= most) => Walk::Ready,
            _ => {
                let (partition, placement) = (local.partition, local.placement);
                let begun = self.shell.find_split_point(SplitSearch { partition, placement, range: range.clone() });
                if begun { Walk::UnderWay } else { Walk::Ready }
            }
        }
    }

    fn walked(&mut self, local: &mut LocalCopy<S>, search: &SplitSearch, found: Option<&ByteHalves>, took_ms: u64) {
        let Some(mut watch) = local.watch.take() else { return };
        if matches!(watch.walk, Walk::UnderWay) {
            let most = self.shell.range_limits(local.partition.table).split_above_bytes;
            let rest_ms = took_ms.saturating_mul(REST_FACTOR).max(REST_MS_MIN);
            // Of more keys than it has by now it says nothing.
            let found = found.filter(|_| local.range() == Some(&search.range));
            let above = found.filter(|halves| most.is_some_and(|most| halves.bytes() > most));
            let at_the_end = local.memtable.grows_at_the_end();
            let cut = |halves: &ByteHalves| match most.filter(|_| at_the_end) {
                Some(most) => halves.near_the_end(most),
                None => halves.middle(),
            };
            watch.walk = match above.and_then(|halves| Some((cut(halves)?, halves.bytes()))) {
                Some((at, bytes)) => {
                    self.propose_split(local, at.clone(), Outgrown::Bytes(bytes));
                    Walk::Found { range: search.range.clone(), at, bytes, found: self.now, said: self.now }
                }
                None => {
                    let room = most.unwrap_or_default().saturating_sub(found.map_or(0, ByteHalves::bytes));
                    let room = room.max(most.unwrap_or_default() / REST_ROOM_PART);
                    let stored = self.stored_bytes(local);
                    Walk::Rest {
                        until: self.now.plus(rest_ms),
                        grown_to: stored.map(|stored| stored.saturating_add(room)),
                    }
                }
            };
        }
        local.watch = Some(watch);
    }

    /// Tells the coordinator that the partition should be split.
    fn propose_split(&mut self, local: &LocalCopy<S>, at: Bytes, by: Outgrown) {
        let splittable = |keys: &KeyRange| check_split_at(keys, &at).is_ok();
        if !local.serving || !local.row().is_some_and(|row| row.split.is_none() && splittable(&row.range)) {
            return;
        }
        self.report(local, Fact::Outgrown { at, by });
    }
}

#[cfg(test)]
#[path = "split_point_tests.rs"]
mod tests;
