//! Clients' operations: evaluated once by the leader, answered after commit and under the lease.

use super::slot::{Outcome, Request, Slot};
use crate::event::Event;
use crate::mutant::ShellMutant;
use crate::network::End;
use crate::world::World;
use archon_host::{Answer as Told, Pending};
use archon_kv::{Footing, Forgetting, PartitionView, Reader, Reading, Request as Asked, Room, evaluate};
use archon_replica::{Input, Output, Standing};
use archon_types::{Answer, ClientId, Epoch, ErrorKind, Millis, PlacementId, Revision, Seq};
use bytes::Bytes;

impl World {
    pub(crate) fn on_requests(&mut self, host: usize, requests: Vec<Request>) {
        requests.into_iter().for_each(|request| self.on_request(host, request));
        self.settle(host);
    }

    fn on_request(&mut self, host: usize, request: Request) {
        let Some(process) = &self.hosts[host].process else { return };
        let placement = process.active.get(&request.partition).copied();
        let found = placement.and_then(|placement| Some((placement, process.slots.get(&placement)?)));
        let dropped = process.tables.lacks(request.partition.table);
        let Some((placement, slot)) = found else {
            let kind = if dropped { ErrorKind::NotFound } else { ErrorKind::NotPartitionLeader };
            return self.refuse(host, request, kind);
        };
        if process.stopping.is_some() {
            return self.refuse(host, request, ErrorKind::ShuttingDown);
        }
        if dropped {
            return self.refuse(host, request, ErrorKind::NotFound);
        }
        if slot.aside || !slot.serving {
            let kind = match slot.replica.standing() {
                Standing::TakingOver => ErrorKind::Unavailable,
                _ => ErrorKind::NotPartitionLeader,
            };
            return self.refuse(host, request, kind);
        }
        if !self.footing(host, slot).holds() {
            return self.refuse(host, request, ErrorKind::NoLease);
        }
        match request.op.is_read() {
            true => self.read(host, placement, request),
            false => self.write(host, placement, request),
        }
    }

    /// Where this leader stands, now.
    pub(crate) fn footing(&self, host: usize, slot: &Slot) -> Footing<impl FnOnce() -> bool> {
        let placement = slot.placement;
        let alone = slot.copy().is_alone() && !self.breaks(ShellMutant::AloneWithoutLease);
        let settled = slot.replica.commit() >= slot.replica.last().seq;
        Footing { alone, leased: move || self.may_answer(host, placement), settled }
    }

    fn refuse(&mut self, host: usize, request: Request, kind: ErrorKind) {
        let Some(process) = &self.hosts[host].process else { return };
        let slot = process.active.get(&request.partition).and_then(|placement| process.slots.get(placement));
        let log_time = slot.map_or(Millis::ZERO, |slot| slot.waiting.log_time());
        let row = slot.and_then(|slot| slot.replica.configuration()).map(|known| &known.row);
        let leader = row.and_then(|row| row.leader_placement()).map(|leader| leader.node);
        let address = leader.and_then(|node| self.quorum.state.node(node)).map(|row| row.node.address.clone());
        let leader = address.and_then(|address| crate::coordinator::host_of(&address));
        if kind == ErrorKind::NotEnoughReplicas {
            self.coverage.not_enough_replicas += 1;
        }
        let client = request.reply.client;
        let (outcome, epoch) = (Box::new(Err(kind)), Epoch::ZERO);
        let event = Event::Reply { client, to: request.reply, log_time, outcome, leader, epoch };
        self.send(End::Host(host), End::Client(client), event);
    }

