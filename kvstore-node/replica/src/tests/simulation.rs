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

/// Prints the seed of a run that panics.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("repeat with ARCHON_SEED={}", self.0);
        }
    }
}

/// Runs one seed; panics with it if a property does not hold.
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
fn invariants_hold_under_faults_and_replicas_converge() {
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
fn same_seed_gives_same_run() {
    let trace = |seed| {
        let mut world = World::new(seed, &[Live, Live, Load], 1, None);
        (0..500).for_each(|_| world.random_step().unwrap());
        world.tail(10_000)
    };
    assert_eq!(trace(5), trace(5));
    assert_ne!(trace(5), trace(6));
}

/// Returns whether the properties hold in every seed. With a mutant, a seed counts only if they hold there without it.
fn no_seed_catches(mutant: Option<Mutant>) -> bool {
    let violated = |seed, mutant| {
        let caught = catch_unwind(AssertUnwindSafe(|| run(seed, 3_000, mutant, false)));
        let text = caught.err().map(|why| why.downcast_ref::<String>().cloned().unwrap_or_default());
        // A run that does not converge is no proof: only a violated property is.
        text.is_some_and(|text| text.starts_with("seed "))
    };
    let seeds = if mutant.is_some() { 600 } else { 3 };
    !(0..seeds).any(|seed| violated(seed, mutant) && !(mutant.is_some() && violated(seed, None)))
}

/// A test for each mutant that these runs catch; `mutants` has conversations for the others.
macro_rules! caught {
    ($($mutant:ident => $test:ident,)*) => {
        $(
            fn $test(mutant: Option<Mutant>) -> bool {
                no_seed_catches(mutant)
            }
        )*
        archon_types::shown_by! { $($mutant => $test,)* }
    };
}

caught! {
    EpochVolatile => epoch_volatile_is_caught,
    NoCut => no_cut_is_caught,
    ServeEarly => serve_early_is_caught,
    JoinerNotCounted => joiner_not_counted_is_caught,
    SelfShrink => self_shrink_is_caught,
    JoinerGivenUp => joiner_given_up_is_caught,
    AnswerNotRisen => answer_not_risen_is_caught,
    ConfigGoesBack => config_goes_back_is_caught,
    CommitUnmatched => commit_unmatched_is_caught,
    AckUndurable => ack_undurable_is_caught,
    AnswerBeforeCommit => answer_before_commit_is_caught,
    PromoteShort => promote_short_is_caught,
}
