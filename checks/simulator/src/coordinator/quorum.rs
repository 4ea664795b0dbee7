//! The coordinators, with their logs and sessions.

use crate::clock::Clock;
use crate::coordinator::member::Member;
use crate::coordinator::session::Session;
use crate::event::Proposal;
use crate::mutant::Mutant;
use crate::network::End;
use crate::raft::Entry;
use crate::random::Random;
use archon_coordinator_core::{ClusterState, Command};
use std::collections::VecDeque;
use std::sync::Arc;

/// Number of founding coordinators.
pub(crate) const COORDINATORS: usize = 3;

/// A pending proposal.
#[derive(Debug)]
pub(crate) struct UnderWay {
    pub(crate) proposal: Proposal,
    pub(crate) since: u64,
}

#[derive(Debug)]
pub(crate) struct Coordinator {
    pub(crate) clock: Clock,
    pub(crate) state: ClusterState,
    /// Entries of the log that it has applied.
    pub(crate) applied: usize,
    pub(crate) session: Option<Session>,
    pub(crate) under_way: VecDeque<UnderWay>,
    pub(crate) paused_until: u64,
    /// Cut off from the other coordinators.
    pub(crate) isolated: Option<(u64, u64)>,
    /// Its state in a quorum with changing members.
    pub(crate) member: Option<Box<Member>>,
}

impl Coordinator {
    pub(crate) fn new(clock: Clock, state: ClusterState, member: Option<Box<Member>>) -> Self {
        Self {
            clock,
            state,
            applied: 0,
            session: None,
            under_way: VecDeque::new(),
            paused_until: 0,
            isolated: None,
            member,
        }
    }

    /// Returns the commands in flight to its log.
    pub(crate) fn proposed(&self) -> impl Iterator<Item = &Command> {
        self.under_way.iter().flat_map(|under_way| &under_way.proposal.commands)
    }

    pub(crate) fn is_isolated(&self, truth: u64) -> bool {
        self.isolated.is_some_and(|(_, until)| until > truth)
    }
}

#[derive(Debug)]
pub(crate) struct Quorum {
    pub(crate) log: Vec<Arc<Entry>>,
    pub(crate) term: u64,
    pub(crate) leader: Option<usize>,
    pub(crate) coordinators: Vec<Coordinator>,
    pub(crate) down_until: u64,
    /// Until then commits are slow.
    pub(crate) slow_until: u64,
    /// The state before the first entry of the log: empty, or the start of a generation.
    pub(crate) origin: ClusterState,
    /// Position of the last entry about the members.
    pub(crate) members_at: usize,
    /// The state after the committed log, independent of who applied it.
    pub(crate) state: ClusterState,
}

impl Quorum {
    pub(crate) fn new(random: &mut Random, mutant: Option<Mutant>) -> Self {
        let coordinator = |random: &mut Random| Coordinator::new(Clock::draw(random), empty(mutant), None);
        Self {
            log: Vec::new(),
            term: 0,
            leader: None,
            coordinators: (0..COORDINATORS).map(|_| coordinator(random)).collect(),
            down_until: 0,
            slow_until: 0,
            members_at: 0,
            origin: empty(mutant),
            state: empty(mutant),
        }
    }

    /// Returns all coordinators, as network endpoints.
    pub(crate) fn ends(&self) -> Vec<End> {
        (0..self.coordinators.len()).map(End::Coordinator).collect()
    }

    /// Returns the entry at a position of the log, counted from one.
    pub(crate) fn entry(&self, place: usize) -> Option<&Arc<Entry>> {
        self.log.get(place.checked_sub(1)?)
    }

    /// Returns the number of entries in the log.
    pub(crate) fn entries(&self) -> u64 {
        self.log.len() as u64
    }

    /// Returns the position of the log's last entry.
    pub(crate) fn last_index(&self) -> u64 {
        self.origin.applied + self.entries()
    }

    /// Returns the state of the log without its last entries.
    pub(crate) fn state_without(&self, lost: u64) -> ClusterState {
        let mut state = self.origin.clone();
        for entry in self.log.iter().take(usize::try_from(self.entries() - lost).unwrap_or(0)) {
            let index = state.applied + 1;
            drop(entry.apply_to(&mut state, index));
        }
        state
    }

    /// Restarts all coordinators with this state.
    pub(crate) fn restart_with(&mut self, state: ClusterState) {
        self.log.clear();
        self.term = self.term.max(state.applied);
        self.leader = None;
        for coordinator in &mut self.coordinators {
            coordinator.state = state.clone();
            coordinator.applied = 0;
            coordinator.session = None;
            coordinator.under_way.clear();
        }
        self.state = state.clone();
        self.origin = state;
    }

    /// Returns true if this coordinator leads and reaches a majority now.
    pub(crate) fn commits(&self, coordinator: usize, truth: u64) -> bool {
        let own = &self.coordinators[coordinator];
        self.leader == Some(coordinator)
            && self.down_until <= truth
            && !own.is_isolated(truth)
            && own.paused_until <= truth
    }
}

/// Returns the state before the first entry, with a core rule disabled by the mutant.
fn empty(mutant: Option<Mutant>) -> ClusterState {
    #[cfg_attr(not(feature = "mutants"), allow(unused_mut))]
    let mut state = ClusterState::new();
    #[cfg(feature = "mutants")]
    if let Some(Mutant::Core(broken)) = mutant {
        state.mutant = Some(broken);
    }
    #[cfg(not(feature = "mutants"))]
    let _ = mutant;
    state
}
