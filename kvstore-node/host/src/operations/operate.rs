//! Client operations: evaluated once, answered after commit and under the lease.

use crate::copies::local_copy::LocalCopy;
use crate::mutant::Mutant;
use crate::operations::expire::LookUp;
use crate::operations::refusal::Refusal;
use crate::operations::request::{Outcome, Reply, Request, WaitsFor};
use crate::operations::waiting_clients::{PendingAnswer, ReadyAnswer};
use crate::shell::{CopyEvent, Shell};
use crate::turn::Turn;
use archon_kv::{
    Effect, Evaluation, PartitionView, ReadMode, Reader, Request as Asked, ViewError, evaluate_elsewhere,
    evaluate_merged, row,
};
use archon_replica::{Input, Output, ReplicaStatus};
use archon_types::{ErrorDetail, ErrorKind, Millis, Op, Seq, StoredValue};
use bytes::Bytes;

impl<S: Shell> Turn<S> {
    /// Evaluates, parks or refuses an operation.
    pub(crate) fn operate(&mut self, local: &mut LocalCopy<S>, request: Request<S::Reply>) {
        let Some(request) = self.park(local, request) else { return };
        let Some(request) = self.wait_for_split(local, request) else { return };
        let admitted = self.admit(local, &request);
        if let Some(watch) = local.watch.as_mut().filter(|_| admitted.is_ok()) {
            watch.note(&request.op);
        }
        match admitted {
            Ok(()) if request.op.is_read() => self.read(local, request),
            Ok(()) => self.write(local, request),
            Err(refusal) => self.turn_away(request, local.waiting.log_time(), refusal),
        }
    }

    /// Returns whether an operation may be evaluated here and now.
    fn admit(&self, local: &LocalCopy<S>, request: &Request<S::Reply>) -> Result<(), Refusal> {
        if self.shell.is_stopping() {
            return Err(Refusal::Stopping);
        }
        if request.op.any_key(|key| self.shell.is_misrouted(request.partition, key)) {
            return Err(Refusal::Misrouted);
        }
        // A named write may have been done here before the key moved: the leader checks its client records first.
        if self.is_given_away(local, request) && (request.id.is_none() || request.op.is_read()) {
            return Err(Refusal::Moved);
        }
        if self.shell.is_dropped(request.partition) {
            return Err(Refusal::Dropped);
        }
        if local.set_aside || !local.serving {
            let mine = matches!(local.replica.status(), ReplicaStatus::TakingOver | ReplicaStatus::Released);
            let settling = mine && !local.set_aside && local.view().is_unsettled();
            return Err(if settling { Refusal::Changing } else { Refusal::Elsewhere });
        }
        if self.leadership(local).holds() { Ok(()) } else { Err(Refusal::NoLease) }
    }

    /// Returns whether a key of the operation belongs to another partition by now.
    fn is_given_away(&self, local: &LocalCopy<S>, request: &Request<S::Reply>) -> bool {
        if self.broken.breaks(Mutant::BeyondServed) || self.is_let_in(local, request) {
            return false; // rule 37
        }
        let early = |key: &Bytes| local.split.seals(key) && self.broken.breaks(Mutant::MovedBeforePart); // rule 42
        request.op.any_key(|key| local.is_beyond(key) || early(key))
    }

    fn read(&mut self, local: &mut LocalCopy<S>, mut request: Request<S::Reply>) {
        if let Err(detail) = request.reply.room() {
            return self.refuse(local, request.reply, Refusal::Detail(detail));
        }
        let confirmed = request.confirmed == Some(local.replica.epoch()) && !local.view().is_alone();
        if !confirmed && self.leadership(local).reading() == ReadMode::Confirmed {
            let ticket = local.next_ticket();
            request.reply.waits(WaitsFor::Confirmation);
            local.waiting.confirm_first(ticket, request);
            return self.step(local, Input::Confirm { ticket });
        }
        let log_time = local.waiting.log_time();
        let too_early = self.broken.breaks(Mutant::LeaseCheckedFirst).then(|| self.may_answer(local));
        let found = self.look_up(local, &request.op);
        let refusal = match found {
            // The value first, the lease after (PROTOCOL rule 17).
            Ok(LookUp::Due(due)) => return self.read_due(local, request, due),
            Ok(LookUp::Found(outcome)) if confirmed || too_early.unwrap_or_else(|| self.may_answer(local)) => {
                self.shell.observe(local.at(), CopyEvent::Read { confirmed });
                return self.shell.answer(local.at(), request.reply, log_time, outcome);
            }
            Ok(LookUp::Found(_)) => Refusal::NoLease,
            Err(error) => self.unreadable(local, &error),
        };
        self.refuse(local, request.reply, refusal);
    }

