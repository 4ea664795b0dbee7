//! What a replica wants done, done.

use super::disk::Write;
use super::process::Process;
use super::slot::{Outcome, Slot};
use super::start::take_in;
use crate::check::Violation;
use crate::client::ReplyTo;
use crate::event::{Event, Sideways};
use crate::network::End;
use crate::world::World;
use archon_host::{Answer, Ended, RetentionLimits};
use archon_kv::{ClientIndex, PartitionView, Reader, View, row};
use archon_replica::{Body, Input, Message, Output, Position, Record};
use archon_types::{ErrorKind, Fact, PlacementId, Report, Seq};

impl World {
    pub(crate) fn carry_out(&mut self, host: usize, placement: PlacementId, out: Vec<Output>) {
        for output in out {
            self.trace.note(self.truth, || format!("host {host} {placement:?}   -> {output:?}"));
            match output {
                Output::Persist { token, records } => self.persist(host, placement, token, records),
                Output::Send(message) => self.send_replica(host, message),
                Output::Commit { upto } => self.on_commit(host, placement, upto),
                Output::Serve(true) => self.serve(host, placement),
                Output::Serve(false) => self.rest(host, placement),
                Output::Report(report) => self.queue_report(host, report),
                Output::Abandon { tickets } => {
                    self.coverage.abandoned += tickets.len() as u64;
                    let ended = self.slot_mut(host, placement).map(|slot| slot.waiting.abandon(&tickets));
                    self.tell_ended(host, placement, ended, ErrorKind::Unavailable);
                }
                Output::ReadLog { read, reader, from, upto, .. } => {
                    let stream = self.hosts[host].disk.streams.get(&placement);
                    let entries = stream.map_or_else(Vec::new, |stream| {
                        let numbers = (from.get()..=upto.get()).take(3);
                        numbers.map_while(|seq| stream.entry(Seq::new(seq)).cloned()).collect()
                    });
                    if let Some(process) = &mut self.hosts[host].process {
                        process.followups.push_back((placement, Input::LogRead { read, reader, entries }));
                    }
                }
                Output::StartCopy { copy, leader, epoch } => self.start_copy(host, placement, copy, (leader, epoch)),
                Output::StopCopy { copy } => self.stop_copy(host, placement, copy),
                Output::ConfirmDone { tickets, ok } => self.confirmed(host, placement, &tickets, ok),
                Output::Alarm(alarm) => {
                    // Only lost storage may make two copies disagree about what is committed.
                    let partition = self.slot(host, placement).map(|slot| slot.partition);
                    if !partition.is_some_and(|partition| self.checks.harm.reached(partition)) {
                        self.judge(Err(Violation::Prefix { detail: alarm.to_string() }));
                    }
                }
                Output::Accepted { .. } | Output::Refuse { .. } => {}
            }
        }
    }

    fn send_replica(&mut self, host: usize, message: Message) {
        if matches!(message.body, Body::Ack { .. } | Body::Adopted { .. }) {
            let checked = self.checks.epochs(message.partition).persisted(message.from.placement, message.epoch);
            self.judge(checked.map_err(Violation::from));
        }
        let node = message.to.node;
        let address = self.quorum.state.node(node).map(|row| row.node.address.clone());
        let Some(to) = address.and_then(|address| crate::coordinator::host_of(&address)) else { return };
        let message = Box::new(Sideways::Replica(message));
        self.send(End::Host(host), End::Host(to), Event::Sideways { host: to, message });
    }

    fn persist(&mut self, host: usize, placement: PlacementId, token: u64, records: Vec<Record>) {
        let Some(process) = &mut self.hosts[host].process else { return };
        let Some(slot) = process.slots.get_mut(&placement) else { return };
        let writes = &mut process.journal.gathered.writes;
        let (mut damage, mut emptied) = (None, false);
        for record in records {
            match &record {
                Record::Epoch(_) => {}
                Record::Entries(entries) => {
                    for entry in entries {
                        // A leader's own effects are in the window since they were accepted.
                        if entry.at.seq > slot.recent.last() {
                            if let Err(why) = take_in(slot, entry) {
                                damage = Some(why);
                            }
                        } else {
                            slot.log.push_back(entry.clone());
                        }
                        slot.retention.logged(entry.bytes.len() as u64);
                    }
                }
                Record::Cut { after } => {
                    self.coverage.cuts += 1;
                    while slot.log.back().is_some_and(|entry| entry.at.seq > *after) {
                        slot.log.pop_back();
                    }
                    if let Err(error) = slot.recent.truncate(*after) {
                        damage = Some(error.to_string());
                    }
                }
                Record::Reset { base } => {
                    slot.restart(*base);
                    if *base == Position::ZERO {
                        // It may have counted in between, and is emptied once more.
                        slot.emptied.again();
                        emptied = true;
                    }
                }
            }
            writes.push(Write::Record(placement, record));
        }
        process.journal.gathered.tokens.push((placement, token));
        if emptied {
            self.report_emptied(host, placement);
        }
        if let Some(why) = damage {
            self.judge(Err(Violation::Prefix { detail: format!("host {host} {placement:?}: {why}") }));
        }
    }

