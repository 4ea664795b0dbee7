//! Carrying out what replicas want, and taking in what the flusher tells.

use super::slot::Slot;
use super::{Env, Shard};
use crate::flusher::{FlushEvent, FlusherError};
use crate::reply::{Outcome, ReplyTo};
use crate::store;
use archon_host::{Answer, Ended, HeldState, RetentionLimits};
use archon_kv::{Effect, Footing, PartitionView, Reader, View, row};
use archon_replica::{Input, Output, Record};
use archon_types::{ErrorDetail, ErrorKind, Fact, PartitionId, PlacementId, Report, Seq};

/// How long committed rows gather at most before they are given to the flusher: whatever is overwritten meanwhile costs the
/// engine nothing. A restart replays about as much of the log.
const GATHER_MS: u64 = 15_000;
/// How long they gather if they are few.
const GATHER_MIN_MS: u64 = 2_000;
/// Bytes of a partition's committed rows up to which they gather no longer than that: so few cost little.
const GATHER_FEW_BYTES: usize = 64 * 1024;
/// Bytes of a partition's committed rows after which they do not wait any longer.
const GATHER_ROWS_BYTES: usize = 8 * 1024 * 1024;
/// Bytes of log whose effects gather at most, all partitions of the node together.
const GATHER_LOG_BYTES: u64 = 256 * 1024 * 1024;
/// Steps by which partitions differ in how long they gather, from the whole time down to about half: otherwise those that
/// began together, as after a start, would all come to the engine at the same moment, again and again, and let clients wait
/// for the disk.
const GATHER_STEPS: u64 = 32;

/// Lists of outputs that are kept to be used again: as many as carrying one out leads to further ones, and some.
const SPARE_OUTPUTS_MAX: usize = 8;

impl Env {
    /// Carries out what a replica wants, in order. `out` came from [`Env::outputs`].
    pub(super) fn carry_out(&mut self, slot: &mut Slot, mut out: Vec<Output>) {
        for output in out.drain(..) {
            match output {
                Output::Persist { token, records } => self.persist(slot, token, records),
                Output::Send(message) => self.outgoing.entry(message.to.node).or_default().push(&message),
                Output::Commit { upto } => self.commit(slot, upto),
                Output::Serve(true) => self.serve(slot),
                Output::Serve(false) => self.rest(slot),
                Output::Report(report) => {
                    self.report(report);
                }
                Output::Abandon { tickets } => {
                    let why = "the leadership ended before the write was committed; its outcome is unknown";
                    let ended = slot.waiting.abandon(&tickets);
                    self.tell_ended(slot, ended, why, &changing());
                }
                Output::ReadLog { read, reader, from, upto, bytes_max } => {
                    let entries = self.read_log(slot, from, upto, bytes_max);
                    self.followups.push_back((slot.placement, Input::LogRead { read, reader, entries }));
                }
                Output::StartCopy { copy, leader, epoch } => self.start_copy(slot, copy, leader, epoch),
                Output::StopCopy { copy } => self.stop_copy(slot, copy),
                Output::Alarm(alarm) => {
                    self.context.shared.metrics.alarms.add(1);
                    tracing::error!(partition = %slot.partition, placement = %slot.placement, %alarm, "alarm");
                }
                Output::ConfirmDone { tickets, ok } => self.confirmed(slot, &tickets, ok),
                // The operation that proposed looks at these itself.
                Output::Accepted { .. } | Output::Refuse { .. } => {}
            }
        }
        if self.spare_outputs.len() < SPARE_OUTPUTS_MAX {
            self.spare_outputs.push(out);
        }
    }

    /// An empty list for a replica's outputs: replicas are stepped several times for each operation, and their lists are
    /// used again.
    pub(super) fn outputs(&mut self) -> Vec<Output> {
        self.spare_outputs.pop().unwrap_or_default()
    }

    /// Notes that a replica was stepped, and is to be flushed before the turn ends.
    pub(super) fn touch(&mut self, slot: &mut Slot) {
        if !std::mem::replace(&mut slot.touched, true) {
            self.touched.push(slot.placement);
        }
    }

