//! Clients that wait on one partition: for a commit, for a lease that covers the answer, for a round that confirms a
//! read, or for a leadership to settle.
//!
//! When a leadership ends, each waiting client gets the truth: nothing happened, or the outcome is unknown.

use crate::mutant::{DisabledRule, Mutant};
use archon_types::{Millis, Seq};
use std::collections::{BTreeMap, VecDeque};

/// Answer that waits for a position to be committed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PendingAnswer<R, O> {
    /// The position.
    pub seq: Seq,
    /// Log time of the effect there; zero for an answer without one.
    pub at: Millis,
    /// The proposal, to find it when the replica abandons it; none if the answer depends on earlier writes.
    pub ticket: Option<u64>,
    /// The answer; none if the node wrote for itself.
    pub answer: Option<ReadyAnswer<R, O>>,
}

/// Answer ready to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadyAnswer<R, O> {
    /// Its destination.
    pub reply: R,
    /// The answer.
    pub outcome: O,
}

/// Outcome of an operation that ended without an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnansweredOutcome {
    /// A write may have taken effect, or still may.
    Unknown,
    /// Nothing was changed: the client may retry at the next leader.
    ChangedNothing,
}

/// Waiting clients. `Q` is an operation, `R` the destination of an answer, `O` the answer.
#[derive(Debug)]
pub struct WaitingClients<Q, R, O> {
    /// In order of position.
    pending: VecDeque<PendingAnswer<R, O>>,
    /// Committed, but no valid lease covers the answer.
    held: Vec<ReadyAnswer<R, O>>,
    /// Reads that wait for a round of confirmations, by ticket.
    confirms: BTreeMap<u64, Q>,
    /// Reads that are looked up again once a position is committed, in order of position.
    due: VecDeque<(Seq, Q)>,
    /// Operations that wait for the leadership to settle, in order of arrival.
    parked: Vec<Q>,
    /// Log time of the last committed effect, as sent to clients.
    log_time: Millis,
    /// Log time of the last effect that was committed in this leadership.
    decided: Millis,
    /// Log time of the last effect that was proposed in this leadership.
    proposed: Millis,
    broken: DisabledRule,
}

impl<Q, R, O> Default for WaitingClients<Q, R, O> {
    fn default() -> Self {
        Self {
            pending: VecDeque::new(),
            held: Vec::new(),
            confirms: BTreeMap::new(),
            due: VecDeque::new(),
            parked: Vec::new(),
            log_time: Millis::ZERO,
            decided: Millis::ZERO,
            proposed: Millis::ZERO,
            broken: DisabledRule::default(),
        }
    }
}

impl<Q, R, O> WaitingClients<Q, R, O> {
    /// Starts without waiting clients.
    pub fn new(broken: DisabledRule) -> Self {
        Self { broken, ..Self::default() }
    }

    /// Returns the log time of the last committed effect, as sent to clients.
    pub const fn log_time(&self) -> Millis {
        self.log_time
    }

    /// Sets the log time sent to clients: a leader serves only once its whole log is committed.
    pub const fn serve(&mut self, log_time: Millis) {
        self.log_time = log_time;
        self.decided = Millis::ZERO;
        self.proposed = Millis::ZERO;
    }

    /// Returns the log time of the last effect that was committed in this leadership: every later leader has it. The time
    /// that a leader begins with may be its own copy's, if that was formed in a split.
    pub const fn decided(&self) -> Millis {
        self.decided
    }

    /// Queues an answer until its position is committed; positions in the queue never fall.
    pub fn commit_first(&mut self, pending: PendingAnswer<R, O>) {
        debug_assert!(self.pending.back().is_none_or(|last| last.seq <= pending.seq));
        self.proposed = self.proposed.max(pending.at);
        self.pending.push_back(pending);
    }

    /// Returns the last uncommitted position, if the effects up to there reach log time `due`.
    pub fn covers(&self, due: Millis) -> Option<Seq> {
        self.pending.back().filter(|_| due <= self.proposed).map(|last| last.seq)
    }

    /// Queues a read until a position is committed.
    pub fn look_up_after(&mut self, seq: Seq, read: Q) {
        self.due.push_back((seq, read));
    }