    fn read(&mut self, host: usize, placement: PlacementId, request: Request) {
        let Some(slot) = self.slot(host, placement) else { return };
        if self.footing(host, slot).reading() == Reading::Confirmed {
            let Some(slot) = self.slot_mut(host, placement) else { return };
            let ticket = slot.next_ticket();
            slot.waiting.confirm_first(ticket, request);
            return self.step(host, placement, Input::Confirm { ticket });
        }
        if self.breaks(ShellMutant::LeaseCheckedFirst) && !self.may_answer(host, placement) {
            return self.refuse(host, request, ErrorKind::NoLease);
        }
        // The value first, the lease after (rule 17). In between the process may be stopped for any time.
        let Some((log_time, outcome)) = self.look(host, placement, &request) else { return };
        let boot = self.hosts[host].boots;
        let delay = if self.random.permille(100) { self.random.between(1, 10) } else { 0 };
        let request = Box::new(request);
        self.after(delay, Event::ReadDone { host, boot, request, log_time, outcome: Box::new(outcome) });
    }

    /// What is committed here, as this replica knows it.
    fn look(&self, host: usize, placement: PlacementId, request: &Request) -> Option<(Millis, Outcome)> {
        let machine = &self.hosts[host];
        let slot = machine.process.as_ref()?.slots.get(&placement)?;
        let view = PartitionView::new(&slot.recent, &machine.disk.engine, placement, Reader::Committed);
        let asked = Asked { op: &request.op, id: None };
        let found = evaluate(asked, &view, slot.waiting.log_time(), Revision::ZERO, &self.plan.dedup);
        Some((
            slot.waiting.log_time(),
            found.map_or(Err(ErrorKind::Unavailable), |found| found.answer.map_err(|error| error.kind)),
        ))
    }

    pub(crate) fn read_done(&mut self, host: usize, boot: u64, request: Request, log_time: Millis, outcome: Outcome) {
        let Some(process) = self.hosts[host].process.as_ref().filter(|process| process.boot == boot) else { return };
        let Some(placement) = process.active.get(&request.partition).copied() else { return };
        let (outcome, checked) = match self.breaks(ShellMutant::LeaseCheckedFirst) {
            true => (self.look(host, placement, &request).map_or(outcome, |(_, outcome)| outcome), true),
            false => (outcome, self.may_answer(host, placement)),
        };
        if !checked {
            return self.refuse(host, request, ErrorKind::NoLease);
        }
        if outcome.is_ok() {
            self.coverage.lease_reads += 1;
            self.acknowledge(host, placement);
        }
        let client = request.reply.client;
        let epoch = self.slot(host, placement).map_or(Epoch::ZERO, |slot| slot.replica.epoch());
        let (to, leader) = (request.reply, Some(host));
        let event = Event::Reply { client, to, log_time, outcome: Box::new(outcome), leader, epoch };
        self.send(End::Host(host), End::Client(client), event);
    }

    /// Reads whose leadership was confirmed after they arrived, or not.
    pub(crate) fn confirmed(&mut self, host: usize, placement: PlacementId, tickets: &[u64], ok: bool) {
        for ticket in tickets {
            let Some(process) = &mut self.hosts[host].process else { return };
            let Some(slot) = process.slots.get_mut(&placement) else { return };
            let Some(request) = slot.waiting.confirmed(*ticket) else { continue };
            let outcome = match ok {
                true => self.look(host, placement, &request).map_or(Err(ErrorKind::Unavailable), |(_, found)| found),
                false => Err(ErrorKind::NoLease),
            };
            if outcome.is_ok() {
                self.coverage.confirm_reads += 1;
                self.acknowledge(host, placement);
            } else {
                self.coverage.unconfirmed_reads += 1;
            }
            self.reply(host, placement, request.reply, outcome);
        }
    }

    fn wall(&self, host: usize) -> Millis {
        Millis::new(self.truth + self.hosts[host].wall_off)
    }