    fn persist(&mut self, slot: &mut Slot, token: u64, records: Vec<Record>) {
        let placement = slot.placement;
        for record in records {
            match record {
                Record::Epoch(epoch) => {
                    self.journal.has_epoch = true;
                    store::put_epoch(&mut self.journal.batch, placement, epoch);
                }
                Record::Entries(entries) => {
                    self.journal.has_data = true;
                    for entry in &entries {
                        store::put_entry(&mut self.journal.batch, placement, entry);
                        slot.retention.logged(entry.bytes.len() as u64 + 64);
                        // A leader's own effects are in the window since they were accepted.
                        if entry.at.seq > slot.recent.last()
                            && let Err(why) = take_in(slot, entry.at.seq, &entry.bytes)
                        {
                            self.damaged.push((placement, why));
                        }
                    }
                }
                Record::Cut { after } => {
                    self.journal.batch.cut(store::stream(placement), after.get());
                    if let Err(error) = slot.recent.truncate(after) {
                        self.damaged.push((placement, error.to_string()));
                    }
                }
                Record::Reset { base } => {
                    let batch = &mut self.journal.batch;
                    batch.drop_stream(store::stream(placement));
                    store::put_partition(batch, placement, slot.partition);
                    store::put_epoch(batch, placement, slot.replica.epoch());
                    store::put_position(batch, placement, store::META_BASE, base);
                    store::put_position(batch, placement, store::META_COMPLETE, base);
                    slot.restart(base, self.context.budget.clone());
                    if slot.emptied.begins_after(base) {
                        self.report_emptied(slot);
                    }
                }
            }
        }
        self.journal.completes.tokens.push((placement, token));
    }

    fn commit(&mut self, slot: &mut Slot, upto: Seq) {
        let before = slot.recent.committed();
        slot.recent.commit(upto);
        slot.gathering_since.get_or_insert(self.now);
        self.context.shared.metrics.commits.add(upto.get().saturating_sub(before.get()));
        while let Some(answer) = slot.waiting.committed(upto) {
            self.answer_write(slot, answer);
        }
    }

    /// Gives the answer to something committed, or keeps it while no lease covers it. Where followers hold the write as
    /// well it rests on no clock.
    pub(super) fn answer_write(&mut self, slot: &mut Slot, answer: Answer<ReplyTo, Outcome>) {
        if self.footing(slot).holds() {
            self.replies.add(answer.reply, slot.waiting.log_time(), answer.outcome);
        } else {
            self.context.shared.metrics.replies_held.add(1);
            slot.waiting.hold(answer);
        }
    }

    /// Where this leader stands, now.
    pub(super) fn footing(&self, slot: &Slot) -> Footing<impl FnOnce() -> bool> {
        let settled = slot.replica.commit() >= slot.replica.last().seq;
        Footing { alone: slot.copy().is_alone(), leased: move || self.may_answer(slot), settled }
    }

    /// Whether this replica serves under a lease that covers its leadership, now.
    pub(super) fn may_answer(&self, slot: &Slot) -> bool {
        let now = self.context.shared.clock.now();
        slot.serving && !slot.aside && self.grants.covers(slot.partition, slot.replica.epoch(), now)
    }

    /// Gives the answers that waited for a lease, if there is one again.
    pub(super) fn release_held(&mut self, slot: &mut Slot) {
        if slot.waiting.held() == 0 || !self.may_answer(slot) {
            return;
        }
        let log_time = slot.waiting.log_time();
        self.context.shared.metrics.replies_held.subtract(slot.waiting.held() as u64);
        for answer in slot.waiting.release() {
            self.replies.add(answer.reply, log_time, answer.outcome);
        }
    }

    /// Tells those who waited in vain why: `unknown` where the outcome is unknown, `nothing` where nothing was changed.
    fn tell_ended(&mut self, slot: &Slot, ended: Vec<(ReplyTo, Ended)>, unknown: &str, nothing: &ErrorDetail) {
        for (reply, ended) in ended {
            let detail = match ended {
                Ended::Unknown => ErrorDetail::new(ErrorKind::DeadlineExceeded, unknown),
                Ended::ChangedNothing => nothing.clone(),
            };
            self.replies.add(reply, slot.waiting.log_time(), Err(detail));
        }
    }

    /// Answers everything that waits by an error: whoever waited for a write cannot know the outcome.
    pub(super) fn fail_waiting(&mut self, slot: &mut Slot, why: &ErrorDetail) {
        self.context.shared.metrics.replies_held.subtract(slot.waiting.held() as u64);
        let ended = slot.waiting.end(|request| request.reply);
        self.tell_ended(slot, ended, &format!("the outcome is unknown: {}", why.message), why);
    }

