//! Copies of one thread of a node, and all operations on them.

use crate::copies::local_copy::{LocalCopy, RecoveredCopy};
use crate::copies::pages::{CopyAsk, CopyPage, CopyStart};
use crate::copies::reset_report::ResetReport;
use crate::copies::unreadable_copy::UnreadableCopies;
use crate::mutant::{DisabledRule, Mutant};
use crate::operations::park_limits::ParkLimits;
use crate::operations::refusal::{Cause, CopyRefusal, Refusal};
use crate::operations::request::Request;
use crate::ranges::split_work::FormedCopy;
use crate::shell::{CopyEvent, CopyLocation, NodeRegistration, Shell};
use crate::turn::Turn;
use archon_kv::Memtable;
use archon_replica::{Body, Input, Message, Position};
use archon_types::{Epoch, Fact, Millis, PartitionId, PlacementId, Report, Seq, Version};
use std::collections::BTreeMap;

/// Completions of a turn, once its writes are durable.
#[derive(Clone, Debug, Default)]
pub struct Completions {
    /// Writes of replicas.
    pub tokens: Vec<(PlacementId, u64)>,
    /// Entries that the log may then trim.
    pub trims: Vec<(PlacementId, Seq)>,
    /// Copies of which nothing is left then.
    pub deletions: Vec<(PartitionId, PlacementId)>,
}

/// Some of a node's partitions. The shell passes inputs, calls [`Partitions::begin`] before each, and ends the turn
/// with [`Partitions::settle`].
pub struct Partitions<S: Shell> {
    /// Found at start-up, not named by a duty yet.
    pub(crate) dormant: BTreeMap<PlacementId, RecoveredCopy>,
    /// Kept and not served: this version cannot read an entry of their logs, or the engine refuses to read their rows.
    pub(crate) unreadable: UnreadableCopies,
    /// Newest request of a leader to each dormant copy, received before the duty that names the copy.
    pub(crate) early: BTreeMap<PlacementId, Message>,
    pub(crate) copies: BTreeMap<PlacementId, LocalCopy<S>>,
    /// The copy that answers for a partition.
    pub(crate) active: BTreeMap<PartitionId, PlacementId>,
    /// Copies being deleted, with the clearing that completes it.
    pub(crate) unloading: BTreeMap<PlacementId, (PartitionId, Option<u64>)>,
    /// Formed beside copies of their parent partitions, and not yet in the log.
    pub(crate) adopting: BTreeMap<PlacementId, FormedCopy>,
    /// Time of the next look for partitions to split.
    pub(crate) looks_at: Millis,
    /// A table had limits at the last look.
    pub(crate) watched: bool,
    /// The last copy in which expired rows were removed, or looked for.
    pub(crate) expired_last: PlacementId,
    pub(crate) turn: Turn<S>,
}

impl<S: Shell> std::fmt::Debug for Partitions<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Partitions").field("active", &self.active).finish_non_exhaustive()
    }
}

impl<S: Shell> Partitions<S> {
    /// Starts with what recovery found, driven by this shell.
    pub fn new(
        shell: S,
        found: BTreeMap<PlacementId, RecoveredCopy>,
        park_limits: ParkLimits,
        broken: DisabledRule,
    ) -> Self {
        let (unreadable, dormant) = found.into_iter().partition(|(_, found)| found.unreadable.is_some());
        let mut partitions = Self::with(shell, dormant, park_limits, broken);
        for (placement, found) in BTreeMap::<_, RecoveredCopy>::into_iter(unreadable) {
            partitions.keep_found(placement, &found, found.unreadable.as_deref().unwrap_or_default());
        }
        partitions
    }

    const fn with(
        shell: S,
        dormant: BTreeMap<PlacementId, RecoveredCopy>,
        park_limits: ParkLimits,
        broken: DisabledRule,
    ) -> Self {
        Self {
            dormant,
            unreadable: UnreadableCopies::new(),
            early: BTreeMap::new(),
            copies: BTreeMap::new(),
            active: BTreeMap::new(),
            unloading: BTreeMap::new(),
            adopting: BTreeMap::new(),
            looks_at: Millis::ZERO,
            watched: false,
            expired_last: PlacementId::new(0),
            turn: Turn::new(shell, park_limits, broken),
        }
    }

    /// Starts a turn at this instant of the local clock.
    pub const fn begin(&mut self, now: Millis) {
        self.turn.now = now;
    }

