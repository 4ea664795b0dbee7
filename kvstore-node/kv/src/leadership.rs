//! What a leadership rests on when an operation comes, and what the leader may do with it. Whoever hosts a leader
//! says how things are; what follows from that is decided here alone.

use super::dedup::DedupLimits;
use super::effect::Effect;
use super::evaluate::Evaluation;
use crate::mutant::Mutant;
use archon_types::Millis;

/// What the leadership of a partition rests on at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Leadership<L> {
    /// No other copy counts, so that nobody else could refuse a leader whose time is over.
    pub alone: bool,
    /// Whether a lease covers the leadership. A question, because most answers do not rest on a clock.
    pub leased: L,
    /// Everything that is in the log is committed.
    pub settled: bool,
}

/// How a read is to be answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reading {
    /// From what is committed here; the answer leaves if the lease still covers it then (PROTOCOL rule 17).
    UnderLease,
    /// After a round in which every follower says that it knows of no higher epoch (PROTOCOL rule 18).
    Confirmed,
}

impl<L: FnOnce() -> bool> Leadership<L> {
    /// Whether an operation may be evaluated, and whether the answer to a committed write may leave. With followers nothing
    /// rests on a clock: writes are committed by all, reads can be confirmed by all. Alone every operation needs the lease.
    pub fn holds(self) -> bool {
        !self.alone || (self.leased)()
    }

    /// How a read that may be evaluated is to be answered.
    pub fn reading(self) -> Reading {
        if self.alone || (self.leased)() { Reading::UnderLease } else { Reading::Confirmed }
    }

    /// What a leader does with a write that it has evaluated, looked at *after* the evaluation.
    ///
    /// An answer without an effect rests on what was seen. Nothing but a lease, or a commit that began afterwards, proves that
    /// this is the newest: a leader that was deposed without knowing it must not answer from the past. So where it is not
    /// proven, an empty effect made at log time `at` is to be committed first (PROTOCOL rule 18).
    pub fn prove(self, mut evaluation: Evaluation, at: Millis, limits: &DedupLimits) -> Evaluation {
        if evaluation.effect.is_some() || limits.breaks(Mutant::AnswerUnproven) {
            return evaluation;
        }
        let proven = self.alone || (self.settled && (self.leased)());
        evaluation.effect = (!proven).then(|| Effect::new(at, Vec::new()));
        evaluation
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use archon_types::{Answer, Revision};

    /// Every combination of alone, leased and settled.
    fn all() -> impl Iterator<Item = (bool, bool, bool)> {
        (0..8).map(|bits| (bits & 1 > 0, bits & 2 > 0, bits & 4 > 0))
    }

    fn leadership((alone, leased, settled): (bool, bool, bool)) -> Leadership<impl Fn() -> bool> {
        Leadership { alone, leased: move || leased, settled }
    }

    fn unchanged() -> Evaluation {
        Evaluation { effect: None, answer: Ok(Answer::ConditionFailed { revision: Revision::new(3) }) }
    }

    #[test]
    fn alone_everything_needs_the_lease_and_with_followers_nothing_does() {
        for (alone, leased, settled) in all() {
            let stands = (alone, leased, settled);
            assert_eq!(leadership(stands).holds(), !alone || leased, "{stands:?}");
            assert_eq!(leadership(stands).reading() == Reading::Confirmed, !alone && !leased, "{stands:?}");
        }
    }

    archon_types::shown_by! {
        AnswerUnproven => a_leader_that_may_be_deposed_commits_before_it_answers_from_what_it_saw,
    }

    fn a_leader_that_may_be_deposed_commits_before_it_answers_from_what_it_saw(mutant: Option<Mutant>) -> bool {
        let limits = DedupLimits { mutant, ..DedupLimits::DEFAULT };
        all().all(|(alone, leased, settled)| {
            let proven = leadership((alone, leased, settled)).prove(unchanged(), Millis::new(7), &limits);
            assert_eq!(proven.answer, unchanged().answer);
            let proven_anyway = alone || (leased && settled);
            let first = (!proven_anyway).then(|| Effect::new(Millis::new(7), vec![]));
            proven.effect == first
        })
    }

    #[test]
    fn an_effect_is_left_as_it_is() {
        let effect = Effect::new(Millis::new(1), vec![]);
        let evaluation = Evaluation { effect: Some(effect), ..unchanged() };
        for stands in all() {
            assert_eq!(leadership(stands).prove(evaluation.clone(), Millis::new(7), &DedupLimits::DEFAULT), evaluation);
        }
    }
}
