//! Copies in progress: a loader requests page after page.

use crate::event::PeerMessage;
use crate::host::carried::CarriedBeat;
use crate::mutant::ShellMutant;
use crate::world::World;
use archon_host::{CopyAsk, CopyJob, CopyPage, CopyStart, NodeRegistration};
use archon_kv::engine::{Engine, PageLimit, Row};
use archon_kv::row;
use archon_replica::{Input, Position, ReplicaAddress};
use archon_types::{Incarnation, Millis, PlacementId, ScanOrder, Seq, Version};
use bytes::Bytes;
use std::ops::Bound;

/// Rows of a page: few, so that a copy takes many.
const PAGE_ROWS: usize = 4;
/// Time-out of a page, on the local clock.
const PAGE_MS: u64 = 60;

/// A copy that this machine requests page by page.
#[derive(Clone, Debug)]
pub(super) struct Puller {
    pub(super) job: CopyJob,
    pub(super) start: Option<Position>,
    /// Version of the row under which the last page was sent.
    pub(super) version: Version,
    pub(super) after: Bytes,
    /// Number of page requests: only the answer to the newest counts, as on a stream.
    pub(super) asks: u64,
    /// Time of the last request, on the local clock.
    pub(super) asked: Option<Millis>,
    /// All pages have arrived; they wait for the engine's sync.
    pub(super) whole: bool,
}

impl World {
    /// Requests due pages, and repeats unanswered requests.
    pub(crate) fn keep_pulling(&mut self, host: usize) {
        let now = self.local(host);
        let Some(process) = &mut self.hosts[host].process else { return };
        let shell = process.partitions.shell_mut();
        let Some(life) = shell.life else { return };
        let mut asks = Vec::new();
        for puller in shell.pulls.values_mut() {
            let due = puller.asked.is_none_or(|asked| now.since(asked) >= PAGE_MS);
            if puller.whole || !due {
                continue;
            }
            puller.asked = Some(now);
            puller.asks += 1;
            let (job, start, after) = (puller.job, puller.start, puller.after.clone());
            let loader = ReplicaAddress { placement: job.placement, node: life.node, incarnation: life.incarnation };
            let (partition, source, epoch) = (job.partition, job.leader, job.epoch);
            let (attempt, ask) = (job.attempt, puller.asks);
            asks.push(PeerMessage::CopyAsk { partition, loader, attempt, ask, source, epoch, start, after });
        }
        for ask in asks {
            let PeerMessage::CopyAsk { source, .. } = &ask else { continue };
            self.send_to_node(host, source.node, ask);
        }
    }

    pub(crate) fn on_peer_message(&mut self, host: usize, message: PeerMessage, sent: u64) {
        match message {
            PeerMessage::Replica(message) if self.says_over(host, &message) => {}
            PeerMessage::Carry { from, heartbeat, stopping, holds, doors } => {
                let came = self.local(host);
                self.carry_beat(host, from, CarriedBeat { heartbeat, stopping, holds, doors, came });
            }
            PeerMessage::Relayed { to, said } => self.on_relayed(host, to, said),
            PeerMessage::Over(over) => self.coverage.over_by_peer += u64::from(self.told_over(host, over)),
            PeerMessage::Ping { keeper, boot, number } => self.answer_probe(host, keeper, boot, number),
            PeerMessage::Pong { boot, number, outcome } => self.on_pong(host, boot, number, outcome),
            PeerMessage::Replica(message) => {
                let placement = message.to.placement;
                self.note_append(host, &message, sent);
                self.step(host, placement, Input::Message(message));
            }
            PeerMessage::CopyAsk { partition, loader, attempt, ask, source, epoch, start, after } => {
                if !self.lives(host, source.incarnation) {
                    return;
                }
                let resume = start.map_or(Seq::ZERO, |start| start.seq);
                let asked = CopyAsk { partition, loader: loader.placement, source: source.placement, epoch, resume };
                let given = self.drive(host, |partitions| partitions.copy_asked(asked, ()));
                let Some(Ok(given)) = given else { return };
                self.give_page(host, loader, (attempt, ask), (source.placement, given), after);
            }
            PeerMessage::CopyPage { loader, attempt, ask, start, version, after, rows, last } => {
                // The product's streams deliver no page of a former incarnation.
                if !self.lives(host, loader.incarnation) {
                    return;
                }
                self.on_page(host, loader.placement, (attempt, ask), (start, version), (after, rows, last));
            }
            PeerMessage::YieldAsk { from, ask } => self.give_right(host, from, &ask),
            PeerMessage::YieldPage { to, placement, ask, page } => {
                if !self.lives(host, to) {
                    return;
                }
                self.drive(host, |partitions| partitions.absorb_page(placement, ask, page));
            }
        }
        self.settle(host);
    }

