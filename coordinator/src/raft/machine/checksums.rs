//! Checksums of the state: computes this coordinator's as of entries that ask for one, sends it with every message, and
//! compares: see `archon_coordinator_core::StateChecksum`.

use crate::raft::log::codec;
use archon_coordinator_core::{ChecksumComparison, Image, StateChecksum, compare};
use archon_proto::v1;
use archon_telemetry::{Distribution, Histogram};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Only states written by the same version are compared.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Maximum length of a version name in a message of another coordinator.
const VERSION_BYTES_MAX: usize = 64;
/// Number of own checksums kept, for coordinators that are later.
const OWN_MAX: usize = 4;
/// Maximum delay of the coordinator whose checksum decides which state is right.
const UNDECIDED_MAX: Duration = Duration::from_secs(10);

/// Known checksums. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Checksums(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    id: u64,
    state: Mutex<State>,
    took: Histogram,
}

#[derive(Default)]
struct State {
    /// The next state to sum up.
    waiting: Option<(u64, Image)>,
    /// True while a state is being summed up.
    is_busy: bool,
    /// This coordinator's own checksums, the newest last.
    own: VecDeque<StateChecksum>,
    /// Duration of the newest computation.
    took: Duration,
    /// The newest checksum of each other coordinator.
    told: BTreeMap<u64, StateChecksum>,
    /// Checksum of a majority of the voters, as of the newest entry for which it is known; sent by the leader.
    agreed: Option<StateChecksum>,
    /// Time since which states differ and no majority decides which one is right.
    undecided: Option<Instant>,
    /// Coordinators that differ, while this coordinator leads.
    differ: BTreeMap<u64, StateDifference>,
    /// Entry as of which this coordinator's state is not the majority's.
    wrong: Option<u64>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("own", &self.own).field("told", &self.told).finish_non_exhaustive()
    }
}

/// Difference of a coordinator's state from others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StateDifference {
    /// Index of the entry.
    pub(crate) index: u64,
    /// True if its state is known to be wrong; otherwise it is unknown which one is right.
    pub(crate) is_wrong: bool,
}

impl Checksums {
    /// Creates the checksums of coordinator `id`, with nothing known yet.
    pub(crate) fn new(id: u64) -> Self {
        Self(Arc::new(Inner { id, state: Mutex::default(), took: Histogram::default() }))
    }

    /// Queues the state after entry `index` for a checksum, unless a newer one comes before its turn.
    pub(super) fn sum_up(&self, index: u64, image: Image) {
        let mut state = self.0.state.lock();
        state.waiting = Some((index, image));
        if !std::mem::replace(&mut state.is_busy, true) {
            let this = self.clone();
            drop(tokio::task::spawn_blocking(move || this.work()));
        }
    }

    fn work(&self) {
        loop {
            let (index, image) = {
                let mut state = self.0.state.lock();
                let Some(next) = state.waiting.take() else {
                    state.is_busy = false;
                    return;
                };
                next
            };
            let begun = Instant::now();
            // After a panic the next one is computed.
            let checksum = catch_unwind(AssertUnwindSafe(|| codec::checksum("state", &image)));
            let Ok(checksum) = checksum else {
                tracing::error!(index, "computing the checksum of the state panicked");
                continue;
            };
            match checksum {
                Ok(checksum) => {
                    self.note_own(StateChecksum { index, version: VERSION.to_owned(), checksum }, begun.elapsed())
                }
                Err(error) => tracing::error!(%error, "the state was not summed up"),
            }
        }
    }

    fn note_own(&self, own: StateChecksum, took: Duration) {
        tracing::debug!(index = own.index, checksum = own.checksum, ?took, "the state was summed up");
        self.0.took.observe(took);
        let mut state = self.0.state.lock();
        state.took = took;
        if state.own.len() >= OWN_MAX {
            state.own.pop_front();
        }
        state.own.push_back(own);
    }

    /// Returns the duration of the newest computation.
    pub(in crate::raft) fn took(&self) -> Duration {
        self.0.state.lock().took
    }

    /// Returns the distribution of these durations.
    pub(in crate::raft) fn times(&self) -> Distribution {
        self.0.took.read()
    }

