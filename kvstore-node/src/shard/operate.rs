//! Clients' operations: evaluated once, answered after commit and under the lease.

use super::cache::CACHE_BYTES;
use super::slot::Slot;
use super::{Budget, Env, OpRequest, Shard};
use crate::reply::Outcome;
use archon_host::{Answer as Told, Pending};
use archon_kv::{PartitionView, Reader, Reading, Request, ViewError, evaluate, row};
use archon_replica::{Input, Output, Standing};
use archon_types::{Answer, ErrorDetail, ErrorKind, Millis, Op, PartitionId, Revision, Seq};
use bytes::Bytes;

impl Shard {
    /// Evaluates what a message brought, as far as its client's turn goes; the rest waits.
    pub(super) fn arrived(&mut self, operations: Vec<OpRequest>, budget: &mut Budget) {
        self.env.context.shared.metrics.operations.add(operations.len() as u64);
        let mut operations = operations.into_iter();
        if self.backlog.is_empty() {
            budget.next_client();
            while !budget.is_slice_spent()
                && let Some(request) = operations.next()
            {
                self.operation(request, budget);
            }
        }
        for request in operations {
            self.backlog.push(request.client, request);
        }
    }

    /// Evaluates operations that wait, those of each client in turn, until the turn's time is spent.
    pub(super) fn go_on(&mut self, budget: &mut Budget) {
        while !self.backlog.is_empty() && !budget.is_spent() {
            budget.next_client();
            while !budget.is_slice_spent()
                && let Some(request) = self.backlog.pop()
            {
                // Nobody waits for what a stream asked that has ended; a write is carried out all the same.
                if !(request.op.is_read() && request.reply.is_gone()) {
                    self.operation(request, budget);
                }
            }
            self.backlog.rotate();
        }
        self.env.context.shared.metrics.turns_cut.add(u64::from(!self.backlog.is_empty()));
    }

    fn operation(&mut self, request: OpRequest, budget: &mut Budget) {
        let scan = matches!(request.op, Op::Scan { .. });
        self.take_up(request);
        budget.spend(scan, std::time::Instant::now);
    }

    fn take_up(&mut self, request: OpRequest) {
        let slot = self.active.get(&request.partition).and_then(|placement| self.slots.get_mut(placement));
        let Some(slot) = slot else {
            let detail = self.env.elsewhere(request.partition);
            return self.env.replies.add(request.reply, Millis::ZERO, Err(detail));
        };
        let Some(request) = self.env.park(slot, request) else { return };
        match self.env.admit(slot, &request) {
            Ok(()) if request.op.is_read() => self.env.read(slot, request),
            Ok(()) => self.env.write(slot, request),
            Err(detail) => self.env.replies.add(request.reply, slot.waiting.log_time(), Err(detail)),
        }
    }
}

impl Env {
    /// Whether an operation may be evaluated here and now.
    fn admit(&self, slot: &Slot, request: &OpRequest) -> Result<(), ErrorDetail> {
        let shared = &self.context.shared;
        if shared.is_stopping() {
            return Err(crate::shared::shutting_down());
        }
        if let Some(key) = request.op.key()
            && shared.tables.partition_of(request.partition.table, key).is_some_and(|right| right != request.partition)
        {
            let partition = shared.tables.partition_name(request.partition);
            let why = format!("the key does not belong to partition {partition}; fetch the table again");
            return Err(ErrorDetail::new(ErrorKind::InvalidArgument, why).with_table_version(shared.tables.version()));
        }
        if let Some(dropped) = shared.tables.dropped(request.partition) {
            return Err(dropped);
        }
        if slot.aside || !slot.serving {
            let mine = matches!(slot.replica.standing(), Standing::TakingOver | Standing::Released);
            if mine && !slot.aside && slot.copy().is_unsettled() {
                let why = format!("the leadership of partition {} is changing", self.named(slot));
                return Err(ErrorDetail::new(ErrorKind::Unavailable, why).with_retry_after_ms(5));
            }
            return Err(self.elsewhere(slot.partition));
        }
        if !self.footing(slot).holds() {
            return Err(self.no_lease(slot));
        }
        Ok(())
    }

    /// The partition as people name it.
    fn named(&self, slot: &Slot) -> String {
        self.context.shared.tables.partition_name(slot.partition)
    }

    fn no_lease(&self, slot: &Slot) -> ErrorDetail {
        let why = format!("this node holds no valid lease for partition {}", self.named(slot));
        ErrorDetail::new(ErrorKind::NoLease, why)
            .with_retry_after_ms(50)
            .with_table_version(self.context.shared.tables.version())
    }

