//! Whether a history of one key is linearizable.
//!
//! The search of Wing and Gong ("Testing and verifying concurrent objects", 1993) with the memory of Lowe ("Testing for
//! linearizability", 2017): take any operation that was called before every one that is left had returned, let it take
//! effect, go on with the rest; never enter the same (operations taken, state) twice.

use super::operation::Record;
use super::register::Register;
use std::collections::HashSet;

/// What [`check`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// There is an order in which everything the clients were told is right.
    Linearizable,
    /// There is none.
    Violated,
    /// None was found in `configurations_max` configurations: the history is too long or has too many open ends.
    Undecided,
}

/// Configurations looked at before the search is given up: a few hundred megabytes.
const CONFIGURATIONS_MAX: usize = 2_000_000;

/// Judges the history of one key that was absent before it. The order of `history` is of no account.
pub fn check(history: &[Record]) -> Verdict {
    // A read without an answer says nothing, and could never take effect.
    let mut records: Vec<&Record> =
        history.iter().filter(|record| !(record.request.is_read() && record.is_open())).collect();
    records.sort_by_key(|record| (record.called_ns, record.effective_by_ns()));
    let mut search = Search { taken: Taken::none(records.len()), records, seen: HashSet::new(), given_up: false };
    if search.explains(&Register::default()) {
        Verdict::Linearizable
    } else if search.given_up {
        Verdict::Undecided
    } else {
        Verdict::Violated
    }
}

struct Search<'a> {
    /// By the moment of the call.
    records: Vec<&'a Record>,
    taken: Taken,
    seen: HashSet<(Taken, Register)>,
    given_up: bool,
}

impl Search<'_> {
    /// Whether the operations that are left can be explained from `state`.
    fn explains(&mut self, state: &Register) -> bool {
        let mut candidates = self.candidates();
        if candidates.iter().all(|index| self.records[*index].is_open()) {
            // Only open ends are left, and these may never have taken effect.
            return true;
        }
        // An answer that fits and changes nothing can be taken at once: whatever order explains the rest explains it
        // with this one moved to the front as well.
        let same = |index: &&usize| {
            self.records[**index].is_read() && state.after(self.records[**index]).as_ref() == Some(state)
        };
        if let Some(index) = candidates.iter().find(same) {
            candidates = vec![*index];
        }
        // What must have happened first is the likeliest to have happened first.
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

    /// The operations that may take effect next: called no later than any other one that is left had to take effect.
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
struct Taken(Box<[u64]>);

impl Taken {
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
