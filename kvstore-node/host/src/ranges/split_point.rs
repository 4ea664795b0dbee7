//! Automatic splits: how a leader notices that its partition is above a limit of its table, and finds the split key.
//! The coordinator decides. [`SmallWatch`] covers small partitions.
//!
//! By size: stored bytes are counted anyway, roughly and in the background. If they are above the limit, or not known
//! yet, one walk over the partition's rows, outside the shard, finds their exact bytes and the middle. A partition that
//! grows at its end, such as a time series, is split there: the new part is copied, and the rest keeps its size for
//! good. By load: see [`Heat`].

use crate::copies::local_copy::LocalCopy;
use crate::partitions::Partitions;
use crate::ranges::byte_halves::ByteHalves;
use crate::ranges::heat::{Heat, HotPartition};
use crate::ranges::split_watch::{MIDDLE_MS_MAX, SplitSearch, Walk};
use crate::ranges::undersized::SmallWatch;
use crate::shell::Shell;
use crate::turn::Turn;
use archon_types::{ExceededLimit, Fact, KeyRange, LowUsage, RangeLimits, check_split_at};
use bytes::Bytes;

/// Interval between looks of a leader, in milliseconds.
const LOOK_MS: u64 = 1_000;
/// Shortest pause before the next walk after rows were found within their limit, in milliseconds.
const REST_MS_MIN: u64 = 2_000;
/// Pause after a walk as a multiple of its duration, most of which the walk itself pauses.
const REST_FACTOR: u64 = 10;
/// Inverse of the share of its limit by which a partition must grow, beyond the room it had left, for an earlier walk.
const REST_ROOM_PART: u64 = 16;
/// Interval between proposals of a split that does not begin, in milliseconds.
const SAY_AGAIN_MS: u64 = 2_000;

impl<S: Shell> Partitions<S> {
    /// Looks at all partitions served here at intervals, if any table has limits.
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

    /// Takes the result of a walk over a partition's rows and its duration; `None` if it failed.
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
            if let Some(HotPartition { rate, at }) = hot {
                self.propose_split(local, at, ExceededLimit::Rate(rate));
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
        let has = self.stored_bytes(local).map(|bytes| LowUsage { bytes, rate });
        let (watch, says) = SmallWatch::look(small, self.now, limits, range, has);
        if let Some(has) = says {
            self.report(local, Fact::Undersized(has));
        }
        watch
    }

    /// Returns the counted bytes of the partition; `None` before that, and after some of the counted rows were cleared.
    fn stored_bytes(&self, local: &LocalCopy<S>) -> Option<u64> {
        local.memtable.grown().and_then(|_| self.shell.stored_bytes(local.placement))
    }

    fn look_at_bytes(&mut self, local: &LocalCopy<S>, walk: Walk, most: u64) -> Walk {
        let Some(range) = local.range() else { return Walk::Ready };
        let stored = self.stored_bytes(local);
        // An unknown size triggers nothing; if the size was unknown before, it counts as grown now.
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
                    self.propose_split(local, at.clone(), ExceededLimit::Bytes(bytes));
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
            // The result does not apply if the keys have changed since.
            let found = found.filter(|_| local.range() == Some(&search.range));
            let above = found.filter(|halves| most.is_some_and(|most| halves.bytes() > most));
            let at_the_end = local.memtable.grows_at_the_end();
            let cut = |halves: &ByteHalves| match most.filter(|_| at_the_end) {
                Some(most) => halves.near_the_end(most),
                None => halves.middle(),
            };
            watch.walk = match above.and_then(|halves| Some((cut(halves)?, halves.bytes()))) {
                Some((at, bytes)) => {
                    self.propose_split(local, at.clone(), ExceededLimit::Bytes(bytes));
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

    /// Proposes a split to the coordinator.
    fn propose_split(&mut self, local: &LocalCopy<S>, at: Bytes, by: ExceededLimit) {
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
