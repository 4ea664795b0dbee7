//! Turns: step replicas, carry out their outputs and what follows.

use crate::copies::local_copy::LocalCopy;
use crate::mutant::{DisabledRule, Mutant};
use crate::operations::park_limits::ParkLimits;
use crate::operations::refusal::{Cause, Refusal};
use crate::operations::request::{Outcome, Request};
use crate::operations::waiting_clients::{ReadyAnswer, UnansweredOutcome};
use crate::shell::{CopyEvent, CopyLocation, Shell};
use archon_kv::{ClientIndex, ExpiryIndex, Leadership, PartitionView, Reader, View, ViewError, row};
use archon_replica::{Input, Output};
use archon_types::{Fact, Millis, Partition, PartitionId, PlacementId, Report, Seq};
use std::collections::{BTreeSet, VecDeque};

/// Spare lists of outputs: one per level of nesting in [`Turn::carry_out`], and some more.
const SPARE_OUTPUTS_MAX: usize = 8;

/// State shared by all copies of a shell, and gathered by a turn.
pub(crate) struct Turn<S: Shell> {
    pub(crate) shell: S,
    /// Local clock at the beginning of the turn.
    pub(crate) now: Millis,
    /// Bounds on parked operations.
    pub(crate) park_limits: ParkLimits,
    pub(crate) broken: DisabledRule,
    /// Replicas stepped since their last flush.
    pub(crate) touched: Vec<PlacementId>,
    /// Empty lists for outputs.
    spare_outputs: Vec<Vec<Output>>,
    /// Inputs that follow from outputs.
    pub(crate) followups: VecDeque<(PlacementId, Input)>,
    /// Copies found damaged in this turn, with the reason.
    pub(crate) damaged: Vec<(PlacementId, String)>,
    /// Copies with an entry that this version cannot read, found in this turn, with the reason.
    pub(crate) unreadable: Vec<(PlacementId, String)>,
    /// Copies with rows that the engine refused to read in this turn, with the row that the replica did not get for that
    /// reason.
    pub(crate) unread: Vec<(PlacementId, Option<Partition>)>,
    /// Operations that waited for a leadership or its confirmation, in order, to be retried in the next turn.
    pub(crate) unparked: Vec<Request<S::Reply>>,
    /// Copies that took over and have not read all client records.
    pub(crate) reading: VecDeque<PlacementId>,
    /// Copies of partitions that are being split or merged, according to the row or the log.
    pub(crate) splitting: BTreeSet<PlacementId>,
    /// The node is stopping: every leadership is given up.
    pub(crate) releasing: bool,
}

impl<S: Shell> Turn<S> {
    pub(crate) const fn new(shell: S, park_limits: ParkLimits, broken: DisabledRule) -> Self {
        Self {
            shell,
            now: Millis::ZERO,
            park_limits,
            broken,
            touched: Vec::new(),
            spare_outputs: Vec::new(),
            followups: VecDeque::new(),
            damaged: Vec::new(),
            unreadable: Vec::new(),
            unread: Vec::new(),
            unparked: Vec::new(),
            reading: VecDeque::new(),
            splitting: BTreeSet::new(),
            releasing: false,
        }
    }

    /// Passes an input to a replica and carries out its outputs.
    pub(crate) fn step(&mut self, local: &mut LocalCopy<S>, input: Input) {
        self.shell.stepped(local.placement, &input);
        let mut out = self.outputs();
        local.replica.step(self.now, input, &mut out);
        local.end_spoilt_copies();
        self.touch(local);
        self.carry_out(local, out);
    }

    /// Flushes a stepped replica: it emits what it gathered for the disk and for followers.
    pub(crate) fn flush(&mut self, local: &mut LocalCopy<S>) {
        local.touched = false;
        let mut out = self.outputs();
        local.replica.flush(self.now, &mut out);
        local.end_spoilt_copies();
        self.carry_out(local, out);
    }