    fn serve(&mut self, slot: &mut Slot) {
        let view = PartitionView::new(&slot.recent, &*self.context.engine, slot.placement, Reader::Newest);
        let stamp = view.get(row::LOG_TIME_KEY);
        match stamp.and_then(|stamp| Ok(stamp.map(|row| row::decode_millis(&row)).transpose()?)) {
            Ok(stamp) => {
                self.begin_reading(slot);
                stamp.into_iter().for_each(|stamp| slot.log_time.observe(stamp));
                // A leader serves only once its whole log is committed.
                slot.waiting.serve(slot.log_time.last());
                if !slot.serving {
                    self.context.shared.metrics.partitions_led.add(1);
                }
                slot.serving = true;
                self.unpark(slot);
                tracing::info!(partition = %slot.partition, placement = %slot.placement, epoch = %slot.replica.epoch(), "serving");
            }
            Err(error) => self.unusable(slot, &error),
        }
    }

    pub(super) fn rest(&mut self, slot: &mut Slot) {
        if slot.serving {
            self.context.shared.metrics.partitions_led.subtract(1);
            tracing::info!(partition = %slot.partition, placement = %slot.placement, epoch = %slot.replica.epoch(), "no longer serving");
        }
        slot.serving = false;
        // Nobody reads here any more, while what follows is still written.
        slot.cache.clear();
        let why = "the leadership ended while the answer waited for a lease; the outcome is unknown";
        self.context.shared.metrics.replies_held.subtract(slot.waiting.held() as u64);
        let ended = slot.waiting.rest();
        self.tell_ended(slot, ended, why, &changing());
    }

    /// Queues a report. Returns whether there was room for it.
    pub(super) fn report(&self, report: Report) -> bool {
        let taken = self.context.shared.reports.put(report);
        if !taken {
            tracing::debug!("too many reports wait; what matters is repeated");
        }
        taken
    }

    /// The copy has thrown its data away: nobody may take it for what it was when it counted.
    pub(super) fn report_emptied(&self, slot: &mut Slot) {
        let Some(life) = self.context.shared.life() else { return };
        let (partition, placement) = (slot.partition, slot.placement);
        let (epoch, version) = (slot.replica.epoch(), slot.replica.version());
        let incarnation = life.member.incarnation;
        if slot.emptied.is_due(incarnation, version)
            && self.report(Report { partition, placement, epoch, version, fact: Fact::Emptied })
        {
            slot.emptied.said(incarnation, version);
        }
    }

    fn read_log(&self, slot: &Slot, from: Seq, upto: Seq, bytes_max: usize) -> Vec<archon_replica::Entry> {
        let records = match self.context.wal.read(store::stream(slot.placement), from.get(), bytes_max) {
            Ok(records) => records,
            Err(error) => {
                tracing::debug!(partition = %slot.partition, %from, %error, "log entries are no longer there");
                return Vec::new();
            }
        };
        let wanted = records.into_iter().take_while(|record| record.seq <= upto.get());
        // A malformed record ends the list: the reader then falls back to a copy.
        wanted.map_while(|record| store::read_entry(record.seq, &record.data).ok()).collect()
    }

    /// Tells a replica whether the lease covers it, if that changed.
    pub(super) fn lease(&mut self, slot: &mut Slot) {
        let covered = !slot.aside && self.grants.covers(slot.partition, slot.replica.epoch(), self.now);
        if covered != slot.covered {
            slot.covered = covered;
            self.step(slot, Input::Lease(covered));
        }
    }

    /// Gives the flusher the rows that were committed since the last time, if they have gathered for long enough, one such
    /// list at a time and as far as it has room.
    pub(super) fn hand_to_flusher(&mut self, slot: &mut Slot) {
        if slot.recent.frozen().is_none() && self.has_gathered(slot) {
            slot.freeze();
        }
        let Some(frozen) = slot.recent.frozen() else { return };
        if slot.flushing >= frozen.upto {
            return; // it is on its way
        }
        if !self.context.flusher.has_room(frozen.bytes()) {
            return;
        }
        match self.context.flusher.apply(slot.placement, frozen.upto, frozen.clone()) {
            Ok(()) => slot.flushing = frozen.upto,
            Err((FlusherError::Full { .. } | FlusherError::Clearing { .. }, _)) => {}
            Err((error, _)) => tracing::debug!(%error, "nothing more is flushed"),
        }
    }

