//! What a turn leads to: replicas stepped, what they want carried out, and what follows from that.

use crate::mutant::{Broken, Mutant};
use crate::park::Patience;
use crate::refusal::{Cause, Refusal};
use crate::request::Request;
use crate::shell::{At, Observed, Shell};
use crate::slot::{Outcome, Slot};
use crate::waiting::{Answer, Ended};
use archon_kv::{ClientIndex, Footing, PartitionView, Reader, View, ViewError, row};
use archon_replica::{Input, Output};
use archon_types::{Fact, Millis, PartitionId, PlacementId, Report, Seq};
use std::collections::VecDeque;

/// Lists of outputs that are kept to be used again: as many as carrying one out leads to further ones, and some.
const SPARE_OUTPUTS_MAX: usize = 8;

/// What all copies of a shell share, and what a turn gathers.
pub(crate) struct Turn<S: Shell> {
    pub(crate) shell: S,
    /// Local clock at the beginning of the turn.
    pub(crate) now: Millis,
    /// How long operations wait for a leadership.
    pub(crate) patience: Patience,
    pub(crate) broken: Broken,
    /// Replicas stepped since their last flush.
    pub(crate) touched: Vec<PlacementId>,
    /// Empty lists for what replicas want.
    spare_outputs: Vec<Vec<Output>>,
    /// What outputs led to.
    pub(crate) followups: VecDeque<(PlacementId, Input)>,
    /// Copies found damaged in this turn, with why.
    pub(crate) damaged: Vec<(PlacementId, String)>,
    /// Operations that waited for a leadership or its confirmation, in their order, to be looked at in the next turn.
    pub(crate) unparked: Vec<Request<S::Reply>>,
    /// Copies that were taken over, and have not read all clients that they remember.
    pub(crate) reading: VecDeque<PlacementId>,
    /// The node is stopping: every leadership is to be given up.
    pub(crate) releasing: bool,
}

impl<S: Shell> Turn<S> {
    pub(crate) const fn new(shell: S, patience: Patience, broken: Broken) -> Self {
        Self {
            shell,
            now: Millis::ZERO,
            patience,
            broken,
            touched: Vec::new(),
            spare_outputs: Vec::new(),
            followups: VecDeque::new(),
            damaged: Vec::new(),
            unparked: Vec::new(),
            reading: VecDeque::new(),
            releasing: false,
        }
    }

    /// Gives a replica an input and carries out what follows.
    pub(crate) fn step(&mut self, slot: &mut Slot<S>, input: Input) {
        self.shell.stepped(slot.placement, &input);
        let mut out = self.outputs();
        slot.replica.step(self.now, input, &mut out);
        slot.end_spoilt_copies();
        self.touch(slot);
        self.carry_out(slot, out);
    }

    /// Ends what was stepped: a replica says what it gathered for the disk and for followers.
    pub(crate) fn flush(&mut self, slot: &mut Slot<S>) {
        slot.touched = false;
        let mut out = self.outputs();
        slot.replica.flush(self.now, &mut out);
        slot.end_spoilt_copies();
        self.carry_out(slot, out);
    }