    /// Returns the shell.
    pub const fn shell(&self) -> &S {
        &self.turn.shell
    }

    /// Returns the shell.
    pub const fn shell_mut(&mut self) -> &mut S {
        &mut self.turn.shell
    }

    /// Returns the copies with a replica, in order of placement.
    pub const fn copies(&self) -> &BTreeMap<PlacementId, LocalCopy<S>> {
        &self.copies
    }

    /// Calls `work` with the shell and each copy with a replica.
    pub fn each(&mut self, mut work: impl FnMut(&mut S, &mut LocalCopy<S>)) {
        self.copies.values_mut().for_each(|local| work(&mut self.turn.shell, local));
    }

    /// Returns a copy with its shell.
    pub fn of(&mut self, placement: PlacementId) -> Option<(&mut S, &mut LocalCopy<S>)> {
        self.copies.get_mut(&placement).map(|local| (&mut self.turn.shell, local))
    }

    /// Returns the copies that no duty has named yet, with the partition of each.
    pub fn dormant(&self) -> impl Iterator<Item = (PlacementId, PartitionId)> {
        self.dormant.iter().map(|(placement, found)| (*placement, found.partition))
    }

    /// Returns the copies not fully deleted yet, with the partition of each.
    pub fn unloading(&self) -> impl Iterator<Item = (PlacementId, PartitionId)> {
        self.unloading.iter().map(|(placement, (partition, _))| (*placement, *partition))
    }

    /// Returns the copy that answers for a partition.
    pub fn active(&self, partition: PartitionId) -> Option<PlacementId> {
        self.active.get(&partition).copied()
    }

    /// Returns a copy's memtable, whether it is served or not.
    pub fn memtable(&self, placement: PlacementId) -> Option<&Memtable> {
        let active = self.copies.get(&placement).map(|local| &local.memtable);
        active.or_else(|| self.dormant.get(&placement).map(|found| &found.memtable))
    }

    /// Returns a copy's memtable, whether it is served or not.
    pub fn memtable_mut(&mut self, placement: PlacementId) -> Option<&mut Memtable> {
        let active = self.copies.get_mut(&placement).map(|local| &mut local.memtable);
        active.or_else(|| self.dormant.get_mut(&placement).map(|found| &mut found.memtable))
    }

    /// Evaluates, parks or refuses an operation.
    pub fn operate(&mut self, request: Request<S::Reply>) {
        let local = self.active.get(&request.partition).and_then(|placement| self.copies.get_mut(placement));
        match local {
            Some(local) => self.turn.operate(local, request),
            None => {
                let refusal = self.refusal_of(request.partition);
                self.turn.turn_away(request, Millis::ZERO, refusal);
            }
        }
    }

    /// Returns the reason why an operation on a partition without an active copy is refused.
    fn refusal_of(&self, partition: PartitionId) -> Refusal {
        let shell = &self.turn.shell;
        let leads = shell.life().is_some_and(|life| shell.leader(partition) == Some(life.node));
        match leads && self.is_unread(partition) {
            true => Refusal::Unread,
            false => self.turn.elsewhere(partition),
        }
    }

    /// Returns the next operation to retry, to be handled before all queued operations of its client; the last one
    /// first.
    pub fn pop_unparked(&mut self) -> Option<Request<S::Reply>> {
        self.turn.unparked.pop()
    }

    /// Passes an input to a replica and carries out its outputs.
    pub fn step(&mut self, placement: PlacementId, input: Input) {
        if let Some(local) = self.copies.get_mut(&placement) {
            let moves = matches!(input, Input::Message(_)) && !self.turn.broken.breaks(Mutant::InspectedMoves); // rule 61
            if !(local.inspected && moves) {
                if matches!(&input, Input::Message(message) if matches!(message.body, Body::Append { .. })) {
                    self.turn.note_lag(local);
                }
                self.turn.step(local, input);
            }
            return;
        }
        // Without an answer the leader would ask again only after a while, and its clients would wait for that.
        if let Input::Message(message) = input
            && matches!(message.body, Body::Adopt { .. })
            && self.dormant.contains_key(&placement)
        {
            self.early.insert(placement, message);
        }
    }

    /// Marks a copy as damaged, for the engine's writer.
    pub fn damaged(&mut self, placement: PlacementId, why: String) {
        self.turn.damaged.push((placement, why));
    }