    /// Why a write is refused before anything is done about it.
    pub(super) fn no_writes(&self, slot: &Slot, kind: ErrorKind) -> ErrorDetail {
        let (partition, node) = (self.named(slot), &self.context.shared.config.name);
        let why = match (kind, self.context.flusher.no_room()) {
            (ErrorKind::ReadOnly, Some(lack)) => {
                format!(
                    "partition {partition} takes no writes now: the disk of its leader, node {node}, is full ({lack})"
                )
            }
            (ErrorKind::ReadOnly, None) => {
                format!("partition {partition} takes no writes now: the log of its leader, node {node}, has no room")
            }
            _ => format!("partition {partition} takes no writes now on node {node}"),
        };
        ErrorDetail::new(kind, why).with_retry_after_ms(20)
    }

    fn elsewhere(&self, partition: PartitionId) -> ErrorDetail {
        let tables = &self.context.shared.tables;
        if let Some(dropped) = tables.dropped(partition) {
            return dropped;
        }
        let leader = tables.leader_address(partition);
        let partition = tables.partition_name(partition);
        let why = match &leader {
            Some(address) => {
                format!("this node does not lead partition {partition}; {address} does, as far as it knows")
            }
            None => format!("this node does not lead partition {partition}"),
        };
        ErrorDetail::new(ErrorKind::NotPartitionLeader, why).with_leader(leader).with_table_version(tables.version())
    }

    fn read(&mut self, slot: &mut Slot, request: OpRequest) {
        if let Err(detail) = request.reply.room() {
            return self.replies.add(request.reply, slot.waiting.log_time(), Err(detail));
        }
        let confirmed = request.confirmed == Some(slot.replica.epoch()) && !slot.copy().is_alone();
        if !confirmed && self.footing(slot).reading() == Reading::Confirmed {
            slot.tickets += 1;
            let ticket = slot.tickets;
            slot.waiting.confirm_first(ticket, request);
            return self.step(slot, Input::Confirm { ticket });
        }
        let log_time = slot.waiting.log_time();
        let found = match &request.op {
            Op::Get { key } => self.value(slot, key).map(|found| Ok(Answer::Value(found))),
            op => {
                let view = PartitionView::new(&slot.recent, &*self.context.engine, slot.placement, Reader::Committed);
                let asked = Request { op, id: None };
                evaluate(asked, &view, log_time, Revision::ZERO, &self.context.dedup).map(|found| found.answer)
            }
        };
        let outcome = match found {
            // The value first, the lease after (PROTOCOL rule 17).
            Ok(answer) if confirmed || self.may_answer(slot) => answer,
            Ok(_) => Err(self.no_lease(slot)),
            Err(error) => Err(self.unreadable(slot, &error)),
        };
        self.replies.add(request.reply, log_time, outcome);
    }

    /// The committed value of a key: from the window, from what was read before, or from the engine.
    fn value(&self, slot: &mut Slot, key: &[u8]) -> Result<Option<(Bytes, Revision)>, ViewError> {
        let key = row::value_key(key);
        let row = match slot.recent.get(&key, Reader::Committed) {
            Some(found) => found.cloned(),
            None => {
                let bytes_max = self.cache_bytes_max();
                match slot.cache.get(&key, bytes_max) {
                    Some(found) => found,
                    None => {
                        let found = self.context.engine.get(slot.placement, &key)?;
                        slot.cache.put(key, found.as_deref(), bytes_max);
                        found
                    }
                }
            }
        };
        Ok(row.map(|row| row::decode_value(&row)).transpose()?)
    }

    /// Bytes of rows that one partition's cache may hold.
    pub(super) fn cache_bytes_max(&self) -> usize {
        CACHE_BYTES / self.context.holdings.len().max(1)
    }

    /// Reads whose leadership was confirmed after they arrived, or not.
    pub(super) fn confirmed(&mut self, slot: &mut Slot, tickets: &[u64], ok: bool) {
        for ticket in tickets {
            let Some(request) = slot.waiting.confirmed(*ticket) else { continue };
            if ok {
                // Read when its turn comes: whatever this leader shows then is no older than what was confirmed, as long
                // as the epoch is the same.
                self.unparked.push(OpRequest { confirmed: Some(slot.replica.epoch()), ..request });
                continue;
            }
            // A read that changed nothing may as well be answered by whoever leads next.
            let Some(request) = self.park(slot, request) else { continue };
            let detail = if slot.serving { self.no_lease(slot) } else { self.elsewhere(slot.partition) };
            self.replies.add(request.reply, slot.waiting.log_time(), Err(detail));
        }
    }

