//! Random runs over seeds, and mutants that they must catch.

use super::world::World;
use crate::Mutant;
use archon_types::ReplicaState::{self, Live, Load};
use std::panic::{AssertUnwindSafe, catch_unwind};

const SETUPS: &[(&[ReplicaState], u8)] = &[
    (&[Live, Load], 1),
    (&[Live, Live], 1),
    (&[Live, Live, Load], 1),
    (&[Live, Live, Live], 2),
    (&[Live, Live, Load], 2),
    (&[Live, Live, Live, Load], 2),
    (&[Live, Live, Live, Live], 2),
];

#[derive(Debug)]
struct Totals {
    committed: u64,
    promoted: u64,
    dropped: u64,
    released: u64,
    served: u64,
    copies: u64,
    reads: u64,
}

/// Names the seed of a run that panics.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("repeat with ARCHON_SEED={}", self.0);
        }
    }
}

/// One run; panics with its seed if a property does not hold.
fn run(seed: u64, steps: usize, mutant: Option<Mutant>, verbose: bool) -> Totals {
    let (states, min) = SETUPS[(seed % SETUPS.len() as u64) as usize];
    let mut world = World::new(seed, states, min, mutant);
    let _guard = verbose.then_some(Seed(seed));
    let mut result = Ok(());
    for _ in 0..steps {
        result = world.random_step();
        if result.is_err() {
            break;
        }
    }
    if result.is_ok() {
        result = world.heal();
    }
    if let Err(violation) = result {
        let tail = if verbose { world.tail(60) } else { String::new() };
        panic!("seed {seed}: {violation}\n{tail}");
    }
    Totals {
        committed: world.committed(),
        promoted: world.coordinator.promoted,
        dropped: world.coordinator.dropped,
        released: world.coordinator.released,
        served: world.served,
        copies: world.copies,
        reads: world.reads_done,
    }
}

#[test]
fn properties_hold_under_faults_and_everything_converges() {
    // `ARCHON_SEED=n` repeats one run with its last steps.
    let chosen = std::env::var("ARCHON_SEED").ok().and_then(|text| text.parse().ok());
    if let Some(seed) = chosen {
        run(seed, 3_000, None, true);
        return;
    }
    let seeds = std::env::var("ARCHON_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(300_u64);
    let mut totals = Totals { committed: 0, promoted: 0, dropped: 0, released: 0, served: 0, copies: 0, reads: 0 };
    for seed in 0..seeds {
        let done = run(seed, 3_000, None, true);
        totals.committed += done.committed;
        totals.promoted += done.promoted;
        totals.dropped += done.dropped;
        totals.released += done.released;
        totals.served += done.served;
        totals.copies += done.copies;
        totals.reads += done.reads;
    }
    println!("{totals:?}");
    // The runs must not be vacuous.
    let Totals { committed, promoted, dropped, released, served, copies, reads } = totals;
    let least = [committed / 10, promoted, dropped, released, served, copies * 5, reads * 5].into_iter().min();
    assert!(least >= Some(seeds / 2), "too little happened");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let trace = |seed| {
        let mut world = World::new(seed, &[Live, Live, Load], 1, None);
        (0..500).for_each(|_| world.random_step().unwrap());
        world.tail(10_000)
    };
    assert_eq!(trace(5), trace(5));
    assert_ne!(trace(5), trace(6));
}

/// Whether any of the seeds catches the mutant.
fn is_caught(mutant: Mutant) -> Option<u64> {
    (0..600).find(|seed| {
        let caught = catch_unwind(AssertUnwindSafe(|| run(*seed, 3_000, Some(mutant), false)));
        let text = caught.err().map(|why| why.downcast_ref::<String>().cloned().unwrap_or_default());
        // A run that does not converge is no proof: only a violated property is.
        text.is_some_and(|text| text.starts_with("seed "))
    })
}

macro_rules! mutants {
    ($($test:ident $mutant:ident,)*) => {
        /// The mutants that these runs catch; for the others a test of their own stands in `mutants`.
        pub(super) const CAUGHT: &[Mutant] = &[$(Mutant::$mutant,)*];

        $(
            #[test]
            fn $test() {
                let seed = is_caught(Mutant::$mutant);
                assert!(seed.is_some(), "no seed shows what {:?} breaks", Mutant::$mutant);
            }
        )*
    };
}

mutants! {
    epoch_volatile_is_caught EpochVolatile,
    no_cut_is_caught NoCut,
    serve_early_is_caught ServeEarly,
    joiner_not_counted_is_caught JoinerNotCounted,
    self_shrink_is_caught SelfShrink,
    joiner_given_up_is_caught JoinerGivenUp,
    answer_not_risen_is_caught AnswerNotRisen,
    config_goes_back_is_caught ConfigGoesBack,
    commit_unmatched_is_caught CommitUnmatched,
    ack_undurable_is_caught AckUndurable,
    answer_before_commit_is_caught AnswerBeforeCommit,
    promote_short_is_caught PromoteShort,
}
