//! Each rule taken away is caught by some seed.
#![cfg(feature = "mutants")]

use archon_simulator::{Mutant, ShellMutant, run};

/// The first of the seeds that catches a mutant, and the property that it saw violated. A world that does not come
/// together counts only where nothing else is expected.
fn caught(mutant: Mutant, seeds: u64) -> Option<(u64, &'static str)> {
    (0..seeds).find_map(|seed| run(seed, Some(mutant), 0).violation.map(|violation| (seed, violation.letter())))
}

#[test]
fn an_answer_before_commit_is_caught() {
    let found = caught(Mutant::Shell(ShellMutant::AnswerBeforeCommit), 50);
    println!("{found:?}");
    assert!(found.is_some());
}