    /// Takes the next read that waited for a position up to `upto`.
    pub fn look_up_again(&mut self, upto: Seq) -> Option<Q> {
        self.due.pop_front_if(|(seq, _)| *seq <= upto).map(|(_, read)| read)
    }

    /// Returns the next answer with a position up to `upto`, which is committed; `None` once none is left.
    pub fn committed(&mut self, upto: Seq) -> Option<ReadyAnswer<R, O>> {
        let any = self.broken.breaks(Mutant::AnswerUncommitted);
        while let Some(pending) = self.pending.pop_front_if(|pending| any || pending.seq <= upto) {
            self.log_time = self.log_time.max(pending.at);
            self.decided = self.decided.max(pending.at);
            if pending.answer.is_some() {
                return pending.answer;
            }
        }
        None
    }

    /// Holds an answer to a committed operation until a lease covers it (PROTOCOL rule 17).
    pub fn hold(&mut self, answer: ReadyAnswer<R, O>) {
        self.held.push(answer);
    }

    /// Returns the number of answers that wait for a lease.
    pub const fn held(&self) -> usize {
        self.held.len()
    }

    /// Takes the answers that waited for a lease, now that there is one again.
    pub fn release(&mut self) -> Vec<ReadyAnswer<R, O>> {
        std::mem::take(&mut self.held)
    }

    /// Queues a read until the round of this ticket.
    pub fn confirm_first(&mut self, ticket: u64, read: Q) {
        self.confirms.insert(ticket, read);
    }

    /// Takes the read that waited for the round of this ticket.
    pub fn confirmed(&mut self, ticket: u64) -> Option<Q> {
        self.confirms.remove(&ticket)
    }

    /// Returns the number of operations that wait for the leadership to settle.
    pub const fn parked(&self) -> usize {
        self.parked.len()
    }

    /// Parks an operation until the leadership settles.
    pub fn park(&mut self, operation: Q) {
        self.parked.push(operation);
    }

    /// Takes the parked operations, in order of arrival.
    pub fn unpark(&mut self) -> Vec<Q> {
        std::mem::take(&mut self.parked)
    }

    /// Ends proposals that the replica has abandoned: their outcome is unknown.
    pub fn abandon(&mut self, tickets: &[u64]) -> Vec<(R, UnansweredOutcome)> {
        let ended = match self.broken.breaks(Mutant::AbandonedChangedNothing) {
            true => UnansweredOutcome::ChangedNothing,
            false => UnansweredOutcome::Unknown,
        };
        self.end_pending(ended, |ticket| ticket.is_some_and(|ticket| tickets.contains(&ticket)))
    }

    /// Ends the answers that a copy can no longer send once it stops serving: held ones get no lease, and those that
    /// depend on uncommitted entries may be untrue. The replica itself abandons proposals.
    pub fn rest(&mut self) -> Vec<(R, UnansweredOutcome)> {
        let mut ended = self.end_held();
        ended.extend(self.end_pending(UnansweredOutcome::ChangedNothing, |ticket| ticket.is_none()));
        ended
    }

    /// Ends all waiting operations.
    pub fn end(&mut self, reply_of: impl Fn(Q) -> R) -> Vec<(R, UnansweredOutcome)> {
        let mut ended = self.end_pending(UnansweredOutcome::Unknown, |_| true);
        ended.extend(self.end_held());
        let due = std::mem::take(&mut self.due).into_iter().map(|(_, read)| read);
        let operations = std::mem::take(&mut self.confirms).into_values().chain(due);
        let operations = operations.chain(std::mem::take(&mut self.parked));
        ended.extend(operations.map(|operation| (reply_of(operation), UnansweredOutcome::ChangedNothing)));
        ended
    }

    fn end_held(&mut self) -> Vec<(R, UnansweredOutcome)> {
        self.release().into_iter().map(|answer| (answer.reply, UnansweredOutcome::Unknown)).collect()
    }

