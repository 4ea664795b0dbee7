//! Copies: the leader's pins, and the loader's pages.

use super::disk::Write;
use super::slot::Pull;
use crate::event::{Event, Sideways};
use crate::mutant::ShellMutant;
use crate::network::End;
use crate::world::World;
use archon_host::Pin;
use archon_kv::Recent;
use archon_kv::RecentBudget;
use archon_kv::engine::{Change, Engine, PageLimit, Row};
use archon_replica::{Input, Position, ReplicaAddress};
use archon_types::{Epoch, PartitionId, PlacementId, Seq, Version};
use bytes::Bytes;
use std::ops::Bound;

/// Rows of a page: few, so that a copy takes many.
const PAGE_ROWS: usize = 4;
/// How long a page is waited for, on the local clock.
const PAGE_MS: u64 = 60;

impl World {
    pub(crate) fn start_copy(
        &mut self,
        host: usize,
        placement: PlacementId,
        copy: u64,
        (leader, epoch): (ReplicaAddress, Epoch),
    ) {
        self.coverage.copies += 1;
        let Some(process) = &mut self.hosts[host].process else { return };
        let Some(slot) = process.slots.get_mut(&placement) else { return };
        slot.recent = Recent::new(Seq::ZERO, RecentBudget::default());
        slot.recent.set_engine_ahead(super::slot::UNKNOWN);
        slot.log.clear();
        slot.written = Seq::ZERO;
        slot.retention.empty();
        slot.emptied.is_pulled();
        let pull = Pull {
            copy,
            leader,
            epoch,
            cleared: false,
            start: None,
            version: Version::ZERO,
            after: Bytes::new(),
            asks: 0,
            asked: None,
            whole: false,
        };
        slot.pull = Some(pull);
    }

    pub(crate) fn stop_copy(&mut self, host: usize, placement: PlacementId, copy: u64) {
        let Some(process) = &mut self.hosts[host].process else { return };
        if let Some(slot) = process.slots.get_mut(&placement) {
            slot.pull.take_if(|pull| pull.copy == copy);
        }
    }

    /// Asks for the next page, or again for one that did not come.
    pub(crate) fn keep_pulling(&mut self, host: usize, placement: PlacementId) {
        let now = self.local(host);
        let Some(process) = &mut self.hosts[host].process else { return };
        let Some(life) = process.life else { return };
        let Some(slot) = process.slots.get_mut(&placement) else { return };
        let partition = slot.partition;
        let Some(pull) = &mut slot.pull else { return };
        let due = pull.asked.is_none_or(|asked| now.since(asked) >= PAGE_MS);
        if !pull.cleared || pull.whole || !due {
            return;
        }
        pull.asked = Some(now);
        pull.asks += 1;
        let ask_number = pull.asks;
        let loader = ReplicaAddress { placement, node: life.node, incarnation: life.incarnation };
        let (copy, start, after) = (pull.copy, pull.start, pull.after.clone());
        let (source, epoch) = (pull.leader, pull.epoch);
        let ask = Sideways::CopyAsk { partition, loader, copy, ask: ask_number, source, epoch, start, after };
        self.send_to_node(host, source.node, ask);
    }

    fn send_to_node(&mut self, host: usize, node: archon_types::NodeId, message: Sideways) {
        let address = self.quorum.state.node(node).map(|row| row.node.address.clone());
        let Some(to) = address.and_then(|address| crate::coordinator::host_of(&address)) else { return };
        self.send(End::Host(host), End::Host(to), Event::Sideways { host: to, message: Box::new(message) });
    }

    pub(crate) fn on_sideways(&mut self, host: usize, message: Sideways) {
        match message {
            Sideways::Replica(message) => {
                let placement = message.to.placement;
                self.step(host, placement, Input::Message(message));
                self.settle(host);
            }
            Sideways::CopyAsk { partition, loader, copy, ask, source, epoch, start, after } => {
                self.copy_asked(host, partition, loader, (copy, ask), (source, epoch), (start, after));
            }
            Sideways::CopyPage { placement, copy, ask, start, version, after, rows, last } => {
                self.copy_page(host, placement, (copy, ask), (start, version), (after, rows, last));
                self.settle(host);
            }
        }
    }