    /// Returns the committed value of a key: from the memtable, the cached rows, or the engine.
    pub(crate) fn value(&self, local: &mut LocalCopy<S>, key: &[u8]) -> Result<Option<StoredValue>, ViewError> {
        row::with_value_key(key, |key| {
            let row = match local.memtable.get(key, Reader::Committed) {
                Some(found) => return Ok(found.map(row::decode_stored).transpose()?),
                None => self.shell.row(&mut local.own, local.placement, key)?,
            };
            Ok(row.as_ref().map(row::decode_stored).transpose()?)
        })
    }

    /// Continues reads after their round of confirmations.
    pub(crate) fn confirmed(&mut self, local: &mut LocalCopy<S>, tickets: &[u64], ok: bool) {
        for ticket in tickets {
            let Some(request) = local.waiting.confirmed(*ticket) else { continue };
            if ok {
                // Read in its turn: in the same epoch, any later state of this leader is at least as new as what was
                // confirmed.
                self.unparked.push(Request { confirmed: Some(local.replica.epoch()), ..request });
                continue;
            }
            self.shell.observe(local.at(), CopyEvent::NotConfirmed);
            // A read changes nothing, so the next leader may answer it.
            let Some(request) = self.park(local, request) else { continue };
            let refusal = if local.serving { Refusal::NoLease } else { self.elsewhere(local.partition) };
            self.turn_away(request, local.waiting.log_time(), refusal);
        }
    }

    /// Evaluates a write, or a read that needs an entry, and proposes its effect.
    pub(crate) fn write(&mut self, local: &mut LocalCopy<S>, request: Request<S::Reply>) {
        let Some(request) = self.wait_for_room(local, request) else { return };
        let Some(mut request) = self.remember(local, request) else { return };
        let Some(next) = local.replica.next_position() else {
            let refusal = self.elsewhere(local.partition);
            return self.turn_away(request, local.waiting.log_time(), refusal);
        };
        let at = local.log_time.stamp(self.shell.wall());
        let view = PartitionView::new(&local.memtable, self.shell.engine(), local.placement, Reader::Newest);
        let asked = Asked { op: &request.op, id: request.id.as_ref() };
        let merged = local.absorb.merged().filter(|_| !self.broken.breaks(Mutant::MovedThroughKept)); // rule 50
        let is_read = request.op.is_read();
        let evaluation = if is_read {
            self.evaluated(local, &request.op, self.reader_of_due(), at)
        } else if self.is_given_away(local, &request) {
            self.moved(asked, &view, at)
        } else {
            evaluate_merged(asked, merged, &view, at, local.absorb.revision(next.seq), self.shell.dedup())
        };
        let evaluation = match evaluation {
            Ok(evaluation) => evaluation,
            Err(error) => {
                let refusal = self.unreadable(local, &error);
                return self.refuse(local, request.reply, refusal);
            }
        };
        if is_read && let Err(detail) = request.reply.hold(&evaluation.answer) {
            return self.refuse(local, request.reply, Refusal::Detail(detail));
        }
        let effect = evaluation.effect.is_some();
        let evaluation = self.leadership(local).prove(evaluation, at, self.shell.dedup());
        let (proved, named) = (!effect && evaluation.effect.is_some(), request.id.is_some());
        if !is_read {
            self.shell.observe(local.at(), CopyEvent::Evaluated { effect, proved, named, answer: &evaluation.answer });
        }
        let Some(mut entry) = evaluation.effect else {
            return self.answer_after(local, request, evaluation.answer);
        };
        if self.broken.breaks(Mutant::TransactionInParts) && matches!(request.op, Op::Transaction(_)) {
            // rule 87
            let rest = entry.changes.split_off(1.min(entry.changes.len()));
            let part = std::mem::replace(&mut entry.changes, rest);
            let _ = self.note(local, Effect::new(at, part));
        }
        let (entry, recorded) = match entry.into_entry() {
            Ok(written) => written,
            Err(error) => {
                self.shell.observe(local.at(), CopyEvent::EntryRefused(&error));
                let detail = ErrorDetail::new(ErrorKind::Internal, format!("the write was not made: {error}"));
                return self.refuse(local, request.reply, Refusal::Detail(detail));
            }
        };
        match self.propose(local, entry) {
            Ok((ticket, seq)) => {
                self.note_expiry(local, &recorded.changes);
                if let Err(error) = local.memtable.push(seq, recorded) {
                    self.damaged.push((local.placement, error.to_string()));
                }
                if let Some(id) = request.id.as_ref().filter(|_| effect) {
                    local.clients.touch(id.client, at, self.shell.dedup());
                }
                let answer = ReadyAnswer { reply: request.reply, outcome: evaluation.answer };
                let (with_entry, after) = if is_read { (None, Some(answer)) } else { (Some(answer), None) };
                local.waiting.commit_first(PendingAnswer { seq, at, ticket: Some(ticket), answer: with_entry });
                if after.is_some() {
                    // If the entry is abandoned, a read has changed nothing.
                    local.waiting.commit_first(PendingAnswer { seq, at: Millis::ZERO, ticket: None, answer: after });
                }
            }
            Err(kind) => self.refuse(local, request.reply, Refusal::NoWrites(kind)),
        }
    }

