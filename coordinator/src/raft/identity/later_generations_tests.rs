//! Random runs of one former coordinator and of a recovery that reach each other: pauses, restarts, lost and regained majorities. The
//! two never grant at once, the one that works is not ended, and one that is gone does not hold the recovery up.

use super::later_generations::{ASK_INTERVAL, PAUSE_IN_RECOVERY_MAX_MS, PAUSE_MAX_MS};
use crate::raft::identity::majority::Majority;
use archon_coordinator_core::{FormerAnswer, FormerFacts, FormerRound, Takeover, TakeoverStep};
use archon_testkit::Random;
use archon_types::Millis;

const STEP_MS: u64 = 50;
/// A process that does not run for this long after a question does not answer it: the handshake has a deadline.
const ANSWER_MS: u64 = 1_000;
const LEASE_MS: u64 = 1_000;

/// Returns the length of a pause or a restart.
fn pause(random: &mut Random) -> u64 {
    *random.pick(&[300, 450, 600, 950, 1_100, 2_000, 9_000, 20_000, 3_600_000])
}

/// A question on its way, and its answer.
#[derive(Clone, Copy)]
struct Question<A> {
    sent: Millis,
    period: Option<u64>,
    facts: FormerFacts,
    answer: Option<A>,
}

impl<A> Question<A> {
    fn new(sent: Millis, period: Option<u64>, facts: FormerFacts) -> Self {
        Self { sent, period, facts, answer: None }
    }

    /// The other process answers if it runs now and the question has not run out.
    fn meet(&mut self, now: Millis, runs: bool, answer: impl FnOnce() -> A) {
        if self.answer.is_none() && runs && now.since(self.sent) <= ANSWER_MS {
            self.answer = Some(answer());
        }
    }

    fn is_over(&self, now: Millis) -> bool {
        self.answer.is_some() || now.since(self.sent) > ANSWER_MS
    }
}

/// A former coordinator. The others of its quorum are a majority with it, or are not.
#[derive(Default)]
struct FormerCoordinator {
    resumes: Millis,
    has_majority: bool,
    majority: Majority,
    asked: Millis,
    question: Option<Question<bool>>,
    ended: bool,
}

/// The founder of a recovery.
struct Founder {
    resumes: Millis,
    facts: FormerFacts,
    takeover: Takeover,
    leads: bool,
    majority: Majority,
    asked: Millis,
    question: Option<Question<FormerAnswer>>,
}

const NOTHING: FormerFacts = FormerFacts { worked: false, taken_over: false };

struct World {
    now: Millis,
    former: FormerCoordinator,
    founder: Founder,
}

impl World {
    fn new(now: Millis) -> Self {
        let founder = Founder {
            resumes: now,
            facts: NOTHING,
            takeover: Takeover::new(now),
            leads: false,
            majority: Majority::default(),
            asked: Millis::ZERO,
            question: None,
        };
        Self { now, former: FormerCoordinator { has_majority: true, ..FormerCoordinator::default() }, founder }
    }

    fn former_runs(&self) -> bool {
        self.now >= self.former.resumes && !self.former.ended
    }

    fn founder_runs(&self) -> bool {
        self.now >= self.founder.resumes
    }

    fn restart_former(&mut self, down: u64) {
        let has_majority = self.former.has_majority;
        self.former = FormerCoordinator { resumes: self.now.plus(down), has_majority, ..FormerCoordinator::default() };
    }

    fn restart_founder(&mut self, down: u64) {
        let (facts, at) = (self.founder.facts, self.now.plus(down));
        self.founder = World::new(at).founder;
        self.founder.facts = facts;
    }

    fn step(&mut self) {
        let now = self.now;
        let (former_runs, founder_runs) = (self.former_runs(), self.founder_runs());
        if let Some(question) = &mut self.former.question {
            question.meet(now, founder_runs, || self.founder.facts.taken_over);
        }
        if let Some(question) = &mut self.founder.question {
            let word = || if self.former.majority.works(now) { FormerAnswer::Works } else { FormerAnswer::Idle };
            question.meet(now, former_runs, word);
        }
        if former_runs {
            self.step_former();
        }
        if founder_runs {
            self.step_founder();
        }
        self.now = now.plus(STEP_MS);
    }

    fn step_former(&mut self) {
        let (now, former) = (self.now, &mut self.former);
        former.majority.tick(now, PAUSE_MAX_MS);
        if former.has_majority {
            former.majority.note(now);
        }
        if let Some(question) = former.question.take_if(|question| question.is_over(now)) {
            former.ended |= question.answer == Some(true);
            if let Some(period) = question.period {
                former.majority.clear(period);
            }
        }
        let due = former.majority.waits(now) || now.since(former.asked) >= ASK_INTERVAL.as_millis() as u64;
        if former.question.is_none() && due {
            former.asked = now;
            former.question = Some(Question::new(now, former.majority.period(now), NOTHING));
        }
    }

