//! Merge target: the leader of the left partition copies the rows of the right one into its log, so its replicas get
//! them like any other entry.
//!
//! The entry that starts a merge clears the keys and seals them on the left side too, so that reads never see a part of
//! them. The seal is lifted once the row gives the keys to this partition (PROTOCOL rules 46 to 50). A leader that
//! finds an unfinished merge starts it over.

use crate::copies::local_copy::LocalCopy;
use crate::mutant::Mutant;
use crate::partitions::Partitions;
use crate::ranges::yield_page::{YieldAsk, YieldPage};
use crate::shell::{CopyEvent, Shell};
use crate::turn::Turn;
use archon_kv::engine::PageLimit;
use archon_kv::{Effect, MergeRecord, PartitionView, Reader, RowChange, Seal, ViewError, reshape, row};
use archon_types::{Fact, MERGE_BYTES_MAX, Millis, PlacementId, Revision, Version};
use bytes::Bytes;

/// Delay before the leader retries a page that did not arrive, in milliseconds.
const ASK_AGAIN_MS: u64 = 20;
/// Time-out of a page request, in milliseconds.
const PAGE_MS_MAX: u64 = 2_000;

impl<S: Shell> Partitions<S> {
    /// Takes the answer to page request `ask`. Without a page, the request is repeated after `ASK_AGAIN_MS`.
    pub fn absorb_page(&mut self, placement: PlacementId, ask: u64, page: Option<YieldPage>) {
        let Some(local) = self.copies.get_mut(&placement) else { return };
        let Some(under_way) = local.absorb.under_way.as_mut() else { return };
        if under_way.asked.is_none_or(|(asked, _)| asked != ask) {
            return;
        }
        under_way.asked = None;
        under_way.not_before = self.turn.now.plus(if page.is_some() { 0 } else { ASK_AGAIN_MS });
        under_way.page = page;
    }
}

impl<S: Shell> Turn<S> {
    /// Continues copying the keys of the right neighbour into the log, if the row asks for it.
    pub(crate) fn absorb(&mut self, local: &mut LocalCopy<S>) {
        let wanted = local.row().and_then(|row| Some((row.absorbs()?, row.absorbed_range()?)));
        let Some(((merge, right), keys)) = wanted.filter(|_| local.serving && !local.set_aside) else {
            local.absorb.under_way = None;
            return;
        };
        let attempt = merge.attempt;
        if local.absorb.merged.as_ref().is_some_and(|merged| merged.attempt == attempt) {
            let early = self.broken.breaks(Mutant::AbsorbedEarly); // rule 47
            if early || local.replica.commit() >= local.absorb.merged_at {
                self.report_absorbed(local, Fact::Absorbed { attempt });
            }
            return;
        }
        if !local.split.seals_for(attempt) || self.room(local).is_err() || !self.leadership(local).holds() {
            return;
        }
        if local.absorb.under_way.as_ref().is_none_or(|under_way| under_way.attempt != attempt) {
            // An earlier leader began; its progress is unknown.
            let Some(position) = local.replica.next_position() else { return };
            let seal = Seal { attempt, at: keys.begin, end: keys.end, position };
            let at = local.log_time.stamp(self.shell.wall());
            if self.note(local, self.absorbing(at, &seal)).is_ok() {
                local.absorb.begin(attempt);
            }
            return;
        }
        let now = self.now;
        let ask = local.next_ticket();
        let (placement, partition) = (local.placement, local.partition);
        let Some(under_way) = &mut local.absorb.under_way else { return };
        if under_way.bytes > MERGE_BYTES_MAX {
            let bytes = under_way.bytes;
            return self.report_absorbed(local, Fact::Unabsorbable { attempt, bytes });
        }
        if let Some(page) = under_way.page.take() {
            return self.take_page(local, attempt, keys.begin, page);
        }
        if under_way.asked.is_some_and(|(_, until)| now < until) || now < under_way.not_before {
            return;
        }
        under_way.asked = Some((ask, now.plus(PAGE_MS_MAX)));
        let after = under_way.after.clone();
        self.shell.ask_right(YieldAsk { left: partition, placement, ask, right, attempt, after });
    }

    /// Returns the entry that starts a merge.
    pub(crate) fn absorbing(&self, at: Millis, seal: &Seal) -> Effect {
        match self.broken.breaks(Mutant::AbsorbOverRemains) {
            true => reshape::split(at, seal), // rule 46
            false => reshape::absorb(at, seal),
        }
    }