    fn has_gathered(&self, slot: &Slot) -> bool {
        let Some(since) = slot.gathering_since else { return false };
        let partitions = u64::try_from(self.context.holdings.len().max(1)).unwrap_or(u64::MAX);
        let step = slot.placement.get() % GATHER_STEPS;
        let log_bytes_max = staggered(GATHER_LOG_BYTES / partitions, step).max(64 * 1024);
        let few = slot.recent.rows_bytes() <= GATHER_FEW_BYTES;
        self.now.since(since) >= if few { GATHER_MIN_MS } else { staggered(GATHER_MS, step) }
            || slot.recent.rows_bytes() >= GATHER_ROWS_BYTES
            || slot.retention.logged_bytes() - slot.gathered_from >= log_bytes_max
            || self.context.budget.is_half_full()
            // What the engine holds frees the log.
            || self.journal.is_refused()
    }

    fn synced(&mut self, slot: &mut Slot, upto: Seq) {
        let Some(complete) = slot.replica.position_at(upto.min(slot.recent.committed())) else { return };
        let limits = RetentionLimits::of_node(self.context.holdings.len());
        let noted = slot.retention.completed(slot.placement, &slot.replica, complete, limits);
        let Some(base) = noted else { return };
        store::put_position(&mut self.journal.batch, slot.placement, store::META_COMPLETE, complete);
        if let Some(base) = base {
            // The mark is durable before anything is forgotten, so that recovery knows where the log begins.
            store::put_position(&mut self.journal.batch, slot.placement, store::META_BASE, base);
            self.journal.completes.trims.push((slot.placement, base.seq));
        }
    }
}

/// What those are told who may ask again.
fn changing() -> ErrorDetail {
    ErrorDetail::new(ErrorKind::Unavailable, "the leadership of the partition is changing")
}

/// The whole of it for step 0, down to about half for the last, which is [`GATHER_STEPS`]` - 1`.
const fn staggered(whole: u64, step: u64) -> u64 {
    whole - whole / (2 * GATHER_STEPS) * step
}

/// Puts a follower's entry into the window of effects to apply.
fn take_in(slot: &mut Slot, seq: Seq, entry: &bytes::Bytes) -> Result<(), String> {
    // Its own memory: a row would else keep all that was received with it, other partitions' entries included, as long as
    // the row stays in the window, and no budget would know.
    let entry = bytes::Bytes::copy_from_slice(entry);
    let effect = Effect::decode(&entry).map_err(|error| error.to_string())?;
    slot.log_time.observe(effect.at);
    slot.recent.push(seq, effect).map_err(|error| error.to_string())
}

impl Shard {
    pub(super) fn flushed(&mut self, partition: PartitionId, event: FlushEvent) {
        match event {
            FlushEvent::Written { space, upto } => {
                if let Some(slot) = self.slots.get_mut(&space) {
                    if let Some(frozen) = slot.recent.frozen().filter(|frozen| frozen.upto <= upto) {
                        slot.cache.written(frozen.values(), self.env.cache_bytes_max());
                    }
                    if let Some(frozen) = slot.recent.flushed(upto) {
                        self.env.context.flusher.let_go(frozen);
                    }
                    self.env.hand_to_flusher(slot);
                }
            }
            FlushEvent::Synced { space, upto } => {
                if let Some(slot) = self.slots.get_mut(&space) {
                    self.env.synced(slot, upto);
                }
            }
            FlushEvent::Room => {
                for slot in self.slots.values_mut() {
                    self.env.offer_rows(slot);
                    self.env.hand_to_flusher(slot);
                }
            }
            FlushEvent::Cleared { space, clear } => self.cleared(partition, space, clear),
            FlushEvent::Failed(error) => {
                tracing::error!(%error, "the engine has failed; the node stops and recovers from the log at its next start");
                self.env.context.shared.fail();
            }
        }
    }

    /// A placement's data cannot be trusted: it is not served any more, and the coordinator hears of it.
    pub(super) fn damage(&mut self, placement: PlacementId, why: String) {
        let Some(mut slot) = self.slots.remove(&placement) else { return };
        tracing::error!(partition = %slot.partition, %placement, why, "placement damaged");
        let env = &mut self.env;
        env.context.shared.metrics.alarms.add(1);
        env.rest(&mut slot);
        env.fail_waiting(&mut slot, &ErrorDetail::new(ErrorKind::Unavailable, "the replica is damaged"));
        env.context.copies.stop(placement);
        env.context.holdings.set(placement, slot.partition, HeldState::Damaged);
        self.active.retain(|_, active| *active != placement);
        let report = Report {
            partition: slot.partition,
            placement,
            epoch: slot.replica.epoch(),
            version: slot.replica.version(),
            fact: Fact::Damaged { why },
        };
        self.env.report(report);
    }
}