    fn on_commit(&mut self, host: usize, placement: PlacementId, upto: Seq) {
        let Some(process) = &mut self.hosts[host].process else { return };
        let Some(slot) = process.slots.get_mut(&placement) else { return };
        let mut from = slot.recent.committed();
        slot.recent.commit(upto);
        while from < upto {
            let Some(next) = from.next() else { break };
            from = next;
            let Some(entry) = slot.entry(next) else { continue };
            let epoch = slot.replica.epoch();
            let checked = self.checks.commit(slot.partition, epoch, placement, entry);
            if let Err(violation) = checked {
                return self.judge(Err(violation));
            }
        }
        let Some(process) = &mut self.hosts[host].process else { return };
        let Some(slot) = process.slots.get_mut(&placement) else { return };
        let answers: Vec<_> = std::iter::from_fn(|| slot.waiting.committed(upto)).collect();
        for answer in answers {
            self.answer_write(host, placement, answer);
        }
    }

    /// Gives the answer to something committed, or keeps it while no lease covers it. Where followers hold the write as
    /// well it rests on no clock.
    pub(crate) fn answer_write(&mut self, host: usize, placement: PlacementId, answer: Answer<ReplyTo, Outcome>) {
        let Some(slot) = self.slot(host, placement) else { return };
        if self.footing(host, slot).holds() {
            self.coverage.writes += 1;
            self.acknowledge(host, placement);
            self.reply(host, placement, answer.reply, answer.outcome);
        } else {
            self.coverage.answers_held += 1;
            let Some(slot) = self.slot_mut(host, placement) else { return };
            slot.waiting.hold(answer);
        }
    }

    pub(crate) fn slot(&self, host: usize, placement: PlacementId) -> Option<&Slot> {
        self.hosts[host].process.as_ref()?.slots.get(&placement)
    }

    pub(crate) fn slot_mut(&mut self, host: usize, placement: PlacementId) -> Option<&mut Slot> {
        self.hosts[host].process.as_mut()?.slots.get_mut(&placement)
    }

    /// Whoever hears of an answer has heard of everything up to the commit position.
    pub(crate) fn acknowledge(&mut self, host: usize, placement: PlacementId) {
        let Some(process) = &self.hosts[host].process else { return };
        let Some(slot) = process.slots.get(&placement) else { return };
        let (partition, epoch, commit) = (slot.partition, slot.replica.epoch(), slot.replica.commit());
        self.checks.acknowledge(partition, epoch, commit);
    }

    /// Whether this replica serves under a lease that covers its leadership, now.
    pub(crate) fn may_answer(&self, host: usize, placement: PlacementId) -> bool {
        let now = self.local(host);
        let Some(process) = &self.hosts[host].process else { return false };
        process.slots.get(&placement).is_some_and(|slot| covers(process, slot, now))
    }

    pub(crate) fn reply(&mut self, host: usize, placement: PlacementId, to: ReplyTo, outcome: Outcome) {
        let Some(process) = &self.hosts[host].process else { return };
        let Some(slot) = process.slots.get(&placement) else { return };
        let (log_time, client) = (slot.waiting.log_time(), to.client);
        let epoch = slot.replica.epoch();
        let event = Event::Reply { client, to, log_time, outcome: Box::new(outcome), leader: Some(host), epoch };
        self.send(End::Host(host), End::Client(client), event);
    }

    /// Gives the answers that waited for a lease, if there is one again.
    pub(crate) fn release_held(&mut self, host: usize, placement: PlacementId) {
        let waits = |process: &Process| process.slots.get(&placement).is_some_and(|slot| slot.waiting.held() > 0);
        if !self.hosts[host].process.as_ref().is_some_and(waits) || !self.may_answer(host, placement) {
            return;
        }
        let Some(process) = &mut self.hosts[host].process else { return };
        let Some(slot) = process.slots.get_mut(&placement) else { return };
        for Answer { reply, outcome } in slot.waiting.release() {
            self.acknowledge(host, placement);
            self.reply(host, placement, reply, outcome);
        }
    }

