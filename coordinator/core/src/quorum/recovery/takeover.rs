//! Takeover from the generations before a recovery: decides from the answers of their coordinators when this one takes their place
//! (PROTOCOL rule 60).

use crate::state::recovery::Recovery;
use archon_types::Millis;

/// Quiet rounds in a row before this generation takes over: one lost answer proves nothing.
const QUIET_ROUNDS: u32 = 3;
/// The same before it leads once it has taken over: a connection to a process that is paused for a second fails.
const LEAD_ROUNDS: u32 = 2;
/// Shortest wait before this generation takes over, in milliseconds: coordinators that this one does not know ask it every 5 s.
const LISTENED_MS: u64 = 6_000;
/// The same where a former coordinator runs: longer than a restart of their quorum takes.
const QUORUM_RESTARTS_MS: u64 = 60_000;
/// Longest pause within a round, or between two. A longer one restarts the wait, because the answers are from before it.
const PAUSE_MAX_MS: u64 = 10_000;

/// The strongest answer of the former coordinators to a round of questions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FormerAnswer {
    /// None of them answered.
    Silent,
    /// Some run, and none of these works with a majority.
    Idle,
    /// One of them works with a majority.
    Works,
}

/// A round of questions to the former coordinators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FormerRound {
    /// Before the first question was sent.
    pub began: Millis,
    /// After the last answer came, or its deadline passed.
    pub ended: Millis,
    /// The strongest answer.
    pub answer: FormerAnswer,
}

/// The facts about the former coordinators that are committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FormerFacts {
    /// One of them worked with a majority during the recovery. This generation then takes over by an operator's order only.
    pub worked: bool,
    /// This generation has taken their place.
    pub taken_over: bool,
}

impl Recovery {
    /// Returns the committed facts about the former coordinators.
    pub const fn former_facts(&self) -> FormerFacts {
        FormerFacts { worked: self.former_worked, taken_over: self.has_taken_over() }
    }
}

/// Consequence of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TakeoverStep {
    /// Ask again.
    Ask,
    /// Commit [`crate::Command::NoteFormerQuorum`], and ask again.
    NoteFormerQuorum,
    /// Commit [`crate::Command::TakeOver`], and ask again.
    TakeOver,
    /// Lead: settle, take members, grant leases.
    Lead,
}

/// A leader's wait for the former coordinators. Each leadership begins with a new one.
///
/// It takes over by time alone only if no former coordinator was heard to work. Otherwise the recovery may be a trial,
/// and an outage of the former quorum must not end the cluster.
///
/// Two histories never grant at the same time if their coordinators reach each other. A leader commits `TakeOver` first, and then
/// leads after rounds of questions to which no former coordinator answers that it works. A former coordinator works first, and
/// then grants after a round of questions to which no coordinator answers that it has taken over. Each announces itself before it asks, so at
/// least one of two that begin at once hears of the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Takeover {
    /// Since when none of them was heard to work.
    since: Millis,
    /// The end of the last round.
    last: Millis,
    quiet_rounds: u32,
    /// Those of them that began after this generation had taken over.
    lead_rounds: u32,
    /// One of them runs.
    alive: bool,
    /// One of them was heard to work, which may not be committed yet.
    worked: bool,
}

impl Takeover {
    /// Creates the wait of a leadership that began at `now`, on the clock that includes suspend.
    pub const fn new(now: Millis) -> Self {
        Self { since: now, last: now, quiet_rounds: 0, lead_rounds: 0, alive: false, worked: false }
    }

    /// Returns true if no former coordinator worked in the last rounds: an operator may order this generation to take over.
    pub const fn is_quiet(&self) -> bool {
        self.quiet_rounds >= QUIET_ROUNDS
    }

