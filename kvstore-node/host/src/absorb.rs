//! Merges, from the side of the left partition: its leader takes the rows of the right one into its log, where its copies get them
//! from as they get everything.
//!
//! The entry that begins it clears the keys and seals them here as well, so that nobody is shown a part of them: the seal is lifted
//! once the row gives them to this partition (PROTOCOL rules 46 to 50). A leader that finds it begun and not done begins anew.

use crate::local_copy::LocalCopy;
use crate::mutant::Mutant;
use crate::partitions::Partitions;
use crate::shell::{Observed, Shell};
use crate::turn::Turn;
use crate::yielding::{YieldAsk, YieldPage};
use archon_kv::engine::PageLimit;
use archon_kv::{Effect, Merged, PartitionView, Reader, RowChange, Seal, reshape};
use archon_types::{Fact, Incarnation, MERGE_BYTES_MAX, Millis, PlacementId, Revision, Seq, Version};
use bytes::Bytes;

/// How long the leader waits before it asks again for a page that it did not get, in milliseconds.
const ASK_AGAIN_MS: u64 = 20;
/// How long a page is waited for, in milliseconds.
const PAGE_MS_MAX: u64 = 2_000;

/// What a copy knows of merges of its partition, while it serves.
#[derive(Debug, Default)]
pub(crate) struct AbsorbWork {
    /// What its whole log says of the last one, uncommitted entries included.
    merged: Option<Merged>,
    /// Where the entry stands that says so; zero for one that was there when this copy began to serve.
    merged_at: Seq,
    under_way: Option<UnderWay>,
    /// In which life and under which version of the row the coordinators were told last what came of it.
    reported: Option<(Incarnation, Version)>,
}

/// Keys that come from the right neighbour.
#[derive(Debug)]
struct UnderWay {
    attempt: Version,
    /// The last key that came.
    after: Option<Bytes>,
    /// How much came, in bytes.
    bytes: u64,
    /// The number of the page that was asked for, and until when it is waited for.
    asked: Option<(u64, Millis)>,
    /// Nothing is asked for before that.
    not_before: Millis,
    /// A page that the log had no room for yet.
    page: Option<YieldPage>,
}

impl AbsorbWork {
    /// The revision of what the entry at this position writes.
    pub(crate) fn revision(&self, seq: Seq) -> Revision {
        Merged::revision(self.merged.as_ref(), seq)
    }

    /// What the log says of the last merge.
    pub(crate) const fn merged(&self) -> Option<&Merged> {
        self.merged.as_ref()
    }

    /// Nothing is admitted any more: what the log says is read anew by whoever serves next.
    pub(crate) fn rest(&mut self) {
        *self = Self::default();
    }

    /// What the log said when this copy began to serve.
    pub(crate) fn serve(&mut self, merged: Option<Merged>) {
        *self = Self { merged, ..Self::default() };
    }

    /// The keys of this attempt are cleared and sealed: pages may come.
    pub(crate) fn begin(&mut self, attempt: Version) {
        let (after, asked, page) = (None, None, None);
        self.under_way = Some(UnderWay { attempt, after, bytes: 0, asked, not_before: Millis::ZERO, page });
    }
}

impl<S: Shell> Partitions<S> {
    /// A page of a partition that is to be absorbed has come, or has not: then it is asked for again after a while. `ask` is the
    /// number of the question.
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
    /// Goes on with bringing the keys of the right neighbour into the log, if the row says so.
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
            // An earlier leader began, and nobody knows how far it came.
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

    /// The entry that begins to absorb keys.
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
        while !page.rows.is_empty() {
            let count = self.absorb_limit().count(&page.rows);
            let rows = &page.rows[..count];
            let bytes: u64 = rows.iter().map(|row| (row.key.len() + row.value.len()) as u64).sum();
            let last = rows.last().map(|row| row.key.clone());
            let changes = rows.iter().map(|row| RowChange::set(row.key.clone(), row.value.clone())).collect();
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
            self.shell.observe(local.at(), Observed::Absorbing(bytes));
        }
        let too_large = local.absorb.under_way.as_ref().is_none_or(|under_way| under_way.bytes > MERGE_BYTES_MAX);
        if page.more || too_large {
            return;
        }
        let at = local.log_time.stamp(self.shell.wall());
        let Some(position) = local.replica.next_position() else { return };
        let highest = if self.broken.breaks(Mutant::RevisionFalls) { Revision::ZERO } else { page.revision }; // rule 49
        let merged = Merged::next(local.absorb.merged.as_ref(), attempt, from, highest, position.seq, at);
        // Whoever is refused for a stamp from before is told a later time, to stamp the write anew with.
        local.log_time.observe(merged.through.plus(1));
        let at = local.log_time.stamp(self.shell.wall());
        if self.note(local, reshape::absorbed(at, &merged)).is_ok() {
            (local.absorb.merged, local.absorb.merged_at) = (Some(merged), position.seq);
            local.absorb.under_way = None;
        }
    }

    /// Tells the coordinators what came of it, once for each version of the row and life of the node.
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

    /// Whether the committed rows of a copy have all keys that its row gives it.
    pub(crate) fn has_absorbed(&mut self, local: &LocalCopy<S>) -> bool {
        let merged = self.merged_by(local);
        has_absorbed(local, merged.as_ref())
    }

    /// What the committed rows of a copy say of the last merge, also of one that was given up once all keys had come.
    pub(crate) fn merged_by(&mut self, local: &LocalCopy<S>) -> Option<Merged> {
        let view = PartitionView::new(&local.memtable, self.shell.engine(), local.placement, Reader::Committed);
        match Merged::current(&view) {
            Ok(merged) => merged,
            Err(error) => {
                self.unusable(local, &error);
                None
            }
        }
    }
}

/// Whether a copy whose committed rows say this of the last merge has all keys that its row gives it.
pub(crate) fn has_absorbed<S: Shell>(local: &LocalCopy<S>, merged: Option<&Merged>) -> bool {
    let wanted = local.row().map_or(Version::ZERO, |row| row.absorbed);
    merged.map_or(Version::ZERO, |merged| merged.attempt) >= wanted
}

#[cfg(test)]
#[path = "absorb_tests.rs"]
mod tests;
