//! Knowledge of this coordinator about other generations of the cluster (PROTOCOL rule 60): later ones that answer at members'
//! addresses, former coordinators that ask, and the permission to grant leases beside them.

use crate::clock::boot_now;
use crate::raft::identity::majority::Majority;
use archon_types::Millis;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of coordinators of later generations that are kept to be asked: as many as a quorum may have.
const SUCCESSORS_MAX: usize = 9;
/// A former coordinator counts as working for this long after it asked, in milliseconds: it asks every 5 s.
const FORMER_HEARD_MS: u64 = 6_000;

/// Answers and questions of coordinators of other generations. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Generations(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// A generation that began without this coordinator and continues its own; zero if none is known.
    later: AtomicU64,
    /// The coordinators that answered last in a generation that does not continue this one's, each with its generation.
    others: Mutex<BTreeMap<u64, u64>>,
    /// The coordinators of later generations that answered last and wait for this one, each with its generation.
    waiting: Mutex<BTreeMap<u64, u64>>,
    /// The majority in which this coordinator takes part.
    majority: Mutex<Majority>,
    /// The coordinator of a generation before that asked last: its number, its generation, and when it asked.
    former_runs: Mutex<Option<(u64, u64, Millis)>>,
    /// The same of the last one that works.
    former_works: Mutex<Option<(u64, u64, Millis)>>,
    /// The coordinators of later generations that greeted this one, each with its address, until they are asked.
    successors: Mutex<BTreeMap<u64, String>>,
    /// This leader's wait for coordinators of other generations.
    standby: Mutex<Option<Standby>>,
    /// The reason for which no lease is granted after the last round of questions.
    blocked: Mutex<Option<String>>,
}

/// A leader's wait for coordinators of other generations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Standby {
    /// The reason.
    pub(crate) text: String,
    /// No former coordinator worked in the last rounds of questions.
    pub(crate) is_quiet: bool,
    /// One of them worked before: the recovery takes over by an operator's order only.
    pub(crate) needs_order: bool,
}

impl Standby {
    /// A wait that no order ends.
    pub(crate) const fn new(text: String) -> Self {
        Self { text, is_quiet: false, needs_order: false }
    }
}

impl Generations {
    /// Returns the generation that began without this coordinator, as reported by another one.
    pub(crate) fn later(&self) -> Option<u64> {
        Some(self.0.later.load(Ordering::Relaxed)).filter(|later| *later > 0)
    }

    /// Returns the coordinators at members' addresses that live in a generation that does not continue this one's, each
    /// with its generation.
    pub(crate) fn others(&self) -> BTreeMap<u64, u64> {
        self.0.others.lock().clone()
    }

    /// Returns the coordinators at members' addresses that live in a later generation and wait for this one, each with
    /// its generation.
    pub(crate) fn waiting(&self) -> BTreeMap<u64, u64> {
        self.0.waiting.lock().clone()
    }

    /// Notes that this coordinator takes part in a majority of its quorum, as leader or follower.
    pub(in crate::raft) fn note_majority(&self) {
        self.0.majority.lock().note(boot_now());
    }

    /// Returns true if this coordinator works with a majority of its quorum.
    pub(in crate::raft) fn works(&self) -> bool {
        self.0.majority.lock().works(boot_now())
    }

    /// Returns the period in which this coordinator works with a majority.
    pub(super) fn period(&self) -> Option<u64> {
        self.0.majority.lock().period(boot_now())
    }

    /// Notes that a round of questions begun in this period found no later generation in place of this one.
    pub(in crate::raft) fn clear(&self, period: u64) {
        self.0.majority.lock().clear(period);
        *self.0.blocked.lock() = None;
    }

    /// Blocks leases, for this reason, until another round of questions finds that it no longer holds.
    pub(super) fn unclear(&self, why: String) {
        self.0.majority.lock().unclear();
        *self.0.blocked.lock() = Some(why);
    }

    /// Returns the reason for which no lease is granted after the last round of questions.
    pub(in crate::raft) fn blocked(&self) -> Option<String> {
        self.0.blocked.lock().clone()
    }

    /// Notes that this process runs. A pause of more than `pause_max_ms` milliseconds requires another round of
    /// questions.
    pub(in crate::raft) fn tick(&self, pause_max_ms: u64) {
        self.0.majority.lock().tick(boot_now(), pause_max_ms);
    }

