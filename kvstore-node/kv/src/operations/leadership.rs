//! Basis of a leadership at the time of an operation, and the actions it permits. The host of a leader supplies the
//! facts; this module alone decides.

use super::effect::Effect;
use super::evaluate::Evaluation;
use crate::exactly_once::dedup::DedupLimits;
use crate::mutant::Mutant;
use archon_types::Millis;

/// Basis of a partition's leadership at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Leadership<L> {
    /// There is no other in-sync copy, so no other copy could refuse a leader with an expired lease.
    pub alone: bool,
    /// Returns whether a lease covers the leadership. A function, because most answers depend on no clock.
    pub leased: L,
    /// Everything in the log is committed.
    pub settled: bool,
}

/// Way to answer a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadMode {
    /// From committed rows; the answer is sent if the lease still covers it then (PROTOCOL rule 17).
    UnderLease,
    /// After a round in which every follower confirms that it knows no higher epoch (PROTOCOL rule 18).
    Confirmed,
}

impl<L: FnOnce() -> bool> Leadership<L> {
    /// Returns whether an operation may be evaluated, and whether the answer to a committed write may be sent. With
    /// followers nothing depends on a clock: all of them commit writes, and can confirm reads. A sole copy needs the
    /// lease for every operation.
    pub fn holds(self) -> bool {
        !self.alone || (self.leased)()
    }

    /// Returns the way to answer a read that may be evaluated.
    pub fn reading(self) -> ReadMode {
        if self.alone || (self.leased)() { ReadMode::UnderLease } else { ReadMode::Confirmed }
    }

    /// Completes a write *after* its evaluation.
    ///
    /// An answer without an effect depends on the rows seen. Only a lease, or a commit that began afterwards, proves
    /// that these are the newest: a leader deposed without knowing it must not answer from stale rows. Without proof,
    /// an empty effect at log time `at` is committed first (PROTOCOL rule 18).
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
        Evaluation { effect: None, answer: Ok(Answer::ConditionFailed { revision: Revision::new(3) }), expired: None }
    }

    #[test]
    fn only_sole_copy_needs_lease() {
        for (alone, leased, settled) in all() {
            let stands = (alone, leased, settled);
            assert_eq!(leadership(stands).holds(), !alone || leased, "{stands:?}");
            assert_eq!(leadership(stands).reading() == ReadMode::Confirmed, !alone && !leased, "{stands:?}");
        }
    }

    archon_types::shown_by! {
        AnswerUnproven => unproven_answer_waits_for_empty_commit,
    }

    fn unproven_answer_waits_for_empty_commit(mutant: Option<Mutant>) -> bool {
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
    fn proof_keeps_existing_effect() {
        let effect = Effect::new(Millis::new(1), vec![]);
        let evaluation = Evaluation { effect: Some(effect), ..unchanged() };
        for stands in all() {
            assert_eq!(leadership(stands).prove(evaluation.clone(), Millis::new(7), &DedupLimits::DEFAULT), evaluation);
        }
    }
}