    fn end_pending(
        &mut self,
        ended: UnansweredOutcome,
        which: impl Fn(Option<u64>) -> bool,
    ) -> Vec<(R, UnansweredOutcome)> {
        let (gone, kept) = std::mem::take(&mut self.pending).into_iter().partition(|pending| which(pending.ticket));
        self.pending = kept;
        let gone: VecDeque<PendingAnswer<R, O>> = gone;
        gone.into_iter().filter_map(|pending| Some((pending.answer?.reply, ended))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Names = WaitingClients<&'static str, &'static str, u32>;

    fn pending(seq: u64, ticket: Option<u64>, reply: &'static str) -> PendingAnswer<&'static str, u32> {
        PendingAnswer {
            seq: Seq::new(seq),
            at: Millis::new(seq * 10),
            ticket,
            answer: Some(ReadyAnswer { reply, outcome: 7 }),
        }
    }

    fn waiting() -> Names {
        let mut waiting = Names::default();
        waiting.commit_first(pending(1, Some(1), "first"));
        waiting.commit_first(PendingAnswer { answer: None, ..pending(2, Some(2), "nobody") });
        waiting.commit_first(PendingAnswer { at: Millis::ZERO, ..pending(2, None, "saw it") });
        waiting.commit_first(pending(3, Some(3), "third"));
        waiting
    }

    fn answer_waits_for_commit_of_its_entry(mutant: Option<Mutant>) -> bool {
        let mut waiting = Names::new(DisabledRule::by(mutant));
        waiting.commit_first(pending(2, Some(1), "second"));
        waiting.committed(Seq::new(1)).is_none()
    }

    fn abandoned_write_has_unknown_outcome(mutant: Option<Mutant>) -> bool {
        let mut waiting = Names::new(DisabledRule::by(mutant));
        waiting.commit_first(pending(2, Some(1), "second"));
        waiting.abandon(&[1]) == [("second", UnansweredOutcome::Unknown)]
    }

    archon_types::shown_by! {
        AnswerUncommitted => answer_waits_for_commit_of_its_entry,
        AbandonedChangedNothing => abandoned_write_has_unknown_outcome,
    }

    #[test]
    fn answers_are_sent_in_order_with_committed_log_time() {
        let mut waiting = waiting();
        assert_eq!(waiting.committed(Seq::ZERO), None);
        assert_eq!(waiting.committed(Seq::new(2)), Some(ReadyAnswer { reply: "first", outcome: 7 }));
        assert_eq!(waiting.log_time(), Millis::new(10));
        assert_eq!(waiting.committed(Seq::new(2)).map(|answer| answer.reply), Some("saw it"));
        assert_eq!(waiting.log_time(), Millis::new(20), "an answer without an effect has no time of its own");
        assert_eq!(waiting.committed(Seq::new(2)), None);
    }

    #[test]
    fn rest_ends_dependent_answers_as_changed_nothing() {
        let mut waiting = waiting();
        waiting.hold(ReadyAnswer { reply: "held", outcome: 7 });
        assert_eq!(waiting.abandon(&[3, 9]), [("third", UnansweredOutcome::Unknown)]);
        assert_eq!(
            waiting.rest(),
            [("held", UnansweredOutcome::Unknown), ("saw it", UnansweredOutcome::ChangedNothing)]
        );
        assert_eq!(waiting.committed(Seq::new(9)).map(|answer| answer.reply), Some("first"), "what is left goes on");
    }

    #[test]
    fn end_answers_all_waiting_clients() {
        let mut waiting = waiting();
        waiting.hold(ReadyAnswer { reply: "held", outcome: 7 });
        waiting.confirm_first(5, "read");
        waiting.look_up_after(Seq::new(3), "due");
        waiting.park("parked");
        let ended = waiting.end(|operation| operation);
        let unknown = ["first", "saw it", "third", "held"].map(|reply| (reply, UnansweredOutcome::Unknown));
        let nothing = ["read", "due", "parked"].map(|reply| (reply, UnansweredOutcome::ChangedNothing));
        assert_eq!(ended, [&unknown[..], &nothing].concat());
        assert_eq!((waiting.held(), waiting.parked(), waiting.committed(Seq::new(9))), (0, 0, None));
    }
}