    /// Judges a round. `facts` are of a state that a majority confirmed before the round began.
    pub fn judge(&mut self, facts: FormerFacts, round: FormerRound) -> TakeoverStep {
        let FormerRound { began, ended, answer } = round;
        if began.since(self.last) > PAUSE_MAX_MS || ended.since(began) > PAUSE_MAX_MS {
            *self = Self { alive: self.alive, worked: self.worked, ..Self::new(ended) };
            return TakeoverStep::Ask;
        }
        self.last = ended;
        self.alive |= answer != FormerAnswer::Silent;
        if answer == FormerAnswer::Works {
            (self.since, self.quiet_rounds, self.lead_rounds) = (ended, 0, 0);
            self.worked = true;
        } else {
            self.quiet_rounds = self.quiet_rounds.saturating_add(1);
        }
        if facts.taken_over {
            self.lead_rounds = if answer == FormerAnswer::Works { 0 } else { self.lead_rounds.saturating_add(1) };
            return if self.lead_rounds < LEAD_ROUNDS { TakeoverStep::Ask } else { TakeoverStep::Lead };
        }
        if self.worked || facts.worked {
            return if facts.worked { TakeoverStep::Ask } else { TakeoverStep::NoteFormerQuorum };
        }
        let wait_ms = if self.alive { QUORUM_RESTARTS_MS } else { LISTENED_MS };
        match self.is_quiet() && began.since(self.since) >= wait_ms {
            true => TakeoverStep::TakeOver,
            false => TakeoverStep::Ask,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNKNOWN: FormerFacts = FormerFacts { worked: false, taken_over: false };
    const WORKED: FormerFacts = FormerFacts { worked: true, ..UNKNOWN };
    const TAKEN: FormerFacts = FormerFacts { taken_over: true, ..UNKNOWN };

    fn round(began: u64, answer: FormerAnswer) -> FormerRound {
        FormerRound { began: Millis::new(began), ended: Millis::new(began + 100), answer }
    }

    /// Repeats this answer every half second. Returns the first step other than another question, and its time.
    fn ask(takeover: &mut Takeover, facts: FormerFacts, answer: FormerAnswer, from: u64) -> (u64, TakeoverStep) {
        let steps = (0..400).map(|number| from + number * 500);
        let mut steps = steps.map(|at| (at, takeover.judge(facts, round(at, answer))));
        steps.find(|(_, step)| *step != TakeoverStep::Ask).unwrap_or((u64::MAX, TakeoverStep::Ask))
    }

    #[test]
    fn silent_coordinators_are_taken_over_after_listening() {
        let mut takeover = Takeover::new(Millis::ZERO);
        assert_eq!(ask(&mut takeover, UNKNOWN, FormerAnswer::Silent, 0), (LISTENED_MS, TakeoverStep::TakeOver));
    }

    #[test]
    fn restarting_quorum_has_a_minute_to_work_again() {
        let mut takeover = Takeover::new(Millis::ZERO);
        assert_eq!(ask(&mut takeover, UNKNOWN, FormerAnswer::Idle, 0), (QUORUM_RESTARTS_MS, TakeoverStep::TakeOver));
    }

    #[test]
    fn working_coordinators_are_not_taken_over() {
        let mut takeover = Takeover::new(Millis::ZERO);
        assert_eq!(takeover.judge(UNKNOWN, round(0, FormerAnswer::Works)), TakeoverStep::NoteFormerQuorum);
        assert_eq!(ask(&mut takeover, WORKED, FormerAnswer::Works, 500).1, TakeoverStep::Ask);
    }

    #[test]
    fn trial_does_not_take_over_during_an_outage() {
        let mut takeover = Takeover::new(Millis::ZERO);
        assert_eq!(takeover.judge(UNKNOWN, round(0, FormerAnswer::Works)), TakeoverStep::NoteFormerQuorum);
        // The entry may not have been committed.
        assert_eq!(takeover.judge(UNKNOWN, round(500, FormerAnswer::Silent)), TakeoverStep::NoteFormerQuorum);
        for answer in [FormerAnswer::Silent, FormerAnswer::Idle] {
            assert_eq!(ask(&mut takeover, WORKED, answer, 1_000).1, TakeoverStep::Ask);
            // A new leader knows only what is committed.
            assert_eq!(ask(&mut Takeover::new(Millis::ZERO), WORKED, answer, 0).1, TakeoverStep::Ask);
        }
        // An operator's order commits `TakeOver`.
        let ordered = FormerFacts { taken_over: true, ..WORKED };
        assert_eq!(ask(&mut Takeover::new(Millis::ZERO), ordered, FormerAnswer::Silent, 0).1, TakeoverStep::Lead);
    }

    #[test]
    fn leader_asks_after_taking_over_before_it_leads() {
        let mut takeover = Takeover::new(Millis::ZERO);
        assert_eq!(takeover.judge(TAKEN, round(0, FormerAnswer::Works)), TakeoverStep::Ask);
        assert_eq!(takeover.judge(TAKEN, round(500, FormerAnswer::Idle)), TakeoverStep::Ask);
        assert_eq!(takeover.judge(TAKEN, round(1_000, FormerAnswer::Idle)), TakeoverStep::Lead);
        // Rounds that began before do not count, and a new leader asks itself.
        let mut takeover = Takeover::new(Millis::ZERO);
        assert_eq!(ask(&mut takeover, UNKNOWN, FormerAnswer::Silent, 0), (LISTENED_MS, TakeoverStep::TakeOver));
        assert_eq!(ask(&mut takeover, TAKEN, FormerAnswer::Silent, 6_500), (7_000, TakeoverStep::Lead));
        assert_eq!(ask(&mut Takeover::new(Millis::ZERO), TAKEN, FormerAnswer::Silent, 0), (500, TakeoverStep::Lead));
    }

    #[test]
    fn pause_of_an_hour_restarts_the_wait() {
        const HOUR: u64 = 3_600_000;
        let mut takeover = Takeover::new(Millis::ZERO);
        for at in [0, 500, 1_000] {
            assert_eq!(takeover.judge(UNKNOWN, round(at, FormerAnswer::Silent)), TakeoverStep::Ask);
        }
        let paused = FormerRound { ended: Millis::new(HOUR), ..round(1_500, FormerAnswer::Silent) };
        assert_eq!(takeover.judge(UNKNOWN, paused), TakeoverStep::Ask);
        let (over, step) = ask(&mut takeover, UNKNOWN, FormerAnswer::Silent, HOUR);
        assert!(step == TakeoverStep::TakeOver && over - HOUR >= LISTENED_MS, "{over}");
        // The same with the pause between two rounds, and after taking over.
        let mut takeover = Takeover::new(Millis::ZERO);
        assert_eq!(takeover.judge(UNKNOWN, round(0, FormerAnswer::Silent)), TakeoverStep::Ask);
        let (over, _) = ask(&mut takeover, UNKNOWN, FormerAnswer::Silent, HOUR);
        assert!(over - HOUR >= LISTENED_MS, "{over}");
        let mut takeover = Takeover::new(Millis::ZERO);
        let paused = FormerRound { ended: Millis::new(HOUR), ..round(0, FormerAnswer::Silent) };
        assert_eq!(takeover.judge(TAKEN, paused), TakeoverStep::Ask);
    }
}
