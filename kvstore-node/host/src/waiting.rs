//! Clients that wait for one partition: for a write to be committed, for a lease that covers its answer, for a round that
//! confirms a read, or for a leadership to settle.
//!
//! Whoever waited when a leadership ends is told what is true: that nothing happened, or that the outcome is unknown.

use crate::mutant::{Broken, Mutant};
use archon_types::{Millis, Seq};
use std::collections::{BTreeMap, VecDeque};

/// An answer that waits for a position to be committed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pending<R, O> {
    /// The position.
    pub seq: Seq,
    /// Log time of the effect there, zero if this answer comes without one.
    pub at: Millis,
    /// The proposal, to find it when the replica abandons it; none if the answer rests on what others wrote.
    pub ticket: Option<u64>,
    /// Who is answered, and with what; nobody, where the node wrote for itself.
    pub answer: Option<ReadyAnswer<R, O>>,
}

/// An answer that may leave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadyAnswer<R, O> {
    /// Who is answered.
    pub reply: R,
    /// The answer.
    pub outcome: O,
}

/// What those are told who waited in vain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// A write may have taken effect, or may still.
    Unknown,
    /// Nothing was changed: it may be asked again, of whoever leads next.
    ChangedNothing,
}

/// Who waits. `Q` is an operation, `R` is to whom an answer goes, `O` is the answer.
#[derive(Debug)]
pub struct Waiting<Q, R, O> {
    /// In order of position.
    pending: VecDeque<Pending<R, O>>,
    /// Committed, but no valid lease covers the answer.
    held: Vec<ReadyAnswer<R, O>>,
    /// Reads that wait for a round of confirmations, by its ticket.
    confirms: BTreeMap<u64, Q>,
    /// Operations that wait for the leadership to settle, in order of arrival.
    parked: Vec<Q>,
    /// Log time of what is committed, as clients are told it.
    log_time: Millis,
    broken: Broken,
}

impl<Q, R, O> Default for Waiting<Q, R, O> {
    fn default() -> Self {
        Self {
            pending: VecDeque::new(),
            held: Vec::new(),
            confirms: BTreeMap::new(),
            parked: Vec::new(),
            log_time: Millis::ZERO,
            broken: Broken::default(),
        }
    }
}

impl<Q, R, O> Waiting<Q, R, O> {
    /// Nobody waits yet.
    pub fn new(broken: Broken) -> Self {
        Self { broken, ..Self::default() }
    }

    /// Log time of what is committed, as clients are told it.
    pub const fn log_time(&self) -> Millis {
        self.log_time
    }

    /// Sets the log time that clients are told: a leader serves only once its whole log is committed.
    pub const fn serve(&mut self, log_time: Millis) {
        self.log_time = log_time;
    }

    /// Has an answer wait for its position; positions of those that wait never fall.
    pub fn commit_first(&mut self, pending: Pending<R, O>) {
        debug_assert!(self.pending.back().is_none_or(|last| last.seq <= pending.seq));
        self.pending.push_back(pending);
    }

    /// The next answer, with its position, now that everything up to `upto` is committed; `None` once there is no more.
    pub fn committed(&mut self, upto: Seq) -> Option<ReadyAnswer<R, O>> {
        let any = self.broken.breaks(Mutant::AnswerUncommitted);
        while let Some(pending) = self.pending.pop_front_if(|pending| any || pending.seq <= upto) {
            self.log_time = self.log_time.max(pending.at);
            if pending.answer.is_some() {
                return pending.answer;
            }
        }
        None
    }

    /// Keeps an answer to something committed until a lease covers it (PROTOCOL rule 17).
    pub fn hold(&mut self, answer: ReadyAnswer<R, O>) {
        self.held.push(answer);
    }

    /// How many answers wait for a lease.
    pub const fn held(&self) -> usize {
        self.held.len()
    }

    /// The answers that waited for a lease, which there is again.
    pub fn release(&mut self) -> Vec<ReadyAnswer<R, O>> {
        std::mem::take(&mut self.held)
    }

    /// Has a read wait for the round of this ticket.
    pub fn confirm_first(&mut self, ticket: u64, read: Q) {
        self.confirms.insert(ticket, read);
    }

    /// The read that waited for the round of this ticket.
    pub fn confirmed(&mut self, ticket: u64) -> Option<Q> {
        self.confirms.remove(&ticket)
    }

    /// How many operations wait for the leadership to settle.
    pub const fn parked(&self) -> usize {
        self.parked.len()
    }

    /// Has an operation wait for the leadership to settle.
    pub fn park(&mut self, operation: Q) {
        self.parked.push(operation);
    }

    /// The operations that waited for the leadership to settle, in order of arrival.
    pub fn unpark(&mut self) -> Vec<Q> {
        std::mem::take(&mut self.parked)
    }

    /// The replica has abandoned these proposals: whoever made them cannot know the outcome.
    pub fn abandon(&mut self, tickets: &[u64]) -> Vec<(R, Ended)> {
        let ended = match self.broken.breaks(Mutant::AbandonedChangedNothing) {
            true => Ended::ChangedNothing,
            false => Ended::Unknown,
        };
        self.end_pending(ended, |ticket| ticket.is_some_and(|ticket| tickets.contains(&ticket)))
    }