    /// Returns a write for which there is room; otherwise it waits or is refused.
    fn wait_for_room(&mut self, local: &mut LocalCopy<S>, request: Request<S::Reply>) -> Option<Request<S::Reply>> {
        let Err(kind) = self.room(local) else { return Some(request) };
        let request = match kind {
            ErrorKind::Overloaded => self.park_for(local, request, self.park_limits.room_ms, WaitsFor::Room)?,
            _ => request,
        };
        self.refuse(local, request.reply, Refusal::NoWrites(kind));
        None
    }

    /// Evaluates a named write on a key of another partition: its recorded outcome here, or that it was not and will
    /// not be done here.
    fn moved(&self, asked: Asked<'_>, view: &PartitionView<'_>, at: Millis) -> Result<Evaluation, ViewError> {
        let asked = if self.broken.breaks(Mutant::OwnerFirst) { Asked { id: None, ..asked } } else { asked }; // rule 42
        evaluate_elsewhere(asked, view, at, self.shell.dedup())
    }

    /// Writes an entry without a waiting client.
    pub(crate) fn note(&mut self, local: &mut LocalCopy<S>, effect: Effect) -> Result<(), ErrorKind> {
        let at = effect.at;
        let (entry, effect) = effect.into_entry().map_err(|error| {
            self.shell.observe(local.at(), CopyEvent::EntryRefused(&error));
            ErrorKind::Internal
        })?;
        let (ticket, seq) = self.propose(local, entry)?;
        if let Err(error) = local.memtable.push(seq, effect) {
            self.damaged.push((local.placement, error.to_string()));
        }
        local.waiting.commit_first(PendingAnswer { seq, at, ticket: Some(ticket), answer: None });
        Ok(())
    }

    /// Queues an answer without an effect: it depends on the evaluated state, so it waits until that is committed.
    fn answer_after(&mut self, local: &mut LocalCopy<S>, request: Request<S::Reply>, outcome: Outcome) {
        let seq = local.replica.last().seq;
        let answer = ReadyAnswer { reply: request.reply, outcome };
        if local.replica.commit() >= seq {
            self.answer_write(local, answer);
        } else {
            local.waiting.commit_first(PendingAnswer { seq, at: Millis::ZERO, ticket: None, answer: Some(answer) });
        }
    }

    /// Proposes an entry; returns its ticket and position.
    pub(crate) fn propose(&mut self, local: &mut LocalCopy<S>, entry: Bytes) -> Result<(u64, Seq), ErrorKind> {
        let ticket = local.next_ticket();
        let mut out = self.outputs();
        local.replica.step(self.now, Input::Propose { ticket, entry }, &mut out);
        self.touch(local);
        let verdict = out.iter().find_map(|output| match output {
            Output::Accepted { ticket: accepted, at } if *accepted == ticket => Some(Ok((ticket, at.seq))),
            Output::Refuse { ticket: refused, kind } if *refused == ticket => Some(Err(*kind)),
            _ => None,
        });
        // A proposal alone commits nothing: that takes the disk, and so another turn.
        debug_assert!(!out.iter().any(|output| matches!(output, Output::Commit { .. })));
        self.carry_out(local, out);
        verdict.unwrap_or(Err(ErrorKind::Internal))
    }

    pub(crate) fn room(&self, local: &LocalCopy<S>) -> Result<(), ErrorKind> {
        self.shell.room()?;
        if local.memtable.frozen().is_some() && local.memtable.rows_bytes() >= self.park_limits.gathered_bytes_max {
            return Err(ErrorKind::Overloaded);
        }
        local.replica.admit()
    }

    pub(crate) fn unreadable(&mut self, local: &LocalCopy<S>, error: &ViewError) -> Refusal {
        self.unusable(local, error);
        Refusal::Unreadable(error.to_string())
    }
}

#[cfg(test)]
#[path = "transaction_tests.rs"]
mod transaction_tests;
