//! Linearizability checker for the history of one key.
//!
//! The search of Wing and Gong ("Testing and verifying concurrent objects", 1993) with the memoization of Lowe
//! ("Testing for linearizability", 2017): pick any operation that was called before every remaining one had returned,
//! apply it, continue with the rest; never visit the same (applied operations, state) twice.

use super::operation::Record;
use super::register::Register;
use std::collections::HashSet;

/// Result of [`check`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Some order explains every answer.
    Linearizable,
    /// No order explains the answers.
    Violated,
    /// No order was found in `configurations_max` configurations: the history is too long or has too many open
    /// operations.
    Undecided,
}

/// Configurations visited before the search is abandoned: a few hundred megabytes.
const CONFIGURATIONS_MAX: usize = 2_000_000;

/// Checks the history of one key that was absent at the start. The order of `history` does not matter.
pub fn check(history: &[Record]) -> Verdict {
    // An unanswered read carries no information and never takes effect.
    let mut records: Vec<&Record> =
        history.iter().filter(|record| !(record.request.is_read() && record.is_open())).collect();
    records.sort_by_key(|record| (record.called_ns, record.effective_by_ns()));
    let mut search =
        Search { taken: OperationSet::none(records.len()), records, seen: HashSet::new(), given_up: false };
    if search.explains(&Register::default()) {
        Verdict::Linearizable
    } else if search.given_up {
        Verdict::Undecided
    } else {
        Verdict::Violated
    }
}

struct Search<'a> {
    /// By time of call.
    records: Vec<&'a Record>,
    taken: OperationSet,
    seen: HashSet<(OperationSet, Register)>,
    given_up: bool,
}

impl Search<'_> {
    /// Returns true if the remaining operations can be explained from `state`.
    fn explains(&mut self, state: &Register) -> bool {
        let mut candidates = self.candidates();
        if candidates.iter().all(|index| self.records[*index].is_open()) {
            // Only open operations are left, which need never have taken effect.
            return true;
        }
        // An answer that fits and changes nothing can be applied at once: any order that explains the rest also
        // explains it with this operation moved to the front.
        let same = |index: &&usize| {
            self.records[**index].is_read() && state.after(self.records[**index]).as_ref() == Some(state)
        };
        if let Some(index) = candidates.iter().find(same) {
            candidates = vec![*index];
        }
        // The operation with the earliest deadline probably took effect first.
        candidates.sort_by_key(|index| self.records[*index].effective_by_ns());
        for index in candidates {
            let Some(next) = state.after(self.records[index]) else { continue };
            self.taken.set(index, true);
            let fresh = self.remember(&next);
            let explained = fresh && self.explains(&next);
            self.taken.set(index, false);
            if explained {
                return true;
            }
            if self.given_up {
                return false;
            }
        }
        false
    }

    fn remember(&mut self, state: &Register) -> bool {
        if self.seen.len() >= CONFIGURATIONS_MAX {
            self.given_up = true;
            return false;
        }
        self.seen.insert((self.taken.clone(), state.clone()))
    }

    /// Returns the operations that can take effect next: called no later than every other remaining one had to take
    /// effect.
    fn candidates(&self) -> Vec<usize> {
        let mut found = Vec::new();
        let mut first_return = u64::MAX;
        for (index, record) in self.records.iter().enumerate() {
            if record.called_ns > first_return {
                break;
            }
            if !self.taken.has(index) {
                found.push(index);
                first_return = first_return.min(record.effective_by_ns());
            }
        }
        found.retain(|index| self.records[*index].called_ns <= first_return);
        found
    }
}

/// A set of operations.
#[derive(Clone, PartialEq, Eq, Hash)]
struct OperationSet(Box<[u64]>);

impl OperationSet {
    fn none(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)].into())
    }

    fn has(&self, index: usize) -> bool {
        self.0[index / 64] >> (index % 64) & 1 == 1
    }

    fn set(&mut self, index: usize, taken: bool) {
        let bit = 1 << (index % 64);
        if taken {
            self.0[index / 64] |= bit;
        } else {
            self.0[index / 64] &= !bit;
        }
    }
}
