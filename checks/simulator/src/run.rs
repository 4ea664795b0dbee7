//! One run, from its seed to its verdict.

use crate::check::violation::Violation;
use crate::coverage::Coverage;
use crate::event::Event;
use crate::mutant::Mutant;
use crate::scenario::{Scenario, Theme};
use crate::world::World;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Outcome of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// Violation, if any.
    pub violation: Option<Violation>,
    /// Coverage; empty if it panicked.
    pub coverage: Coverage,
    /// Hash of every line of its trace, if traced.
    pub trace_hash: u64,
    /// Last lines of its trace, if traced.
    pub trace: Vec<String>,
}

/// Runs a seed. With `trace_lines` the last lines are kept, which is slow; the same seed takes the same course.
pub fn run(seed: u64, mutant: Option<Mutant>, trace_lines: usize) -> Outcome {
    let mut world = World::new(Scenario::of(seed), mutant, trace_lines);
    let ended = catch_unwind(AssertUnwindSafe(|| {
        // The first assignment; faults begin during it, or after.
        let begin = world.random.between(1, world.plan.unit_ms() * 10);
        let begin = if world.plan.theme == Theme::Young { 1 } else { begin };
        world.after(begin, Event::Fault);
        if world.plan.strays {
            world.after(begin, Event::Stray);
        }
        if world.plan.accepts_loss {
            world.after(begin, Event::Operator);
        }
        if world.plan.recovers {
            world.after(begin, Event::Recover);
        }
        if world.plan.sets_back {
            world.after(begin, Event::CopyDisk);
        }
        if world.plan.restarts {
            world.after(begin, Event::Restarts);
        }
        if world.plan.refuses_reads {
            world.after(begin, Event::RefuseReads);
        }
        if world.plan.reads_replicas {
            world.read_replica_later();
        }
        if world.plan.upgrades {
            world.after(begin, Event::Upgrade);
        }
        if world.plan.changes_quorum {
            world.after(begin, Event::Reorganise);
            world.after(begin, Event::QuorumFault);
        }
        if world.plan.drops {
            world.after(begin, Event::Drop);
        }
        if world.plan.theme.is_about_ranges() {
            world.after(begin, Event::Split);
        }
        if world.plan.theme == Theme::Merges {
            world.after(begin, Event::Merge);
        }
        world.run(begin + world.plan.faults_ms);
        if world.violation.is_none() {
            world.heal();
        }
    }));
    let panicked = ended.err().map(|why| {
        let text = why.downcast_ref::<String>().cloned();
        let text = text.or_else(|| why.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Violation::Panic { detail: text.unwrap_or_else(|| "without a message".to_owned()) }
    });
    Outcome {
        seed,
        violation: world.violation.take().or(panicked),
        coverage: *world.coverage,
        trace_hash: world.trace.hash(),
        trace: world.trace.into_lines(),
    }
}