    /// Tells those who waited in vain why: `nothing` where nothing was changed.
    fn tell_ended(
        &mut self,
        host: usize,
        placement: PlacementId,
        ended: Option<Vec<(ReplyTo, Ended)>>,
        nothing: ErrorKind,
    ) {
        for (reply, ended) in ended.into_iter().flatten() {
            let kind = match ended {
                Ended::Unknown => ErrorKind::DeadlineExceeded,
                Ended::ChangedNothing => nothing,
            };
            self.reply(host, placement, reply, Err(kind));
        }
    }

    /// Answers everything that waits by an error: whoever waited for a write cannot know the outcome.
    pub(crate) fn fail_waiting(&mut self, host: usize, placement: PlacementId) {
        let Some(process) = &mut self.hosts[host].process else { return };
        let Some(slot) = process.slots.get_mut(&placement) else { return };
        let gone =
            if process.tables.lacks(slot.partition.table) { ErrorKind::NotFound } else { ErrorKind::Unavailable };
        let ended = slot.waiting.end(|request| request.reply);
        self.tell_ended(host, placement, Some(ended), gone);
    }

    fn serve(&mut self, host: usize, placement: PlacementId) {
        let machine = &mut self.hosts[host];
        let Some(process) = &mut machine.process else { return };
        let Some(slot) = process.slots.get_mut(&placement) else { return };
        let view = PartitionView::new(&slot.recent, &machine.disk.engine, placement, Reader::Newest);
        let stamp = view.get(row::LOG_TIME_KEY).ok().flatten().and_then(|stamp| row::decode_millis(&stamp).ok());
        slot.clients = ClientIndex::unread();
        stamp.into_iter().for_each(|stamp| slot.log_time.observe(stamp));
        slot.waiting.serve(slot.log_time.last());
        slot.serving = true;
        self.coverage.take_overs += 1;
        self.checks.leases_changed = true;
        let (partition, epoch, commit) = (slot.partition, slot.replica.epoch(), slot.replica.commit());
        let checked = self.checks.serves(partition, placement, epoch, commit);
        self.judge(checked);
    }

    pub(crate) fn rest(&mut self, host: usize, placement: PlacementId) {
        let Some(process) = &mut self.hosts[host].process else { return };
        let Some(slot) = process.slots.get_mut(&placement) else { return };
        slot.serving = false;
        let ended = slot.waiting.rest();
        self.tell_ended(host, placement, Some(ended), ErrorKind::Unavailable);
    }

    pub(crate) fn queue_report(&mut self, host: usize, report: Report) {
        self.coverage.releases += u64::from(report.fact == Fact::Released);
        if let Some(process) = &mut self.hosts[host].process {
            process.reports.put(report.clone());
        }
        self.send_report(host, report);
    }

    /// The copy has thrown its data away.
    pub(crate) fn report_emptied(&mut self, host: usize, placement: PlacementId) {
        let Some(process) = &mut self.hosts[host].process else { return };
        let Some(life) = process.life else { return };
        let Some(slot) = process.slots.get_mut(&placement) else { return };
        let (partition, epoch, version) = (slot.partition, slot.replica.epoch(), slot.replica.version());
        if slot.emptied.is_due(life.incarnation, version) {
            slot.emptied.said(life.incarnation, version);
            self.coverage.emptied += 1;
            self.queue_report(host, Report { partition, placement, epoch, version, fact: Fact::Emptied });
        }
    }

    /// Where the engine is complete on the disk, as the log is to remember it.
    pub(crate) fn complete_at(&mut self, host: usize, placement: PlacementId, complete: Position) {
        let limits = RetentionLimits {
            // Once faults have ceased a copy must come to its end, however slow its pages are beside the writes.
            pinned_bytes_max: if self.healing { u64::MAX } else { self.plan.pinned_bytes_max },
            lagging_bytes_max: self.plan.lagging_bytes_max,
        };
        let Some(process) = &mut self.hosts[host].process else { return };
        let Some(slot) = process.slots.get_mut(&placement) else { return };
        let noted = slot.retention.completed(placement, &slot.replica, complete, limits);
        let Some(base) = noted else { return };
        let gathered = &mut process.journal.gathered;
        gathered.writes.push(Write::Complete(placement, complete));
        if let Some(base) = base {
            gathered.writes.push(Write::Base(placement, base));
            gathered.trims.push((placement, base.seq));
        }
    }
}

/// Whether the process may answer for a slot under its lease.
pub(crate) fn covers(process: &Process, slot: &Slot, now: archon_types::Millis) -> bool {
    slot.serving && !slot.aside && process.grants.covers(slot.partition, slot.replica.epoch(), now)
}