    /// Returns the registration of this machine's process.
    pub(crate) fn life(&self, host: usize) -> Option<NodeRegistration> {
        self.hosts[host].process.as_ref().and_then(|process| process.partitions.shell().life)
    }

    pub(super) fn lives(&self, host: usize, incarnation: Incarnation) -> bool {
        self.life(host).is_some_and(|life| life.incarnation == incarnation)
    }

    fn give_page(
        &mut self,
        host: usize,
        loader: ReplicaAddress,
        (attempt, ask): (u64, u64),
        (source, given): (PlacementId, CopyStart),
        after: Bytes,
    ) {
        let from = match given.resumed && !after.is_empty() {
            true => Bound::Excluded(&after[..]),
            false => Bound::Unbounded,
        };
        let limit = PageLimit { rows_max: PAGE_ROWS, bytes_max: usize::MAX };
        let Ok(mut page) =
            self.hosts[host].disk.engine.page(source, (from, Bound::Unbounded), ScanOrder::Ascending, limit)
        else {
            return;
        };
        let after = page.rows.last().map_or(after, |row| row.key.clone());
        if !page.more {
            let copies = self.hosts[host].process.as_ref().map(|process| process.partitions.copies());
            let Some(local) = copies.and_then(|copies| copies.get(&source)) else { return };
            row::note_copied(&mut page.rows, local.replica.commit());
        }
        let (start, version, rows, last) = (given.at, given.version, page.rows, !page.more);
        let answer = PeerMessage::CopyPage { loader, attempt, ask, start, version, after, rows, last };
        self.send_to_node(host, loader.node, answer);
    }

    fn on_page(
        &mut self,
        host: usize,
        placement: PlacementId,
        (attempt, ask): (u64, u64),
        (start, version): (Position, Version),
        (after, rows, last): (Bytes, Vec<Row>, bool),
    ) {
        let unsynced = self.breaks(ShellMutant::CopyUnsynced);
        let Some(process) = &mut self.hosts[host].process else { return };
        let pulls = &mut process.partitions.shell_mut().pulls;
        let asked = |puller: &&mut Puller| puller.job.attempt == attempt && puller.asks == ask && !puller.whole;
        let Some(puller) = pulls.get_mut(&placement).filter(asked) else { return };
        if puller.start.is_some_and(|known| known != start) {
            // The leader no longer retains the log from the start of the copy.
            pulls.remove(&placement);
            self.drive(host, |partitions| partitions.copy_again(placement, attempt));
            return;
        }
        (puller.start, puller.version, puller.after) = (Some(start), version, after);
        (puller.asked, puller.whole) = (None, last);
        let page = CopyPage { placement, attempt, stream: 0, content: rows };
        self.drive(host, |partitions| partitions.copy_page(page));
        if last && unsynced {
            self.copies_synced(host);
        }
        self.keep_pulling(host);
    }

    /// Handles a sync of the engine: copies with all rows become complete.
    pub(super) fn copies_synced(&mut self, host: usize) {
        let Some(process) = &mut self.hosts[host].process else { return };
        let pulls = &mut process.partitions.shell_mut().pulls;
        let whole: Vec<Puller> = pulls.extract_if(.., |_, puller| puller.whole).map(|(_, puller)| puller).collect();
        for Puller { job, start, version, .. } in whole {
            let Some(at) = start else { continue };
            self.drive(host, |partitions| partitions.copy_done(job.placement, job.attempt, at, version));
        }
    }
}
