//! Nodes that live and that clients do not reach: what their keepers say is judged here (PROTOCOL rules 74 to 76).
//!
//! All of it is in memory: a new leader starts afresh. What follows from a verdict is a withdrawal as any other (rules 15 and 16), so a
//! wrong one costs a hand-over and nothing else.

use crate::liveness::Liveness;
use crate::mutant::Mutant;
use crate::state::ClusterState;
use archon_types::{
    DoorReport, DoorState, Incarnation, Millis, Node, NodeId, NodeStatus, Partition, RelayCandidate, keepers,
    keepers_of,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Of so many live nodes one may be unreached at once; of fewer, one as well (rule 75).
const NODES_PER_UNREACHED: usize = 20;

/// A verdict on a node began or ended. It goes into the events, and nothing is decided by it there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DoorNews {
    /// Whose door it is.
    pub node: NodeId,
    /// In which life.
    pub incarnation: Incarnation,
    /// Who finds it shut; nobody: it is open again.
    pub by: Vec<NodeId>,
    /// For how long it has been shut, or was, in milliseconds.
    pub shut_for_ms: u64,
}

/// How the door of a node is, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DoorView {
    /// How it is.
    pub state: DoorState,
    /// For how long, in milliseconds, if it is not just open.
    pub for_ms: Option<u64>,
    /// The keepers that find it shut.
    pub by: Vec<NodeId>,
}

/// What a keeper said last.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Word {
    incarnation: Incarnation,
    at: Millis,
    report: DoorReport,
}

/// What the keepers of one node say of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Said {
    /// Those that find its door shut, each since when.
    shut: Vec<(NodeId, Millis)>,
    /// Both keepers do, for long enough, and both can be believed.
    agreed: bool,
    /// A keeper reaches it.
    reached: bool,
}

/// A verdict on one life.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Judged {
    incarnation: Incarnation,
    /// Since when its door is shut.
    since: Millis,
    /// When it was open again, if it is.
    opened: Option<Millis>,
    by: Vec<NodeId>,
}

/// What the leading coordinator knows of doors.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Doors {
    words: BTreeMap<NodeId, Word>,
    judged: BTreeMap<NodeId, Judged>,
    /// The doors that some keeper finds shut, as they were judged last.
    doubted: BTreeMap<NodeId, Vec<(NodeId, Millis)>>,
    news: Vec<DoorNews>,
}

impl Doors {
    /// A keeper says what it finds. Its latest word stands.
    pub(crate) fn note(&mut self, keeper: NodeId, incarnation: Incarnation, report: DoorReport, now: Millis) {
        self.words.insert(keeper, Word { incarnation, at: now, report });
    }

    /// Judges what was said by now, of a coordinator that has led since then; nodes that leave anyway are left alone. Returns whether any
    /// verdict began or ended.
    pub(crate) fn judge(
        &mut self,
        state: &ClusterState,
        leads_since: Millis,
        leaves: impl Fn(NodeId) -> bool,
        now: Millis,
    ) -> bool {
        let timeout_ms = state.settings.timing.failure_timeout_ms;
        self.words
            .retain(|keeper, word| is_that_life(state, *keeper, word.incarnation) && now.since(word.at) <= timeout_ms);
        if state.settings.doors_every_ms(state.protocol) == 0 {
            let any = !self.judged.is_empty();
            (self.judged, self.doubted) = (BTreeMap::new(), BTreeMap::new());
            self.words.clear();
            return any;
        }
        let said = self.said(state);
        let before = self.judged.len();
        let over = |judged: &Judged| {
            let trusted_at = judged.opened.map(|opened| opened.plus(state.settings.door_trust_ms));
            trusted_at.is_some_and(|at| now >= at)
        };
        self.judged.retain(|node, judged| is_that_life(state, *node, judged.incarnation) && !over(judged));
        let mut changed = self.judged.len() != before;
        for (node, judged) in &mut self.judged {
            let said = said.get(node).cloned().unwrap_or_default();
            if judged.opened.is_none() && said.reached {
                judged.opened = Some(now);
                let (incarnation, shut_for_ms) = (judged.incarnation, now.since(judged.since));
                self.news.push(DoorNews { node: *node, incarnation, by: Vec::new(), shut_for_ms });
                changed = true;
            }
        }
        changed |= self.condemn(state, &said, now.since(leads_since) >= timeout_ms, leaves, now);
        let doubted = said.into_iter().filter(|(_, said)| !said.shut.is_empty());
        self.doubted = doubted.map(|(node, said)| (node, said.shut)).collect();
        changed
    }