    fn write(&mut self, host: usize, placement: PlacementId, request: Request) {
        let admitted = |world: &Self| Some(world.hosts[host].process.as_ref()?.slots.get(&placement)?.replica.admit());
        let Some(admitted) = admitted(self) else { return };
        let client = request.id.as_ref().map(|id| id.client);
        let remembered = |world: &mut Self| client.map_or(Ok(()), |client| world.make_room(host, placement, client));
        if let Err(kind) = admitted.and_then(|()| remembered(self)) {
            return self.refuse(host, request, kind);
        }
        let wall = self.wall(host);
        let machine = &mut self.hosts[host];
        let Some(process) = &mut machine.process else { return };
        let Some(slot) = process.slots.get_mut(&placement) else { return };
        let Some(next) = slot.replica.next_position() else {
            return self.refuse(host, request, ErrorKind::NotPartitionLeader);
        };
        #[cfg(feature = "mutants")]
        if let Some(crate::Mutant::Kv(broken)) = self.mutant {
            slot.log_time.set_mutant(Some(broken));
        }
        let at = slot.log_time.stamp(wall);
        let view = PartitionView::new(&slot.recent, &machine.disk.engine, placement, Reader::Newest);
        let asked = Asked { op: &request.op, id: request.id.as_ref() };
        let Ok(evaluation) = evaluate(asked, &view, at, Revision::new(next.seq.get()), &self.plan.dedup) else {
            return self.refuse(host, request, ErrorKind::Unavailable);
        };
        let without = evaluation.effect.is_none();
        let Some(slot) = self.slot(host, placement) else { return };
        let evaluation = self.footing(host, slot).prove(evaluation, at, &self.plan.dedup);
        self.coverage.unproven += u64::from(without && evaluation.effect.is_some());
        let outcome: Outcome = evaluation.answer.map_err(|error| error.kind);
        match &outcome {
            Ok(Answer::ConditionFailed { .. }) => self.coverage.conditions_failed += 1,
            Err(ErrorKind::MaybeApplied) => self.coverage.maybe_applied += 1,
            _ => {}
        }
        self.coverage.repeats += u64::from(without && request.id.is_some() && outcome.is_ok());
        let Some(effect) = evaluation.effect else {
            return self.answer_after(host, placement, request, outcome);
        };
        let Some((ticket, seq)) = self.propose_entry(host, placement, effect.encode()) else {
            return self.refuse(host, request, ErrorKind::Unavailable);
        };
        let Some(process) = &mut self.hosts[host].process else { return };
        let Some(slot) = process.slots.get_mut(&placement) else { return };
        if let Some(id) = request.id.as_ref().filter(|_| !without) {
            slot.clients.touch(id.client, at, &self.plan.dedup);
        }
        let pushed = slot.recent.push(seq, effect);
        debug_assert!(pushed.is_ok(), "the position was just given out");
        slot.waiting.commit_first(Pending { seq, at, ticket: Some(ticket), reply: Some(request.reply), outcome });
    }

    /// An answer without an effect rests on what was seen, which may be uncommitted: it waits for that.
    fn answer_after(&mut self, host: usize, placement: PlacementId, request: Request, outcome: Outcome) {
        let Some(process) = &mut self.hosts[host].process else { return };
        let Some(slot) = process.slots.get_mut(&placement) else { return };
        let seq = slot.replica.last().seq;
        if slot.replica.commit() >= seq {
            return self.answer_write(host, placement, Told { reply: request.reply, outcome });
        }
        let reply = Some(request.reply);
        slot.waiting.commit_first(Pending { seq, at: Millis::ZERO, ticket: None, reply, outcome });
    }

    /// Proposes an entry; gives its ticket and place.
    fn propose_entry(&mut self, host: usize, placement: PlacementId, entry: Bytes) -> Option<(u64, Seq)> {
        let now = self.local(host);
        let process = self.hosts[host].process.as_mut()?;
        let slot = process.slots.get_mut(&placement)?;
        let ticket = slot.next_ticket();
        let mut out = Vec::new();
        slot.replica.step(now, Input::Propose { ticket, entry }, &mut out);
        process.touched.insert(placement);
        let accepted = out.iter().find_map(|output| match output {
            Output::Accepted { at, .. } => Some((ticket, at.seq)),
            _ => None,
        });
        self.carry_out(host, placement, out);
        accepted
    }