    /// Returns true if leases wait for a round of questions.
    pub(super) fn waits_for_answers(&self) -> bool {
        self.0.majority.lock().waits(boot_now())
    }

    /// Returns true if no later generation can have taken the place of this one before it would hear of it.
    pub(in crate::raft) fn may_grant(&self) -> bool {
        self.later().is_none() && self.0.majority.lock().may_grant(boot_now())
    }

    /// Notes that a later generation has taken the place of this one.
    pub(super) fn note_later(&self, generation: u64) {
        self.0.later.store(generation, Ordering::Relaxed);
    }

    /// Notes a question of a coordinator of an earlier generation.
    pub(in crate::raft) fn note_former(&self, id: u64, generation: u64, works: bool) {
        let heard = Some((id, generation, boot_now()));
        *self.0.former_runs.lock() = heard;
        if works {
            *self.0.former_works.lock() = heard;
        }
    }

    /// Returns the former coordinator that asked a short time before `now`, its generation, and whether it works. One
    /// that works is preferred.
    pub(in crate::raft) fn former(&self, now: Millis) -> Option<(u64, u64, bool)> {
        let [works, runs] = [&self.0.former_works, &self.0.former_runs].map(|heard| *heard.lock());
        let recent = |heard: Option<(u64, u64, Millis)>| heard.filter(|(_, _, at)| now.since(*at) <= FORMER_HEARD_MS);
        let heard = recent(works).map(|(id, generation, _)| (id, generation, true));
        heard.or_else(|| recent(runs).map(|(id, generation, _)| (id, generation, false)))
    }

    /// Notes a coordinator of a later generation, to be asked at this address whether it has taken the place of this one.
    /// Each greets every few seconds, so one that finds no room is noted after the others were asked.
    pub(in crate::raft) fn note_successor(&self, id: u64, address: String) {
        let mut successors = self.0.successors.lock();
        if successors.len() < SUCCESSORS_MAX || successors.contains_key(&id) {
            successors.insert(id, address);
        }
    }

    /// Takes the coordinators of later generations that greeted this one since the last call, with their addresses.
    pub(super) fn take_successors(&self) -> BTreeMap<u64, String> {
        std::mem::take(&mut self.0.successors.lock())
    }

    /// Sets or ends the wait for coordinators of other generations.
    pub(in crate::raft) fn set_standby(&self, standby: Option<Standby>) {
        *self.0.standby.lock() = standby;
    }

    /// Returns the wait of this coordinator, which leads, for those of other generations.
    pub(in crate::raft) fn standby(&self) -> Option<Standby> {
        self.0.standby.lock().clone()
    }

    /// Returns true if this coordinator leads and waits for the former ones.
    pub(in crate::raft) fn stands_by(&self) -> bool {
        self.0.standby.lock().is_some()
    }

    /// Notes the coordinators of other generations that answered: those that wait, and those that do not continue this one.
    pub(in crate::raft) fn note_answers(&self, waiting: BTreeMap<u64, u64>, others: BTreeMap<u64, u64>) {
        let mut known = self.0.waiting.lock();
        for (id, generation) in waiting.iter().filter(|(id, generation)| known.get(*id) != Some(*generation)) {
            tracing::warn!(
                id,
                generation,
                "a recovery answers at a member's address; it waits while a majority of these coordinators works"
            );
        }
        *known = waiting;
        drop(known);
        self.note_others(others);
    }

    fn note_others(&self, others: BTreeMap<u64, u64>) {
        let mut known = self.0.others.lock();
        for (id, generation) in others.iter().filter(|(id, generation)| known.get(*id) != Some(*generation)) {
            tracing::warn!(
                id,
                generation,
                "a coordinator of a diverged history of this cluster answers at a member's address; an operator must \
                 decide which one to keep"
            );
        }
        *known = others;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_successor_is_kept_until_it_is_asked() {
        let generations = Generations::default();
        for id in 1..=20 {
            generations.note_successor(id, format!("c{id}.test:7101"));
        }
        generations.note_successor(2, "moved.test:7101".to_owned());
        let successors = generations.take_successors();
        assert_eq!(successors.keys().copied().collect::<Vec<_>>(), (1..=SUCCESSORS_MAX as u64).collect::<Vec<_>>());
        assert_eq!((successors[&1].as_str(), successors[&2].as_str()), ("c1.test:7101", "moved.test:7101"));
        assert_eq!(generations.take_successors(), BTreeMap::new());
    }
}