    /// The replica serves no longer. What is committed and waits for a lease will not get one, and an answer that rests on
    /// what is uncommitted will not be true; what was proposed is abandoned by the replica itself.
    pub fn rest(&mut self) -> Vec<(R, Ended)> {
        let mut ended = self.end_held();
        ended.extend(self.end_pending(Ended::ChangedNothing, |ticket| ticket.is_none()));
        ended
    }

    /// Nobody is answered here any more.
    pub fn end(&mut self, reply_of: impl Fn(Q) -> R) -> Vec<(R, Ended)> {
        let mut ended = self.end_pending(Ended::Unknown, |_| true);
        ended.extend(self.end_held());
        let operations = std::mem::take(&mut self.confirms).into_values().chain(std::mem::take(&mut self.parked));
        ended.extend(operations.map(|operation| (reply_of(operation), Ended::ChangedNothing)));
        ended
    }

    fn end_held(&mut self) -> Vec<(R, Ended)> {
        self.release().into_iter().map(|answer| (answer.reply, Ended::Unknown)).collect()
    }

    fn end_pending(&mut self, ended: Ended, which: impl Fn(Option<u64>) -> bool) -> Vec<(R, Ended)> {
        let (gone, kept) = std::mem::take(&mut self.pending).into_iter().partition(|pending| which(pending.ticket));
        self.pending = kept;
        let gone: VecDeque<Pending<R, O>> = gone;
        gone.into_iter().filter_map(|pending| Some((pending.answer?.reply, ended))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Names = Waiting<&'static str, &'static str, u32>;

    fn pending(seq: u64, ticket: Option<u64>, reply: &'static str) -> Pending<&'static str, u32> {
        Pending {
            seq: Seq::new(seq),
            at: Millis::new(seq * 10),
            ticket,
            answer: Some(ReadyAnswer { reply, outcome: 7 }),
        }
    }

    fn waiting() -> Names {
        let mut waiting = Names::default();
        waiting.commit_first(pending(1, Some(1), "first"));
        waiting.commit_first(Pending { answer: None, ..pending(2, Some(2), "nobody") });
        waiting.commit_first(Pending { at: Millis::ZERO, ..pending(2, None, "saw it") });
        waiting.commit_first(pending(3, Some(3), "third"));
        waiting
    }

    fn no_answer_leaves_before_its_entry_is_committed(mutant: Option<Mutant>) -> bool {
        let mut waiting = Names::new(Broken::by(mutant));
        waiting.commit_first(pending(2, Some(1), "second"));
        waiting.committed(Seq::new(1)).is_none()
    }

    fn an_abandoned_write_is_not_said_to_have_changed_nothing(mutant: Option<Mutant>) -> bool {
        let mut waiting = Names::new(Broken::by(mutant));
        waiting.commit_first(pending(2, Some(1), "second"));
        waiting.abandon(&[1]) == [("second", Ended::Unknown)]
    }

    archon_types::shown_by! {
        AnswerUncommitted => no_answer_leaves_before_its_entry_is_committed,
        AbandonedChangedNothing => an_abandoned_write_is_not_said_to_have_changed_nothing,
    }

    #[test]
    fn answers_come_in_order_of_position_and_with_the_log_time_of_what_is_committed() {
        let mut waiting = waiting();
        assert_eq!(waiting.committed(Seq::ZERO), None);
        assert_eq!(waiting.committed(Seq::new(2)), Some(ReadyAnswer { reply: "first", outcome: 7 }));
        assert_eq!(waiting.log_time(), Millis::new(10));
        assert_eq!(waiting.committed(Seq::new(2)).map(|answer| answer.reply), Some("saw it"));
        assert_eq!(waiting.log_time(), Millis::new(20), "an answer without an effect has no time of its own");
        assert_eq!(waiting.committed(Seq::new(2)), None);
    }

    #[test]
    fn an_abandoned_write_has_an_unknown_outcome_and_what_rests_on_others_changed_nothing() {
        let mut waiting = waiting();
        waiting.hold(ReadyAnswer { reply: "held", outcome: 7 });
        assert_eq!(waiting.abandon(&[3, 9]), [("third", Ended::Unknown)]);
        assert_eq!(waiting.rest(), [("held", Ended::Unknown), ("saw it", Ended::ChangedNothing)]);
        assert_eq!(waiting.committed(Seq::new(9)).map(|answer| answer.reply), Some("first"), "what is left goes on");
    }

    #[test]
    fn at_the_end_everybody_is_told() {
        let mut waiting = waiting();
        waiting.hold(ReadyAnswer { reply: "held", outcome: 7 });
        waiting.confirm_first(5, "read");
        waiting.park("parked");
        let ended = waiting.end(|operation| operation);
        let unknown = ["first", "saw it", "third", "held"].map(|reply| (reply, Ended::Unknown));
        let nothing = ["read", "parked"].map(|reply| (reply, Ended::ChangedNothing));
        assert_eq!(ended, [&unknown[..], &nothing].concat());
        assert_eq!((waiting.held(), waiting.parked(), waiting.committed(Seq::new(9))), (0, 0, None));
    }
}