    /// Sees to it that an operation of this client may be recorded; or says why not.
    fn make_room(&mut self, host: usize, placement: PlacementId, client: ClientId) -> Result<(), ErrorKind> {
        let wall = self.wall(host);
        let machine = &mut self.hosts[host];
        let Some(slot) = machine.process.as_mut().and_then(|process| process.slots.get_mut(&placement)) else {
            return Err(ErrorKind::Unavailable);
        };
        if slot.clients.knows(client) {
            return Ok(());
        }
        #[cfg(feature = "mutants")]
        if let Some(crate::Mutant::Kv(broken)) = self.mutant {
            slot.log_time.set_mutant(Some(broken));
        }
        let at = slot.log_time.stamp(wall);
        let view = PartitionView::new(&slot.recent, &machine.disk.engine, placement, Reader::Newest);
        match slot.clients.room_for(client, &view, at, &self.plan.dedup) {
            Ok(Room::Free) => Ok(()),
            Ok(Room::Forget(forgetting)) => self.forget(host, placement, forgetting),
            Ok(Room::Unknown(detail)) => Err(detail.kind),
            Err(_) => Err(ErrorKind::Unavailable),
        }
    }

    /// Reads on whom a partition remembers that was taken over.
    pub(crate) fn read_clients(&mut self, host: usize, placement: PlacementId) {
        let machine = &mut self.hosts[host];
        let Some(process) = &mut machine.process else { return };
        let Some(slot) = process.slots.get_mut(&placement) else { return };
        let view = PartitionView::new(&slot.recent, &machine.disk.engine, placement, Reader::Newest);
        let read = slot.clients.read(&view, &self.plan.dedup);
        debug_assert!(read.is_ok(), "the rows of a simulated engine are whole");
    }

    /// Forgets clients that were silent for long, or are too many, as an ordinary entry of the log.
    pub(crate) fn forget_clients(&mut self, host: usize, placement: PlacementId) {
        let wall = self.wall(host);
        let holds = self.slot(host, placement).is_some_and(|slot| self.footing(host, slot).holds());
        let machine = &mut self.hosts[host];
        let Some(process) = &mut machine.process else { return };
        let Some(slot) = process.slots.get_mut(&placement) else { return };
        let wall = wall.max(slot.log_time.last());
        if !slot.clients.has_to_forget(wall, &self.plan.dedup) || slot.replica.admit().is_err() || !holds {
            return;
        }
        let at = slot.log_time.stamp(wall);
        let view = PartitionView::new(&slot.recent, &machine.disk.engine, placement, Reader::Newest);
        if let Ok(Some(forgetting)) = slot.clients.to_forget(&view, at, &self.plan.dedup) {
            // What is refused now is tried again.
            let _ = self.forget(host, placement, forgetting);
        }
    }

    fn forget(&mut self, host: usize, placement: PlacementId, forgetting: Forgetting) -> Result<(), ErrorKind> {
        self.coverage.clients_forgotten += forgetting.clients.len() as u64;
        let proposed = forgetting.effect.map(|effect| (self.propose_entry(host, placement, effect.encode()), effect));
        let slot = self.hosts[host].process.as_mut().and_then(|process| process.slots.get_mut(&placement));
        let slot = slot.ok_or(ErrorKind::Unavailable)?;
        if let Some((accepted, effect)) = proposed {
            let (ticket, seq) = accepted.ok_or(ErrorKind::Unavailable)?;
            let at = effect.at;
            let pushed = slot.recent.push(seq, effect);
            debug_assert!(pushed.is_ok(), "the position was just given out");
            let outcome = Ok(Answer::NotANumber);
            slot.waiting.commit_first(Pending { seq, at, ticket: Some(ticket), reply: None, outcome });
        }
        slot.clients.remove(&forgetting.clients);
        Ok(())
    }
}