    /// Carries out the outputs of a replica, in order. `out` came from [`Turn::outputs`].
    pub(crate) fn carry_out(&mut self, local: &mut LocalCopy<S>, mut out: Vec<Output>) {
        for output in out.drain(..) {
            self.shell.wants(local.placement, &output);
            match output {
                Output::Persist { token, records } => self.persist(local, token, records),
                Output::Send(message) => self.shell.send(message),
                Output::Commit { upto } => self.commit(local, upto),
                Output::Serve(true) => self.serve(local),
                Output::Serve(false) => self.rest(local),
                // A copy that could not read its seal does not serve, although its replica leads.
                Output::Report(Report { fact: Fact::Online, .. }) if self.is_stopping(local.placement) => {}
                Output::Report(report) => {
                    self.shell.report(report);
                }
                Output::Abandon { tickets } => {
                    self.shell.observe(local.at(), CopyEvent::Abandoned(tickets.len()));
                    let ended = local.waiting.abandon(&tickets);
                    self.notify_ended(local, ended, Cause::Abandoned);
                }
                Output::ReadLog { read, reader, from, upto, bytes_max } => {
                    let entries = self.shell.read_log(local.placement, from, upto, bytes_max);
                    self.followups.push_back((local.placement, Input::LogRead { read, reader, entries }));
                }
                Output::StartCopy { copy, leader, epoch } => self.start_copy(local, copy, leader, epoch),
                Output::StopCopy { copy } => self.stop_copy(local, copy),
                Output::Alarm(alarm) => self.shell.observe(local.at(), CopyEvent::Alarm(&alarm)),
                Output::ConfirmDone { tickets, ok } => self.confirmed(local, &tickets, ok),
                // The operation that proposed handles these itself.
                Output::Accepted { .. } | Output::Refuse { .. } => {}
            }
        }
        if self.spare_outputs.len() < SPARE_OUTPUTS_MAX {
            self.spare_outputs.push(out);
        }
    }

    /// Returns an empty list for outputs. Lists are reused, as each operation steps replicas several times.
    pub(crate) fn outputs(&mut self) -> Vec<Output> {
        self.spare_outputs.pop().unwrap_or_default()
    }

    /// Marks a replica as stepped, to be flushed before the turn ends.
    pub(crate) fn touch(&mut self, local: &mut LocalCopy<S>) {
        if !std::mem::replace(&mut local.touched, true) {
            self.touched.push(local.placement);
        }
    }

    fn commit(&mut self, local: &mut LocalCopy<S>, upto: Seq) {
        let after = local.memtable.committed();
        local.memtable.commit(upto);
        local.gathering_since.get_or_insert(self.now);
        self.shell.observe(CopyLocation { commit: upto, ..local.at() }, CopyEvent::Committed { after });
        while let Some(answer) = local.waiting.committed(upto) {
            self.answer_write(local, answer);
        }
        self.look_up_again(local, upto);
    }

    /// Retries reads in the next turn that waited for a position up to `upto`.
    fn look_up_again(&mut self, local: &mut LocalCopy<S>, upto: Seq) {
        self.unparked.extend(std::iter::from_fn(|| local.waiting.look_up_again(upto)));
    }

    /// Sends the answer to a committed operation, or holds it while no lease covers it. If followers hold the write as
    /// well, the answer depends on no clock.
    pub(crate) fn answer_write(&mut self, local: &mut LocalCopy<S>, answer: ReadyAnswer<S::Reply, Outcome>) {
        if self.leadership(local).holds() {
            self.shell.answer(local.at(), answer.reply, local.waiting.log_time(), answer.outcome);
        } else {
            self.shell.observe(local.at(), CopyEvent::Held);
            local.waiting.hold(answer);
        }
    }

    /// Returns the present basis of this copy's leadership.
    pub(crate) fn leadership<'a>(&'a self, local: &'a LocalCopy<S>) -> Leadership<impl FnOnce() -> bool + 'a> {
        let settled = local.replica.commit() >= local.replica.last().seq;
        let alone = local.view().is_alone() && !self.broken.breaks(Mutant::AloneWithoutLease);
        Leadership { alone, leased: move || self.may_answer(local), settled }
    }

    /// Returns whether this replica serves under a lease that covers its leadership, now.
    pub(crate) fn may_answer(&self, local: &LocalCopy<S>) -> bool {
        local.serving
            && !local.set_aside
            && self.shell.covers(local.partition, local.replica.epoch(), self.shell.clock())
    }

    /// Passes a change of the lease coverage to a replica.
    pub(crate) fn lease(&mut self, local: &mut LocalCopy<S>) {
        let covered = !local.set_aside && self.shell.covers(local.partition, local.replica.epoch(), self.now);
        if covered != local.covered {
            local.covered = covered;
            self.step(local, Input::Lease(covered));
        }
    }

    /// Sends the answers that waited for a lease, if there is one again.
    pub(crate) fn release_held(&mut self, local: &mut LocalCopy<S>) {
        if local.waiting.held() == 0 || !self.may_answer(local) {
            return;
        }
        let (at, log_time) = (local.at(), local.waiting.log_time());
        self.shell.observe(at, CopyEvent::Unheld(local.waiting.held()));
        for answer in local.waiting.release() {
            self.shell.answer(at, answer.reply, log_time, answer.outcome);
        }
    }

    /// Returns the reason why an operation is not for this node.
    pub(crate) fn elsewhere(&self, partition: PartitionId) -> Refusal {
        if self.shell.is_dropped(partition) { Refusal::Dropped } else { Refusal::Elsewhere }
    }

    /// Returns the cause for operations on a copy that is gone.
    pub(crate) fn gone(&self, partition: PartitionId, cause: Cause) -> Cause {
        if self.shell.is_dropped(partition) { Cause::Dropped } else { cause }
    }