    /// Begins verdicts, as many as there may be.
    fn condemn(
        &mut self,
        state: &ClusterState,
        said: &BTreeMap<NodeId, Said>,
        settled: bool,
        leaves: impl Fn(NodeId) -> bool,
        now: Millis,
    ) -> bool {
        let most = match state.breaks(Mutant::DoorsEmptyTheCluster) {
            true => usize::MAX, // rule 75
            false => (state.nodes_alive() / NODES_PER_UNREACHED).max(1),
        };
        let mut left = most.saturating_sub(self.unreached().count());
        let agreed = said.iter().filter(|(node, said)| said.agreed && !leaves(**node));
        let mut due: Vec<(Millis, NodeId)> = agreed
            .filter(|(node, _)| self.judged.get(*node).is_none_or(|judged| judged.opened.is_some()))
            // Since both of them say so.
            .map(|(node, said)| (said.shut.iter().map(|(_, since)| *since).max().unwrap_or(now), *node))
            .collect();
        due.sort_unstable();
        let mut changed = false;
        for (since, node) in due {
            let Some(incarnation) = state.incarnation(node).filter(|_| left > 0 && settled) else { break };
            let by: Vec<NodeId> = said.get(&node).into_iter().flat_map(|said| &said.shut).map(|(by, _)| *by).collect();
            self.news.push(DoorNews { node, incarnation, by: by.clone(), shut_for_ms: now.since(since) });
            self.judged.insert(node, Judged { incarnation, since, opened: None, by });
            left -= 1;
            changed = true;
        }
        changed
    }

    /// What is said of all nodes of which anything is said that matters, by those who are to say it.
    fn said(&self, state: &ClusterState) -> BTreeMap<NodeId, Said> {
        let accused = self.words.values().flat_map(|word| &word.report.shut).map(|door| door.node);
        let named: BTreeSet<NodeId> = accused.chain(self.judged.keys().copied()).collect();
        if named.is_empty() {
            return BTreeMap::new();
        }
        let alive = state.nodes.values().filter(|row| row.node.status == NodeStatus::Alive);
        let keepers = keepers(state.cluster, alive.map(|row| RelayCandidate::of(&row.node)));
        let rows = named.into_iter().filter_map(|node| state.nodes.get(&node));
        let rows = rows.filter(|row| row.node.status == NodeStatus::Alive);
        rows.map(|row| (row.node.id, self.said_of(state, &row.node, &keepers))).collect()
    }

    /// What a node's keepers say of its present life (rule 74).
    fn said_of(&self, state: &ClusterState, node: &Node, keepers: &[RelayCandidate<'_>]) -> Said {
        let mut said = Said::default();
        let two = keepers_of(RelayCandidate::of(node), keepers);
        let mut believed = 0;
        for keeper in &two {
            let Some(Word { report, at, .. }) = self.words.get(keeper) else { continue };
            match report.of(node.id).filter(|door| door.incarnation == node.incarnation) {
                Some(door) => {
                    // What was said a moment ago is not known to be so since.
                    let since_ms = door.since_ms.min(at.get());
                    said.shut.push((*keeper, Millis::new(at.get() - since_ms)));
                    let long = door.since_ms >= state.settings.door_silent_ms;
                    believed += usize::from(long && report.reaches_the_others(node.id));
                }
                None => said.reached |= report.is_whole() && report.of(node.id).is_none(),
            }
        }
        let needed = if state.breaks(Mutant::DoorOfOne) { 1 } else { 2 }; // rule 74
        said.agreed = believed >= needed;
        said
    }

    /// The nodes that clients do not reach.
    pub(crate) fn unreached(&self) -> impl Iterator<Item = NodeId> + use<'_> {
        self.judged.iter().filter(|(_, judged)| judged.opened.is_none()).map(|(node, _)| *node)
    }

    /// Whether the node leads only what no other copy can lead: clients do not reach it, or have not for long enough.
    pub(crate) fn spares(&self, node: NodeId) -> bool {
        self.judged.contains_key(&node)
    }

    /// Whether clients do not reach it.
    fn is_unreached(&self, node: NodeId) -> bool {
        self.judged.get(&node).is_some_and(|judged| judged.opened.is_none())
    }