    /// Ends a turn: flushes every replica that was stepped, until nothing more follows.
    pub fn settle(&mut self) {
        if !self.turn.splitting.is_empty() {
            self.split();
        }
        loop {
            while let Some((placement, input)) = self.turn.followups.pop_front() {
                self.step(placement, input);
            }
            if self.turn.touched.is_empty() {
                break;
            }
            for placement in std::mem::take(&mut self.turn.touched) {
                if let Some(local) = self.copies.get_mut(&placement) {
                    self.turn.flush(local);
                }
            }
        }
        for (placement, why) in std::mem::take(&mut self.turn.unreadable) {
            self.stop_unreadable(placement, &why);
        }
        for (placement, row) in std::mem::take(&mut self.turn.unread) {
            self.stop_unread(placement, row.as_ref());
        }
        for (placement, why) in std::mem::take(&mut self.turn.damaged) {
            self.damage(placement, &why);
        }
    }

    /// Advances time. `refused` means that no write is accepted here now; `forgettings_max` bounds the entries that
    /// only drop client records, for all partitions together. Returns the number of answers that then wait for a lease.
    pub fn tick(&mut self, refused: bool, forgettings_max: usize) -> usize {
        let (mut forgettings, mut held) = (forgettings_max, 0);
        for local in self.copies.values_mut() {
            self.turn.lease(local);
            if local.replica.wants_ticks() {
                self.turn.step(local, Input::Tick);
            }
            if local.serving {
                self.turn.step(local, Input::ReadOnly(refused));
                if forgettings > 0 && self.turn.forget_clients(local) {
                    forgettings -= 1;
                }
            }
            local.learn_engine_ahead();
            local.memtable.review_windows(self.turn.now);
            self.turn.review_retention(local);
            self.turn.shell.ticked(local, self.turn.now);
            self.turn.release_held(local);
            self.turn.unpark(local);
            held += local.waiting.held();
        }
        self.release_unreadable();
        self.look_for_splits();
        held
    }

    /// Returns the number of copies that took over and have not read all client records.
    pub fn clients_to_read(&self) -> usize {
        self.turn.reading.len()
    }

    /// Reads some client records of one partition that was taken over.
    pub fn read_clients(&mut self) {
        let Some(placement) = self.turn.reading.pop_front() else { return };
        if let Some(local) = self.copies.get_mut(&placement) {
            self.turn.read_clients(local);
        }
    }

    /// Takes the completions of durable writes.
    pub fn durable(&mut self, done: Completions) {
        for (placement, token) in done.tokens {
            match self.copies.contains_key(&placement) {
                true => self.step(placement, Input::Persisted { token }),
                false => self.adopted(placement),
            }
        }
        for (placement, upto) in done.trims {
            self.turn.shell.trim(placement, upto);
            self.step(placement, Input::Trimmed { upto });
        }
        for (partition, placement) in done.deletions {
            self.deleted(partition, placement);
        }
    }

    /// Records that the engine holds everything of a copy up to `upto`, on disk.
    pub fn synced(&mut self, placement: PlacementId, upto: Seq) {
        if let Some(local) = self.copies.get_mut(&placement) {
            self.turn.synced(local, upto);
        }
    }

    /// Offers waiting rows of copies again, as the engine has room.
    pub fn offer_rows(&mut self) {
        self.copies.values_mut().for_each(|local| self.turn.offer_rows(local));
    }

    /// Takes the end of a clearing: the space is empty, unless something was written after it.
    pub fn cleared(&mut self, placement: PlacementId, clear: u64) {
        let unloading = self.unloading.get(&placement).filter(|(_, own)| *own == Some(clear));
        if let Some((partition, _)) = unloading.copied() {
            self.unloading.remove(&placement);
            self.turn.shell.delete(partition, placement);
        } else if let Some(local) = self.copies.get_mut(&placement) {
            self.turn.pull(local, clear);
        }
    }

    /// Reports that nothing is left of this copy, on disk too; the coordinators never name it again.
    fn deleted(&mut self, partition: PartitionId, placement: PlacementId) {
        let (epoch, version, commit) = (Epoch::ZERO, Version::ZERO, Seq::ZERO);
        self.turn.shell.observe(CopyLocation { partition, placement, epoch, commit }, CopyEvent::Deleted);
        self.turn.shell.report(Report { partition, placement, epoch, version, fact: Fact::Unloaded });
    }