    fn write(&mut self, slot: &mut Slot, request: OpRequest) {
        if let Err(kind) = self.room(slot) {
            let detail = self.no_writes(slot, kind);
            return self.replies.add(request.reply, slot.waiting.log_time(), Err(detail));
        }
        let Some(request) = self.remember(slot, request) else { return };
        let Some(next) = slot.replica.next_position() else {
            let detail = self.elsewhere(slot.partition);
            return self.replies.add(request.reply, slot.waiting.log_time(), Err(detail));
        };
        let at = slot.log_time.stamp(self.context.shared.wall.now());
        let view = PartitionView::new(&slot.recent, &*self.context.engine, slot.placement, Reader::Newest);
        let asked = Request { op: &request.op, id: request.id.as_ref() };
        let evaluation = match evaluate(asked, &view, at, Revision::new(next.seq.get()), &self.context.dedup) {
            Ok(evaluation) => evaluation,
            Err(error) => {
                let detail = self.unreadable(slot, &error);
                return self.replies.add(request.reply, slot.waiting.log_time(), Err(detail));
            }
        };
        let recorded = evaluation.effect.is_some();
        let evaluation = self.footing(slot).prove(evaluation, at, &self.context.dedup);
        match evaluation.effect {
            None => self.answer_after(slot, slot.replica.last().seq, request, evaluation.answer),
            Some(effect) => {
                let (entry, effect) = effect.into_entry();
                match self.propose(slot, entry) {
                    Ok((ticket, seq)) => {
                        if let Err(error) = slot.recent.push(seq, effect) {
                            self.damaged.push((slot.placement, error.to_string()));
                        }
                        if let Some(id) = request.id.as_ref().filter(|_| recorded) {
                            slot.clients.touch(id.client, at, &self.context.dedup);
                        }
                        let (reply, outcome) = (Some(request.reply), evaluation.answer);
                        slot.waiting.commit_first(Pending { seq, at, ticket: Some(ticket), reply, outcome });
                    }
                    Err(kind) => {
                        let detail = self.no_writes(slot, kind);
                        self.replies.add(request.reply, slot.waiting.log_time(), Err(detail));
                    }
                }
            }
        }
    }

    /// An answer without an effect rests on what was seen, which may be uncommitted: it waits for that.
    fn answer_after(&mut self, slot: &mut Slot, seq: Seq, request: OpRequest, outcome: Outcome) {
        if slot.replica.commit() >= seq {
            self.answer_write(slot, Told { reply: request.reply, outcome });
        } else {
            slot.waiting.commit_first(Pending {
                seq,
                at: Millis::ZERO,
                ticket: None,
                reply: Some(request.reply),
                outcome,
            });
        }
    }

    /// Proposes an entry; gives its ticket and place.
    pub(super) fn propose(&mut self, slot: &mut Slot, entry: Bytes) -> Result<(u64, Seq), ErrorKind> {
        slot.tickets += 1;
        let ticket = slot.tickets;
        let mut out = self.outputs();
        slot.replica.step(self.now, Input::Propose { ticket, entry }, &mut out);
        self.touch(slot);
        let verdict = out.iter().find_map(|output| match output {
            Output::Accepted { ticket: accepted, at } if *accepted == ticket => Some(Ok((ticket, at.seq))),
            Output::Refuse { ticket: refused, kind } if *refused == ticket => Some(Err(*kind)),
            _ => None,
        });
        // Nothing is committed by a proposal alone: that takes the disk, and so another turn.
        debug_assert!(!out.iter().any(|output| matches!(output, Output::Commit { .. })));
        self.carry_out(slot, out);
        verdict.unwrap_or(Err(ErrorKind::Internal))
    }

    pub(super) fn room(&self, slot: &Slot) -> Result<(), ErrorKind> {
        if self.journal.is_full() || self.context.budget.is_full() {
            return Err(ErrorKind::Overloaded);
        }
        slot.replica.admit()
    }

    pub(super) fn unreadable(&mut self, slot: &Slot, error: &ViewError) -> ErrorDetail {
        self.unusable(slot, error);
        let why = format!("partition {} cannot be read on this node: {error}", self.named(slot));
        ErrorDetail::new(ErrorKind::Unavailable, why)
    }

    /// Rows could not be read: the copy is damaged, or, if it is only the disk that refuses, the node ends and recovers.
    pub(super) fn unusable(&mut self, slot: &Slot, error: &ViewError) {
        if error.is_damage() {
            self.damaged.push((slot.placement, error.to_string()));
        } else {
            tracing::error!(partition = %slot.partition, placement = %slot.placement, %error, "the engine cannot be read; the node stops and its data is left as it is");
            self.context.shared.fail();
        }
    }
}