    /// A loader elsewhere wants a page: the log is kept for it from here on.
    fn copy_asked(
        &mut self,
        host: usize,
        partition: PartitionId,
        loader: ReplicaAddress,
        (copy, ask): (u64, u64),
        (source, epoch): (ReplicaAddress, Epoch),
        (start, after): (Option<Position>, Bytes),
    ) {
        let unchecked = self.breaks(ShellMutant::CopyUnchecked) && start.is_some();
        let machine = &mut self.hosts[host];
        let Some(process) = &mut machine.process else { return };
        if process.life.is_none_or(|life| life.incarnation != source.incarnation) {
            return;
        }
        let Some(slot) = process.slots.get_mut(&source.placement) else { return };
        let gives = slot.copy().gives_copies() == Some(epoch) && slot.copy().loads(loader.placement);
        if slot.partition != partition || !(gives || unchecked) {
            return;
        }
        let pinned = match start {
            Some(start) if unchecked => Some(start.seq),
            _ => slot.retention.pinned(loader.placement),
        };
        let resumed = start.filter(|start| pinned == Some(start.seq)).map(|start| start.seq);
        let known = slot.replica.position_at(resumed.unwrap_or(slot.retention.complete().seq));
        let Some(at) = start.filter(|_| unchecked).or(known) else { return };
        slot.retention.pin(loader.placement, Pin { seq: at.seq, epoch, guard: () });
        let from = match resumed.is_some() && !after.is_empty() {
            true => Bound::Excluded(&after[..]),
            false => Bound::Unbounded,
        };
        let limit = PageLimit { rows_max: PAGE_ROWS, bytes_max: usize::MAX };
        let Ok(page) = machine.disk.engine.page(source.placement, (from, Bound::Unbounded), limit) else { return };
        let after = page.rows.last().map_or(after, |row| row.key.clone());
        let (placement, last) = (loader.placement, !page.more);
        let version = slot.replica.version();
        let answer = Sideways::CopyPage { placement, copy, ask, start: at, version, after, rows: page.rows, last };
        self.send_to_node(host, loader.node, answer);
    }

    fn copy_page(
        &mut self,
        host: usize,
        placement: PlacementId,
        (copy, ask): (u64, u64),
        (start, version): (Position, Version),
        (after, rows, last): (Bytes, Vec<Row>, bool),
    ) {
        let unsynced = self.breaks(ShellMutant::CopyUnsynced);
        let machine = &mut self.hosts[host];
        let Some(process) = &mut machine.process else { return };
        let Some(slot) = process.slots.get_mut(&placement) else { return };
        let Some(pull) =
            slot.pull.as_mut().filter(|pull| pull.copy == copy && pull.asks == ask && pull.cleared && !pull.whole)
        else {
            return;
        };
        match pull.start {
            None => pull.start = Some(start),
            Some(known) if known == start => {}
            Some(_) => {
                // The leader no longer keeps the log from where the copy began: it begins anew.
                pull.cleared = false;
                pull.start = None;
                pull.after = Bytes::new();
                pull.asked = None;
                return;
            }
        }
        let change = |row: Row| Change { space: placement, key: row.key, value: Some(row.value) };
        let changes: Vec<Change> = rows.into_iter().map(change).collect();
        if machine.disk.engine.write(&changes).is_err() {
            return;
        }
        pull.after = after;
        pull.asked = None;
        pull.whole = last;
        pull.version = version;
        if last && unsynced {
            self.copy_done(host, placement);
        } else {
            self.keep_pulling(host, placement);
        }
    }

    /// All rows are in and synced.
    pub(super) fn copy_done(&mut self, host: usize, placement: PlacementId) {
        let Some(process) = &mut self.hosts[host].process else { return };
        let Some(slot) = process.slots.get_mut(&placement) else { return };
        let Some(Pull { copy, start: Some(at), version, whole: true, .. }) = slot.pull.take_if(|pull| pull.whole)
        else {
            return;
        };
        self.coverage.copies_done += 1;
        self.step(host, placement, Input::Copied { copy, at, version });
    }

    /// Empties spaces that are to be copied into or deleted. A copy is said to be deleted once the disk, too, has forgotten it:
    /// after that nobody names it any more, and whatever is left of it stays for ever.
    pub(super) fn clear_spaces(&mut self, host: usize) {
        let unsynced = self.breaks(ShellMutant::DeletedUnsynced);
        let machine = &mut self.hosts[host];
        let Some(process) = &mut machine.process else { return };
        for slot in process.slots.values_mut() {
            if let Some(pull) = slot.pull.as_mut().filter(|pull| !pull.cleared) {
                pull.cleared = machine.disk.engine.clear(slot.placement, usize::MAX).is_ok();
            }
        }
        let unloading = std::mem::take(&mut process.unloading);
        for (placement, partition) in &unloading {
            let gathered = &mut process.journal.gathered;
            gathered.writes.push(Write::Drop(*placement));
            gathered.deletions.extend((!unsynced).then_some((*placement, *partition)));
            if machine.disk.engine.clear(*placement, usize::MAX).is_err() {
                return;
            }
        }
        if unsynced {
            unloading.into_iter().for_each(|(placement, partition)| self.unloaded(host, placement, partition));
        } else if !unloading.is_empty() && machine.disk.engine.sync().is_ok() {
            process.emptied.extend(unloading);
        }
    }
}
