//! Judgement of later generations that answer at members' addresses (PROTOCOL rule 60).

use std::time::{Duration, Instant};

/// Rounds of questions in a row, answered by a majority, in which no later generation answers, until this coordinator counts as working.
const QUIET_ROUNDS: u32 = 3;
/// Rounds in a row in which a later generation answers until a coordinator that does not work ends: another member may vouch for it.
const LATER_ROUNDS: u32 = 2;
/// Absence of a majority after which a coordinator does not count as working: an upgrade restarts members for less.
const MAJORITY_ABSENCE_MAX: Duration = Duration::from_secs(60);

/// Answers of the members to one round of questions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    /// A majority of the own voters answered as members of the own generation, this coordinator counted.
    pub(super) majority: bool,
    /// One of them works.
    pub(super) vouched: bool,
    /// The latest generation that answered and continues the own one.
    pub(super) later: Option<u64>,
}

/// Consequence of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// No later generation answers.
    Quiet,
    /// One answers, and this coordinator goes on.
    GoesOn,
    /// One answers, and the next round decides.
    Undecided,
    /// This coordinator ends.
    Outlived(u64),
}

/// Detects that this coordinator works with a majority of its quorum since before a later generation answered. Old coordinators that
/// are started again after a recovery are a majority, too, but hear of the later generation first.
#[derive(Debug, Default)]
pub(super) struct LaterGenerations {
    quiet_rounds: u32,
    later_rounds: u32,
    works: bool,
    majority_at: Option<Instant>,
}

impl LaterGenerations {
    /// Returns whether this coordinator works.
    pub(super) fn works(&self) -> bool {
        self.works
    }

    /// Judges the answers to a round that ended at `now`.
    pub(super) fn judge(&mut self, now: Instant, round: Round) -> Verdict {
        if round.majority {
            self.majority_at = Some(now);
        } else if self.majority_at.is_none_or(|at| now.duration_since(at) > MAJORITY_ABSENCE_MAX) {
            self.works = false;
        }
        let quiet = round.majority && round.later.is_none();
        self.quiet_rounds = if quiet { self.quiet_rounds.saturating_add(1) } else { 0 };
        self.works |= self.quiet_rounds >= QUIET_ROUNDS || (round.majority && round.vouched);
        let Some(later) = round.later else {
            self.later_rounds = 0;
            return Verdict::Quiet;
        };
        self.later_rounds = self.later_rounds.saturating_add(1);
        match self.works {
            true => Verdict::GoesOn,
            false if self.later_rounds < LATER_ROUNDS => Verdict::Undecided,
            false => Verdict::Outlived(later),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Round = Round { majority: true, vouched: false, later: None };
    const LATER: Round = Round { later: Some(2), ..QUIET };
    const ALONE: Round = Round { majority: false, ..LATER };

    fn working(now: Instant) -> LaterGenerations {
        let mut generations = LaterGenerations::default();
        for _ in 0..QUIET_ROUNDS {
            assert_eq!(generations.judge(now, QUIET), Verdict::Quiet);
        }
        assert!(generations.works());
        generations
    }

    #[test]
    fn working_coordinator_goes_on_beside_a_later_generation() {
        let now = Instant::now();
        let mut generations = working(now);
        for round in 0..10 {
            assert_eq!(generations.judge(now + Duration::from_secs(round * 60), LATER), Verdict::GoesOn);
        }
    }

    #[test]
    fn old_majority_that_is_started_again_ends() {
        let now = Instant::now();
        let mut generations = LaterGenerations::default();
        assert_eq!(generations.judge(now, LATER), Verdict::Undecided);
        assert_eq!(generations.judge(now, LATER), Verdict::Outlived(2));
        // A round in which the later one does not answer changes nothing.
        let mut generations = LaterGenerations::default();
        assert_eq!(
            [QUIET, LATER, QUIET, QUIET].map(|round| generations.judge(now, round)).last(),
            Some(&Verdict::Quiet)
        );
        assert_eq!(generations.judge(now, LATER), Verdict::Undecided);
        assert_eq!(generations.judge(now, LATER), Verdict::Outlived(2));
    }

    #[test]
    fn coordinator_without_a_majority_ends_after_a_minute() {
        let now = Instant::now();
        let mut generations = working(now);
        assert_eq!(generations.judge(now + MAJORITY_ABSENCE_MAX, ALONE), Verdict::GoesOn);
        let later = now + MAJORITY_ABSENCE_MAX + Duration::from_secs(1);
        assert_eq!(generations.judge(later, ALONE), Verdict::Outlived(2));
        assert!(!generations.works());
    }

    #[test]
    fn restarted_coordinator_goes_on_if_a_working_one_vouches() {
        let now = Instant::now();
        let mut generations = LaterGenerations::default();
        assert_eq!(generations.judge(now, ALONE), Verdict::Undecided);
        assert_eq!(generations.judge(now, Round { vouched: true, ..LATER }), Verdict::GoesOn);
        // A member that vouches without a majority proves nothing.
        let mut generations = LaterGenerations::default();
        assert_eq!(generations.judge(now, Round { vouched: true, ..ALONE }), Verdict::Undecided);
        assert_eq!(generations.judge(now, Round { vouched: true, ..ALONE }), Verdict::Outlived(2));
    }
}