    /// Returns the checksums for a message: of this coordinator, and of the majority if this one leads.
    pub(in crate::raft) fn said(&self) -> (Option<v1::StateChecksum>, Option<v1::StateChecksum>) {
        let state = self.0.state.lock();
        (state.own.back().map(to_wire), state.agreed.as_ref().map(to_wire))
    }

    /// Takes the checksums from a message, after a check of its sender by number and directory.
    pub(in crate::raft) fn take(&self, sender: u64, message: &v1::RaftMessage) {
        let (own, agreed) = (message.state_checksum.as_ref(), message.agreed_checksum.as_ref());
        if own.is_none() && agreed.is_none() {
            return;
        }
        let mut state = self.0.state.lock();
        if let Some(own) = own
            && state.told.get(&sender).is_none_or(|told| told.index < own.index || told.checksum != own.checksum)
            && let Some(own) = from_wire(own)
            && state.told.get(&sender).is_none_or(|told| told.index <= own.index)
        {
            state.told.insert(sender, own);
        }
        if let Some(agreed) = agreed.and_then(from_wire) {
            state.judge_own(&agreed);
        }
    }

    /// Returns the entry as of which this coordinator's state is not the majority's, if it is not.
    pub(in crate::raft) fn wrong(&self) -> Option<u64> {
        self.0.state.lock().wrong
    }

    /// Returns the coordinators that differ, as known to this one, which leads.
    pub(in crate::raft) fn differ(&self) -> BTreeMap<u64, StateDifference> {
        self.0.state.lock().differ.clone()
    }

    /// Compares the known checksums, as of a quorum with these voters and members.
    pub(super) fn look(&self, voters: &BTreeSet<u64>, members: &BTreeSet<u64>, leads: bool) {
        self.0.state.lock().look(self.0.id, voters, members, leads);
    }
}

impl State {
    /// Compares an own checksum with the majority's, which the leader sends.
    fn judge_own(&mut self, agreed: &StateChecksum) {
        let own = self.own.iter().find(|own| own.is_comparable(agreed));
        if own.is_some_and(|own| own.checksum != agreed.checksum) {
            self.wrong.get_or_insert(agreed.index);
        }
    }

    fn look(&mut self, me: u64, voters: &BTreeSet<u64>, members: &BTreeSet<u64>, leads: bool) {
        self.told.retain(|id, _| members.contains(id));
        self.differ.retain(|id, _| leads && members.contains(id));
        if !leads {
            self.agreed = None;
        }
        let mut undecided = None;
        for own in self.own.clone().into_iter().rev() {
            let told = self.told.clone().into_iter().chain([(me, own.clone())]).collect();
            let ChecksumComparison { agreed, differ, agree } = compare(&own, &told, voters);
            let index = own.index;
            if let Some(agreed) = agreed {
                self.judge_own(&agreed);
                for id in differ.into_iter().filter(|id| leads && *id != me) {
                    if self
                        .differ
                        .insert(id, StateDifference { index, is_wrong: true })
                        .is_none_or(|before| !before.is_wrong)
                    {
                        tracing::error!(id, index, "the state of a coordinator differs from that of the majority");
                    }
                }
                self.differ.retain(|id, before| !agree.contains(id) || before.index > index);
                if leads {
                    self.agreed = Some(agreed);
                }
                break;
            }
            if undecided.is_none() && !differ.is_empty() {
                undecided = Some((index, differ));
            }
        }
        match undecided {
            None => self.undecided = None,
            Some((index, differ)) if leads => {
                if self.undecided.get_or_insert_with(Instant::now).elapsed() > UNDECIDED_MAX {
                    for id in differ {
                        if self.differ.insert(id, StateDifference { index, is_wrong: false }).is_none() {
                            tracing::error!(
                                id,
                                index,
                                "the states of coordinators differ, and there is no majority for one state"
                            );
                        }
                    }
                }
            }
            Some(_) => {}
        }
    }
}

fn to_wire(checksum: &StateChecksum) -> v1::StateChecksum {
    let StateChecksum { index, version, checksum } = checksum.clone();
    v1::StateChecksum { index, version, checksum }
}

/// Returns `None` for one that cannot be read.
fn from_wire(wire: &v1::StateChecksum) -> Option<StateChecksum> {
    let v1::StateChecksum { index, version, checksum } = wire;
    (version.len() <= VERSION_BYTES_MAX).then(|| StateChecksum {
        index: *index,
        version: version.clone(),
        checksum: *checksum,
    })
}