    pub(crate) fn refuse(&mut self, local: &LocalCopy<S>, to: S::Reply, refusal: Refusal) {
        self.shell.refuse(local.partition, to, local.waiting.log_time(), refusal);
    }

    /// Sends the outcome to operations that no longer wait.
    fn notify_ended(&mut self, local: &LocalCopy<S>, ended: Vec<(S::Reply, UnansweredOutcome)>, cause: Cause) {
        for (reply, ended) in ended {
            self.refuse(local, reply, Refusal::Ended(ended, cause));
        }
    }

    /// Fails all waiting operations: the outcome of waiting writes is unknown.
    pub(crate) fn fail_waiting(&mut self, local: &mut LocalCopy<S>, cause: Cause) {
        self.shell.observe(local.at(), CopyEvent::Unheld(local.waiting.held()));
        let ended = local.waiting.end(|request| request.reply);
        self.notify_ended(local, ended, cause);
    }

    fn serve(&mut self, local: &mut LocalCopy<S>) {
        let view = PartitionView::new(&local.memtable, self.shell.engine(), local.placement, Reader::Newest);
        let stamp = view.get(row::LOG_TIME_KEY);
        let stamp = stamp.and_then(|stamp| Ok(stamp.map(|row| row::decode_millis(&row)).transpose()?));
        // Without its seal and its merge record a leader would serve keys that its log gave away, so it serves only
        // once all of them were read (PROTOCOL rule 35).
        match stamp.and_then(|stamp| self.read_seal(local).map(|()| stamp)) {
            Ok(stamp) => {
                // A new leader reads its client records, some in each turn.
                local.clients = ClientIndex::unread();
                local.expiry = ExpiryIndex::default();
                self.reading.push_back(local.placement);
                stamp.into_iter().for_each(|stamp| local.log_time.observe(stamp));
                // A leader serves only once its whole log is committed.
                local.waiting.serve(local.log_time.last());
                local.serving = true;
                self.shell.observe(local.at(), CopyEvent::Serving);
                self.unpark(local);
            }
            Err(error) => self.unusable(local, &error),
        }
    }

    pub(crate) fn rest(&mut self, local: &mut LocalCopy<S>) {
        local.split.rest();
        local.absorb.rest();
        local.expiry = ExpiryIndex::default();
        if std::mem::take(&mut local.serving) {
            self.shell.observe(local.at(), CopyEvent::Resting);
        }
        // The copy serves no reads here from now on, while writes to the engine continue.
        self.shell.forget_rows(&mut local.own);
        self.shell.observe(local.at(), CopyEvent::Unheld(local.waiting.held()));
        // The next leader may answer them.
        self.look_up_again(local, Seq::new(u64::MAX));
        let ended = local.waiting.rest();
        self.notify_ended(local, ended, Cause::LeaseLost);
    }

    /// Reports a fact about this copy to the coordinators, as of its row. Returns whether there was room; otherwise the
    /// caller has to report it again.
    pub(crate) fn report(&mut self, local: &LocalCopy<S>, fact: Fact) -> bool {
        let (partition, placement) = (local.partition, local.placement);
        let (epoch, version) = (local.replica.epoch(), local.replica.version());
        self.shell.report(Report { partition, placement, epoch, version, fact })
    }

    /// Reports that the copy was reset, so that it no longer counts as in sync.
    pub(crate) fn report_emptied(&mut self, local: &mut LocalCopy<S>) {
        let Some(life) = self.shell.life() else { return };
        let version = local.replica.version();
        if local.emptied.is_due(life.incarnation, version) && self.report(local, Fact::Emptied) {
            local.emptied.said(life.incarnation, version);
            self.shell.observe(local.at(), CopyEvent::Emptied);
        }
    }

    /// Returns whether a copy stops at the end of the turn, because its rows could not be read.
    fn is_stopping(&self, placement: PlacementId) -> bool {
        self.unread.iter().any(|(stopping, _)| *stopping == placement)
            || self.damaged.iter().any(|(stopping, _)| *stopping == placement)
    }

    /// Handles rows that could not be read. The copy is damaged, or, if only the engine refuses, it serves nothing from
    /// the end of the turn on.
    pub(crate) fn unusable(&mut self, local: &LocalCopy<S>, error: &ViewError) {
        self.unusable_with(local, error, None);
    }

    /// As [`Turn::unusable`], with the row that the replica does not get for that reason.
    pub(crate) fn unusable_with(&mut self, local: &LocalCopy<S>, error: &ViewError, row: Option<Partition>) {
        if error.is_damage() {
            self.damaged.push((local.placement, error.to_string()));
        } else {
            self.unread.push((local.placement, row));
            self.shell.fail(local.at(), error);
        }
    }
}