    /// Starts a copy for a loader on another node: keeps the log from here until `guard` is dropped.
    ///
    /// # Errors
    /// The reason why it gets none.
    pub fn copy_asked(&mut self, ask: CopyAsk, guard: S::Guard) -> Result<CopyStart, CopyRefusal> {
        let local = self.copies.get_mut(&ask.source).filter(|local| local.partition == ask.partition);
        local.map_or(Err(CopyRefusal::NotHere), |local| self.turn.copy_asked(local, ask, guard))
    }

    /// Takes a page of a copy.
    pub fn copy_page(&mut self, page: CopyPage<S::Page>) {
        if let Some(local) = self.copies.get_mut(&page.placement) {
            self.turn.copy_page(local, page);
        }
    }

    /// Completes a copy: its rows are on the engine's disk, complete at `at`, and were given under this row version.
    pub fn copy_done(&mut self, placement: PlacementId, attempt: u64, at: Position, version: Version) {
        if let Some(local) = self.copies.get_mut(&placement) {
            self.turn.copy_done(local, attempt, at, version);
        }
    }

    /// Restarts a copy, as its leader no longer keeps the log from the start position.
    pub fn copy_again(&mut self, placement: PlacementId, attempt: u64) {
        if let Some(local) = self.copies.get_mut(&placement) {
            self.turn.copy_again(local, attempt);
        }
    }

    /// Ends all leaderships, as the node has registered again (PROTOCOL rule 8).
    pub fn renew(&mut self, NodeRegistration { node, incarnation }: NodeRegistration) {
        if self.turn.broken.breaks(Mutant::KeepsLeading) {
            return;
        }
        for local in self.copies.values_mut() {
            self.turn.step(local, Input::Renew { node, incarnation });
            self.turn.rest(local);
        }
    }

    /// Passes a change of the lease to the replicas.
    pub fn lease_changed(&mut self) {
        self.copies.values_mut().for_each(|local| self.turn.lease(local));
    }

    /// Withdraws leaderships that the coordinator is about to give to other copies; it need not wait for the lease to
    /// expire if they are released.
    pub fn withdrawn(&mut self, leaderships: Vec<(PartitionId, Epoch)>) {
        for (partition, epoch) in leaderships {
            self.confirm_withdrawn(partition, epoch);
            let local = match self.active.get(&partition) {
                Some(placement) => self.copies.get_mut(placement),
                // A copy that was set aside leads nothing, and has to confirm that as well.
                None => self.copies.values_mut().find(|local| local.partition == partition),
            };
            let Some(local) = local else { continue };
            self.turn.lease(local);
            self.turn.step(local, Input::Withdrawn { epoch });
        }
    }

    /// Gives up all leaderships, as the node is stopping.
    pub fn release(&mut self) {
        self.turn.releasing = true;
        for local in self.copies.values_mut() {
            let Some(epoch) = local.replica.configuration().map(|configuration| configuration.row.epoch) else {
                continue;
            };
            let to = local.placement;
            self.turn.step(local, Input::HandOver { epoch, to });
        }
    }

    /// Fails all waiting operations, as the node is stopping.
    pub fn stop(&mut self) {
        self.copies.values_mut().for_each(|local| self.turn.fail_waiting(local, Cause::Stopping));
    }

    /// Returns the number of leaderships not given up yet.
    pub fn leading(&self) -> usize {
        self.copies.values().filter(|local| local.serving).count()
    }

    /// Returns the number of copies here that leaders on other nodes wait for, although they could do without.
    pub fn counted(&self) -> usize {
        self.copies.values().filter(|local| !local.set_aside && local.view().is_spare()).count()
    }

    /// Stops a copy with untrusted data, and reports it to the coordinator.
    pub fn damage(&mut self, placement: PlacementId, why: &str) {
        let Some(mut local) = self.copies.remove(&placement) else {
            self.form_damaged(placement);
            return;
        };
        self.turn.rest(&mut local);
        self.turn.fail_waiting(&mut local, Cause::Damaged);
        self.turn.shell.stop_copy(placement);
        self.active.retain(|_, active| *active != placement);
        self.turn.shell.observe(local.at(), CopyEvent::Damaged(why));
        let report = Report {
            partition: local.partition,
            placement,
            epoch: local.replica.epoch(),
            version: local.replica.version(),
            fact: Fact::Damaged { why: why.to_owned() },
        };
        self.turn.shell.report(report);
    }

    pub(crate) fn emptied(&self) -> ResetReport {
        ResetReport::new(self.turn.broken)
    }
}

#[cfg(test)]
#[path = "partitions_tests.rs"]
mod tests;