    /// Verdicts that began or ended since this was asked for last.
    pub(crate) fn take_news(&mut self) -> Vec<DoorNews> {
        std::mem::take(&mut self.news)
    }

    /// How every door is that is not just open, for people; `None` if nobody says anything of doors.
    pub(crate) fn views(&self, now: Millis) -> Option<BTreeMap<NodeId, DoorView>> {
        if self.words.is_empty() {
            return None;
        }
        let doubted = self.doubted.iter().map(|(node, shut)| {
            let since = shut.iter().map(|(_, since)| *since).min().unwrap_or(now);
            let by = shut.iter().map(|(by, _)| *by).collect();
            (*node, DoorView { state: DoorState::Doubted, for_ms: Some(now.since(since)), by })
        });
        let mut views: BTreeMap<NodeId, DoorView> = doubted.collect();
        for (node, judged) in &self.judged {
            let (state, since, by) = match judged.opened {
                Some(opened) => (DoorState::Returning, opened, Vec::new()),
                None => (DoorState::Unreached, judged.since, judged.by.clone()),
            };
            views.insert(*node, DoorView { state, for_ms: Some(now.since(since)), by });
        }
        Some(views)
    }
}

impl Liveness {
    /// A life that was heard says what it finds at the doors at which it knocks.
    pub fn note_doors(&mut self, keeper: NodeId, incarnation: Incarnation, report: DoorReport, now: Millis) {
        self.doors.note(keeper, incarnation, report, now);
    }

    /// How many nodes clients do not reach.
    pub fn unreached(&self) -> usize {
        self.unreached_nodes().count()
    }

    /// The nodes that clients do not reach.
    pub fn unreached_nodes(&self) -> impl Iterator<Item = NodeId> + use<'_> {
        self.doors.unreached()
    }

    /// The nodes that are given only leaderships that nobody else can have: clients do not reach them, or have not for long enough.
    pub fn spared(&self) -> BTreeSet<NodeId> {
        self.doors.judged.keys().copied().collect()
    }

    /// Verdicts that began or ended since this was asked for last.
    pub fn door_news(&mut self) -> Vec<DoorNews> {
        self.doors.take_news()
    }

    /// Judges the doors at `now`. What follows is for the next pass.
    pub(crate) fn judge_doors(&mut self, state: &ClusterState, now: Millis) {
        let mut doors = std::mem::take(&mut self.doors);
        if doors.judge(state, self.became_leader_at(), |node| !self.may_lead(node), now) {
            self.passed = None;
        }
        self.doors = doors;
    }

    /// What nodes lead that clients do not reach, where another copy can lead: withdrawn, so that they release it.
    pub(crate) fn withdraw_unreached(&mut self, state: &ClusterState) {
        let leading = |node: &NodeId| state.partitions.leaders_on(*node) > 0;
        for node in self.doors.unreached().filter(leading).collect::<Vec<_>>() {
            let led = |row: &&Partition| row.leader_placement().is_some_and(|leader| leader.node == node);
            let rows = state.partitions.on_node(node).filter(led).filter(|row| self.goes_elsewhere(state, row));
            for partition in rows.map(|row| row.id).collect::<Vec<_>>() {
                self.withdraw(state, partition);
            }
        }
    }

    /// Whether a leadership of a node that clients do not reach ends: there are enough copies elsewhere to serve without it, and one of them
    /// can lead (rule 76).
    fn goes_elsewhere(&self, state: &ClusterState, row: &Partition) -> bool {
        if state.breaks(Mutant::UnreachedLosesTheLast) {
            return true;
        }
        let own = row.leader_placement().map(|leader| leader.node);
        let serves = |node: NodeId| {
            Some(node) != own && state.is_active(node) && self.may_lead(node) && !self.doors.is_unreached(node)
        };
        let others = || row.live().filter(|live| serves(live.node));
        others().count() >= usize::from(row.min_in_sync.max(1)) && others().any(|live| !self.doors.spares(live.node))
    }
}

/// Whether that life of the node goes on.
fn is_that_life(state: &ClusterState, node: NodeId, incarnation: Incarnation) -> bool {
    state
        .nodes
        .get(&node)
        .is_some_and(|row| row.node.status == NodeStatus::Alive && row.node.incarnation == incarnation)
}