    /// Carries out what a replica wants, in order. `out` came from [`Turn::outputs`].
    pub(crate) fn carry_out(&mut self, slot: &mut Slot<S>, mut out: Vec<Output>) {
        for output in out.drain(..) {
            self.shell.wants(slot.placement, &output);
            match output {
                Output::Persist { token, records } => self.persist(slot, token, records),
                Output::Send(message) => self.shell.send(message),
                Output::Commit { upto } => self.commit(slot, upto),
                Output::Serve(true) => self.serve(slot),
                Output::Serve(false) => self.rest(slot),
                Output::Report(report) => {
                    self.shell.report(report);
                }
                Output::Abandon { tickets } => {
                    self.shell.observe(slot.at(), Observed::Abandoned(tickets.len()));
                    let ended = slot.waiting.abandon(&tickets);
                    self.tell_ended(slot, ended, Cause::Abandoned);
                }
                Output::ReadLog { read, reader, from, upto, bytes_max } => {
                    let entries = self.shell.read_log(slot.placement, from, upto, bytes_max);
                    self.followups.push_back((slot.placement, Input::LogRead { read, reader, entries }));
                }
                Output::StartCopy { copy, leader, epoch } => self.start_copy(slot, copy, leader, epoch),
                Output::StopCopy { copy } => self.stop_copy(slot, copy),
                Output::Alarm(alarm) => self.shell.observe(slot.at(), Observed::Alarm(&alarm)),
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
    pub(crate) fn outputs(&mut self) -> Vec<Output> {
        self.spare_outputs.pop().unwrap_or_default()
    }

    /// Notes that a replica was stepped, and is to be flushed before the turn ends.
    pub(crate) fn touch(&mut self, slot: &mut Slot<S>) {
        if !std::mem::replace(&mut slot.touched, true) {
            self.touched.push(slot.placement);
        }
    }

    fn commit(&mut self, slot: &mut Slot<S>, upto: Seq) {
        let after = slot.memtable.committed();
        slot.memtable.commit(upto);
        slot.gathering_since.get_or_insert(self.now);
        self.shell.observe(At { commit: upto, ..slot.at() }, Observed::Committed { after });
        while let Some(answer) = slot.waiting.committed(upto) {
            self.answer_write(slot, answer);
        }
    }

    /// Gives the answer to something committed, or keeps it while no lease covers it. Where followers hold the write as
    /// well it rests on no clock.
    pub(crate) fn answer_write(&mut self, slot: &mut Slot<S>, answer: Answer<S::Reply, Outcome>) {
        if self.footing(slot).holds() {
            self.shell.answer(slot.at(), answer.reply, slot.waiting.log_time(), answer.outcome);
        } else {
            self.shell.observe(slot.at(), Observed::Held);
            slot.waiting.hold(answer);
        }
    }

    /// Where this leader stands, now.
    pub(crate) fn footing<'a>(&'a self, slot: &'a Slot<S>) -> Footing<impl FnOnce() -> bool + 'a> {
        let settled = slot.replica.commit() >= slot.replica.last().seq;
        let alone = slot.copy().is_alone() && !self.broken.breaks(Mutant::AloneWithoutLease);
        Footing { alone, leased: move || self.may_answer(slot), settled }
    }

    /// Whether this replica serves under a lease that covers its leadership, now.
    pub(crate) fn may_answer(&self, slot: &Slot<S>) -> bool {
        slot.serving && !slot.aside && self.shell.covers(slot.partition, slot.replica.epoch(), self.shell.clock())
    }

    /// Tells a replica whether the lease covers it, if that changed.
    pub(crate) fn lease(&mut self, slot: &mut Slot<S>) {
        let covered = !slot.aside && self.shell.covers(slot.partition, slot.replica.epoch(), self.now);
        if covered != slot.covered {
            slot.covered = covered;
            self.step(slot, Input::Lease(covered));
        }
    }

    /// Gives the answers that waited for a lease, if there is one again.
    pub(crate) fn release_held(&mut self, slot: &mut Slot<S>) {
        if slot.waiting.held() == 0 || !self.may_answer(slot) {
            return;
        }
        let (at, log_time) = (slot.at(), slot.waiting.log_time());
        self.shell.observe(at, Observed::Unheld(slot.waiting.held()));
        for answer in slot.waiting.release() {
            self.shell.answer(at, answer.reply, log_time, answer.outcome);
        }
    }

    /// Why an operation is not for this node, if it is for any.
    pub(crate) fn elsewhere(&self, partition: PartitionId) -> Refusal {
        if self.shell.is_dropped(partition) { Refusal::Dropped } else { Refusal::Elsewhere }
    }

    /// What ends the wait for a copy that is here no more.
    pub(crate) fn gone(&self, partition: PartitionId, cause: Cause) -> Cause {
        if self.shell.is_dropped(partition) { Cause::Dropped } else { cause }
    }

    pub(crate) fn refuse(&mut self, slot: &Slot<S>, to: S::Reply, refusal: Refusal) {
        self.shell.refuse(slot.partition, to, slot.waiting.log_time(), refusal);
    }

    /// Tells those who waited in vain why.
    fn tell_ended(&mut self, slot: &Slot<S>, ended: Vec<(S::Reply, Ended)>, cause: Cause) {
        for (reply, ended) in ended {
            self.refuse(slot, reply, Refusal::Ended(ended, cause));
        }
    }

    /// Answers everything that waits by an error: whoever waited for a write cannot know the outcome.
    pub(crate) fn fail_waiting(&mut self, slot: &mut Slot<S>, cause: Cause) {
        self.shell.observe(slot.at(), Observed::Unheld(slot.waiting.held()));
        let ended = slot.waiting.end(|request| request.reply);
        self.tell_ended(slot, ended, cause);
    }

    fn serve(&mut self, slot: &mut Slot<S>) {
        let view = PartitionView::new(&slot.memtable, self.shell.engine(), slot.placement, Reader::Newest);
        let stamp = view.get(row::LOG_TIME_KEY);
        match stamp.and_then(|stamp| Ok(stamp.map(|row| row::decode_millis(&row)).transpose()?)) {
            Ok(stamp) => {
                // A new leader is to read whom its partition remembers, a part in each turn.
                slot.clients = ClientIndex::unread();
                self.reading.push_back(slot.placement);
                stamp.into_iter().for_each(|stamp| slot.log_time.observe(stamp));
                // A leader serves only once its whole log is committed.
                slot.waiting.serve(slot.log_time.last());
                slot.serving = true;
                self.shell.observe(slot.at(), Observed::Serving);
                self.unpark(slot);
            }
            Err(error) => self.unusable(slot, &error),
        }
    }

    pub(crate) fn rest(&mut self, slot: &mut Slot<S>) {
        if std::mem::take(&mut slot.serving) {
            self.shell.observe(slot.at(), Observed::Resting);
        }
        // Nobody reads here any more, while what follows is still written.
        self.shell.forget_rows(&mut slot.own);
        self.shell.observe(slot.at(), Observed::Unheld(slot.waiting.held()));
        let ended = slot.waiting.rest();
        self.tell_ended(slot, ended, Cause::LeaseLost);
    }

    /// The copy has thrown its data away: nobody may take it for what it was when it counted.
    pub(crate) fn report_emptied(&mut self, slot: &mut Slot<S>) {
        let Some(life) = self.shell.life() else { return };
        let (partition, placement) = (slot.partition, slot.placement);
        let (epoch, version) = (slot.replica.epoch(), slot.replica.version());
        if slot.emptied.is_due(life.incarnation, version)
            && self.shell.report(Report { partition, placement, epoch, version, fact: Fact::Emptied })
        {
            slot.emptied.said(life.incarnation, version);
            self.shell.observe(slot.at(), Observed::Emptied);
        }
    }

    /// Rows could not be read: the copy is damaged, or, if it is only the disk that refuses, the node ends and recovers.
    pub(crate) fn unusable(&mut self, slot: &Slot<S>, error: &ViewError) {
        if error.is_damage() {
            self.damaged.push((slot.placement, error.to_string()));
        } else {
            self.shell.fail(slot.at(), error);
        }
    }
}
