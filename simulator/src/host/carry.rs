//! What a replica wants done, done.

use super::disk::Write;
use super::process::Process;
use super::slot::{Outcome, Pending, Slot};
use super::start::take_in;
use crate::check::Violation;
use crate::client::ReplyTo;
use crate::event::{Event, Sideways};
use crate::network::End;
use crate::world::World;
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
                    self.fail_pending(host, placement, ErrorKind::DeadlineExceeded, |pending| {
                        pending.ticket.is_some_and(|ticket| tickets.contains(&ticket))
                    });
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
                        slot.emptied_told = None;
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
        let mut answers = Vec::new();
        while slot.pending.front().is_some_and(|pending| pending.seq <= upto) {
            let Some(Pending { at, reply, outcome, seq, .. }) = slot.pending.pop_front() else { break };
            slot.applied = slot.applied.max(at);
            if let Some(reply) = reply {
                answers.push((reply, outcome, seq));
            }
        }
        for (reply, outcome, _) in answers {
            self.answer_write(host, placement, reply, outcome);
        }
    }

    /// Gives the answer to something committed, or keeps it while no lease covers it. Where followers hold the write as
    /// well it rests on no clock.
    pub(crate) fn answer_write(&mut self, host: usize, placement: PlacementId, reply: ReplyTo, outcome: Outcome) {
        let Some(slot) = self.slot(host, placement) else { return };
        if self.footing(host, slot).holds() {
            self.coverage.writes += 1;
            self.acknowledge(host, placement);
            self.reply(host, placement, reply, outcome);
        } else {
            self.coverage.answers_held += 1;
            let Some(slot) = self.slot_mut(host, placement) else { return };
            slot.held.push((reply, outcome));
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
        let (log_time, client) = (slot.applied, to.client);
        let epoch = slot.replica.epoch();
        let event = Event::Reply { client, to, log_time, outcome: Box::new(outcome), leader: Some(host), epoch };
        self.send(End::Host(host), End::Client(client), event);
    }

    /// Gives the answers that waited for a lease, if there is one again.
    pub(crate) fn release_held(&mut self, host: usize, placement: PlacementId) {
        let waits = |process: &Process| process.slots.get(&placement).is_some_and(|slot| !slot.held.is_empty());
        if !self.hosts[host].process.as_ref().is_some_and(waits) || !self.may_answer(host, placement) {
            return;
        }
        let Some(process) = &mut self.hosts[host].process else { return };
        let Some(slot) = process.slots.get_mut(&placement) else { return };
        for (reply, outcome) in std::mem::take(&mut slot.held) {
            self.acknowledge(host, placement);
            self.reply(host, placement, reply, outcome);
        }
    }

    fn fail_pending(&mut self, host: usize, placement: PlacementId, kind: ErrorKind, which: impl Fn(&Pending) -> bool) {
        let Some(process) = &mut self.hosts[host].process else { return };
        let Some(slot) = process.slots.get_mut(&placement) else { return };
        let mut replies = Vec::new();
        for mut pending in std::mem::take(&mut slot.pending) {
            if !which(&pending) {
                slot.pending.push_back(pending);
            } else if let Some(reply) = pending.reply.take() {
                replies.push(reply);
            }
        }
        for reply in replies {
            self.reply(host, placement, reply, Err(kind));
        }
    }

    /// Answers everything that waits by an error: whoever waited cannot know the outcome.
    pub(crate) fn fail_waiting(&mut self, host: usize, placement: PlacementId) {
        self.fail_pending(host, placement, ErrorKind::DeadlineExceeded, |_| true);
        let Some(process) = &mut self.hosts[host].process else { return };
        let Some(slot) = process.slots.get_mut(&placement) else { return };
        let held = std::mem::take(&mut slot.held).into_iter().map(|(reply, _)| (reply, ErrorKind::DeadlineExceeded));
        let gone =
            if process.tables.lacks(slot.partition.table) { ErrorKind::NotFound } else { ErrorKind::Unavailable };
        let reads = std::mem::take(&mut slot.confirms).into_values();
        let reads = reads.map(|request| (request.reply, gone));
        for (reply, kind) in held.chain(reads).collect::<Vec<_>>() {
            self.reply(host, placement, reply, Err(kind));
        }
    }

    fn serve(&mut self, host: usize, placement: PlacementId) {
        let machine = &mut self.hosts[host];
        let Some(process) = &mut machine.process else { return };
        let Some(slot) = process.slots.get_mut(&placement) else { return };
        let view = PartitionView::new(&slot.recent, &machine.disk.engine, placement, Reader::Newest);
        let stamp = view.get(row::LOG_TIME_KEY).ok().flatten().and_then(|stamp| row::decode_millis(&stamp).ok());
        slot.clients = ClientIndex::unread();
        stamp.into_iter().for_each(|stamp| slot.log_time.observe(stamp));
        slot.applied = slot.log_time.last();
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
        let held = std::mem::take(&mut slot.held);
        for (reply, _) in held {
            self.reply(host, placement, reply, Err(ErrorKind::DeadlineExceeded));
        }
        self.fail_pending(host, placement, ErrorKind::Unavailable, |pending| pending.ticket.is_none());
    }

    pub(crate) fn queue_report(&mut self, host: usize, report: Report) {
        let fact = match report.fact {
            Fact::Online => 0,
            Fact::CaughtUp { .. } => 1,
            Fact::Silent { .. } => 2,
            Fact::Released => {
                self.coverage.releases += 1;
                3
            }
            Fact::Unloaded => 4,
            Fact::Overtaken { .. } => 6,
            Fact::Emptied => 7,
            _ => 5,
        };
        if let Some(process) = &mut self.hosts[host].process {
            process.reports.insert((report.placement, fact), report.clone());
        }
        self.send_report(host, report);
    }

    /// The copy has thrown its data away: said once per life, and again when the row has changed, for nothing is believed that
    /// was said before the copy ceased to count.
    pub(crate) fn report_emptied(&mut self, host: usize, placement: PlacementId) {
        let Some(process) = &mut self.hosts[host].process else { return };
        let Some(life) = process.life else { return };
        let Some(slot) = process.slots.get_mut(&placement) else { return };
        let (partition, epoch, version) = (slot.partition, slot.replica.epoch(), slot.replica.version());
        let told = slot.emptied_told.filter(|(incarnation, _)| *incarnation == life.incarnation);
        if told.is_none_or(|(_, told)| told.is_some_and(|before| before < version)) {
            slot.emptied_told = Some((life.incarnation, Some(version)));
            self.coverage.emptied += 1;
            self.queue_report(host, Report { partition, placement, epoch, version, fact: Fact::Emptied });
        }
    }

    /// Where the engine is complete on the disk, as the log is to remember it.
    pub(crate) fn complete_at(&mut self, host: usize, placement: PlacementId, complete: Position) {
        let Some(process) = &mut self.hosts[host].process else { return };
        let Some(slot) = process.slots.get_mut(&placement) else { return };
        if complete.seq <= slot.complete.seq {
            return;
        }
        slot.complete = complete;
        let gathered = &mut process.journal.gathered;
        gathered.writes.push(Write::Complete(placement, complete));
        let floor = slot.trim_floor();
        if floor > slot.trimmed
            && let Some(base) = slot.replica.position_at(floor)
        {
            slot.trimmed = floor;
            gathered.writes.push(Write::Base(placement, base));
            gathered.trims.push((placement, floor));
        }
    }
}

/// Whether the process may answer for a slot under its lease.
pub(crate) fn covers(process: &Process, slot: &Slot, now: archon_types::Millis) -> bool {
    slot.serving && !slot.aside && process.grants.covers(slot.partition, slot.replica.epoch(), now)
}