    /// Returns the limit on rows of a page in one entry.
    fn absorb_limit(&self) -> PageLimit {
        match self.broken.breaks(Mutant::PageUncut) {
            true => PageLimit { rows_max: usize::MAX, bytes_max: usize::MAX }, // rule 46
            false => self.shell.page_limit(),
        }
    }

    /// Writes a page of any size into the log, in entries of bounded size, and after the last page an entry that marks the
    /// rows as complete.
    fn take_page(&mut self, local: &mut LocalCopy<S>, attempt: Version, from: Bytes, mut page: YieldPage) {
        // Values that had expired in the other partition have expired in this one (PROTOCOL rule 85).
        if !self.broken.breaks(Mutant::ExpiryUnmerged) {
            local.log_time.observe(page.log_time);
        }
        while !page.rows.is_empty() {
            let count = self.absorb_limit().count(&page.rows);
            let rows = &page.rows[..count];
            let bytes: u64 = rows.iter().map(|row| (row.key.len() + row.value.len()) as u64).sum();
            let last = rows.last().map(|row| row.key.clone());
            let mut changes: Vec<RowChange> =
                rows.iter().map(|row| RowChange::set(row.key.clone(), row.value.clone())).collect();
            if rows.iter().any(|row| row::expiry_of(&row.value).is_some()) {
                changes.push(RowChange::set(Bytes::from_static(row::EXPIRING_KEY), Bytes::new()));
            }
            let at = local.log_time.stamp(self.shell.wall());
            let written = self.note(local, Effect::new(at, changes)).is_ok();
            let Some(under_way) = &mut local.absorb.under_way else { return };
            if !written {
                under_way.page = Some(page);
                return;
            }
            page.rows.drain(..count);
            under_way.bytes += bytes;
            under_way.after = last;
            self.shell.observe(local.at(), CopyEvent::Absorbing(bytes));
        }
        let too_large = local.absorb.under_way.as_ref().is_none_or(|under_way| under_way.bytes > MERGE_BYTES_MAX);
        if page.more || too_large {
            return;
        }
        let at = local.log_time.stamp(self.shell.wall());
        let Some(position) = local.replica.next_position() else { return };
        let highest = if self.broken.breaks(Mutant::RevisionFalls) { Revision::ZERO } else { page.revision }; // rule 49
        let merged = MergeRecord::next(local.absorb.merged.as_ref(), attempt, from, highest, position.seq, at);
        // A client refused for an older stamp gets a later time to stamp its write with.
        local.log_time.observe(merged.through.plus(1));
        let at = local.log_time.stamp(self.shell.wall());
        if self.note(local, reshape::absorbed(at, &merged)).is_ok() {
            (local.absorb.merged, local.absorb.merged_at) = (Some(merged), position.seq);
            local.absorb.under_way = None;
        }
    }

    /// Reports the result to the coordinators, once per row version and incarnation.
    fn report_absorbed(&mut self, local: &mut LocalCopy<S>, fact: Fact) {
        let Some(life) = self.shell.life() else { return };
        let reported = Some((life.incarnation, local.replica.version()));
        if local.absorb.reported == reported {
            return;
        }
        if self.report(local, fact) {
            local.absorb.reported = reported;
        }
    }

    /// Returns whether the committed rows of a copy have all keys that its row gives it.
    pub(crate) fn has_absorbed(&mut self, local: &LocalCopy<S>) -> bool {
        match self.merged_by(local) {
            Ok(merged) => has_absorbed(local, merged.as_ref()),
            Err(error) => {
                self.unusable(local, &error);
                false
            }
        }
    }

    /// Returns the last merge in the committed rows of a copy, including one that was cancelled once all keys had
    /// arrived.
    ///
    /// # Errors
    /// [`ViewError`] if the engine does not return it.
    pub(crate) fn merged_by(&self, local: &LocalCopy<S>) -> Result<Option<MergeRecord>, ViewError> {
        let view = PartitionView::new(&local.memtable, self.shell.engine(), local.placement, Reader::Committed);
        MergeRecord::current(&view)
    }
}

/// Returns whether a copy with this last committed merge has all keys that its row gives it.
pub(crate) fn has_absorbed<S: Shell>(local: &LocalCopy<S>, merged: Option<&MergeRecord>) -> bool {
    let wanted = local.row().map_or(Version::ZERO, |row| row.absorbed);
    merged.map_or(Version::ZERO, |merged| merged.attempt) >= wanted
}

#[cfg(test)]
#[path = "absorb_tests.rs"]
mod tests;