    fn step_founder(&mut self) {
        let (now, founder) = (self.now, &mut self.founder);
        founder.majority.tick(now, PAUSE_IN_RECOVERY_MAX_MS);
        founder.majority.note(now);
        if let Some(question) = founder.question.take_if(|question| question.is_over(now)) {
            let answer = question.answer.unwrap_or(FormerAnswer::Silent);
            match question.period {
                Some(_) if answer == FormerAnswer::Works => founder.majority.unclear(),
                Some(period) => founder.majority.clear(period),
                None => match founder
                    .takeover
                    .judge(question.facts, FormerRound { began: question.sent, ended: now, answer })
                {
                    TakeoverStep::Ask => {}
                    TakeoverStep::NoteFormerQuorum => founder.facts.worked = true,
                    TakeoverStep::TakeOver => founder.facts.taken_over = true,
                    TakeoverStep::Lead => founder.leads = true,
                },
            }
        }
        if !founder.facts.taken_over
            && let Some(period) = founder.majority.period(now)
        {
            founder.majority.clear(period);
        }
        let interval =
            if founder.leads && !founder.majority.waits(now) { ASK_INTERVAL.as_millis() as u64 } else { 500 };
        if founder.question.is_none() && now.since(founder.asked) >= interval {
            founder.asked = now;
            let period = founder.majority.period(now).filter(|_| founder.leads);
            founder.question = Some(Question::new(now, period, founder.facts));
        }
    }

    /// An operator orders the recovery to take over, which is accepted if it is quiet.
    fn order(&mut self) {
        if self.founder_runs() && self.founder.facts.worked && self.founder.takeover.is_quiet() {
            self.founder.facts.taken_over = true;
        }
    }

    fn former_grants(&self) -> bool {
        self.former_runs() && self.former.has_majority && self.former.majority.may_grant(self.now)
    }

    fn founder_grants(&self) -> bool {
        self.founder_runs() && self.founder.leads && self.founder.majority.may_grant(self.now)
    }

    fn run(&mut self, ms: u64) {
        for _ in 0..ms / STEP_MS {
            self.step();
        }
    }
}

#[test]
fn two_histories_never_grant_at_once() {
    let (mut taken, mut spared) = (0, 0);
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let calm = *random.pick(&[400, 2_000, 8_000]);
        let mut world = World::new(Millis::new(10_000_000));
        let (mut since, mut last_grant) = (world.now, None::<Millis>);
        for _ in 0..12_000 {
            match random.below(calm) {
                0 => world.former.resumes = world.now.plus(pause(&mut random)),
                1 => world.founder.resumes = world.now.plus(pause(&mut random)),
                2 => world.restart_former(random.below(10_000)),
                3 => world.restart_founder(random.below(10_000)),
                4 | 5 => world.former.has_majority = !world.former.has_majority,
                6 => world.order(),
                _ => {}
            }
            // Skips most of the time in which neither process runs.
            if !world.former_runs() && !world.founder_runs() && random.below(20) == 0 {
                world.now = world.former.resumes.min(world.founder.resumes).max(world.now);
            }
            world.step();
            if world.former_grants() {
                last_grant = Some(world.now);
            }
            if world.founder_grants() {
                assert!(!world.former_grants(), "seed {seed} at {:?}", world.now);
                let lease = last_grant.is_some_and(|at| world.now.since(at) < LEASE_MS);
                // A founder waits for the leases of before once it leads; they are no part of this.
                let began = world.now.since(since) > 2 * LEASE_MS;
                assert!(!lease || !began, "seed {seed} at {:?}: a lease runs", world.now);
            } else {
                since = world.now;
            }
        }
        taken += u64::from(world.founder.facts.taken_over);
        spared += u64::from(!world.founder.facts.taken_over);
    }
    assert!(taken > 40 && spared > 40, "{taken} took over, {spared} did not");
}

#[test]
fn coordinator_that_works_goes_on_beside_a_recovery() {
    let mut world = World::new(Millis::new(10_000_000));
    world.run(600_000);
    assert!(world.former_grants() && !world.founder.leads);
    // Both are restarted, and the former one has no majority for ten minutes.
    world.former.has_majority = false;
    world.restart_former(3_000);
    world.restart_founder(0);
    world.run(600_000);
    world.former.has_majority = true;
    world.run(600_000);
    assert!(world.former_grants() && !world.founder.leads);
}

#[test]
fn recovery_goes_on_once_the_coordinators_of_before_are_gone() {
    let mut world = World::new(Millis::new(10_000_000));
    world.run(10_000);
    world.former.has_majority = false;
    world.restart_former(100_000_000);
    world.run(120_000);
    assert!(!world.founder_grants(), "the recovery may be a trial");
    world.order();
    world.run(5_000);
    assert!(world.founder_grants());
    // One that is started again ends, and grants nothing.
    world.former.has_majority = true;
    world.restart_former(0);
    for _ in 0..1_000 {
        world.step();
        assert!(!world.former_grants());
    }
    assert!(world.former.ended && world.founder_grants());
}
