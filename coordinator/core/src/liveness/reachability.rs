//! Verdicts on live nodes that clients cannot reach, from the reports of their keepers (PROTOCOL rules 74 to 76).
//!
//! All of this is volatile: a new leader starts empty. A verdict leads to a withdrawal like any other (rules 15 and
//! 16), so a wrong one costs only a hand-over.

use crate::mutant::Mutant;
use crate::state::ClusterState;
use crate::state::events::DoorNews;
use archon_types::{
    DoorReport, DoorState, Incarnation, Millis, Node, NodeId, NodeStatus, RelayCandidate, keepers, keepers_of,
};
use std::collections::{BTreeMap, BTreeSet};

/// One of this many live nodes may be unreached at a time; with fewer nodes, one as well (rule 75).
const NODES_PER_UNREACHED: usize = 20;

/// State of a node's door, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DoorView {
    /// The state.
    pub state: DoorState,
    /// Age of the state in milliseconds, unless it is simply open.
    pub for_ms: Option<u64>,
    /// The keepers that find it shut.
    pub by: Vec<NodeId>,
}

/// Last report of a keeper.
#[derive(Clone, PartialEq, Eq, Debug)]
struct KeeperReport {
    incarnation: Incarnation,
    at: Millis,
    report: DoorReport,
}

/// Reports of the keepers of one node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct ProberReports {
    /// Keepers that find its door shut, each with the start.
    shut: Vec<(NodeId, Millis)>,
    /// Both keepers find it shut for long enough, and both are credible.
    agreed: bool,
    /// A keeper reaches it.
    reached: bool,
}

/// A verdict on one incarnation.
#[derive(Clone, PartialEq, Eq, Debug)]
struct DoorVerdict {
    incarnation: Incarnation,
    /// Time at which its door was shut.
    since: Millis,
    /// Time at which it opened again, if it did.
    opened: Option<Millis>,
    by: Vec<NodeId>,
}

/// Knowledge of the leading coordinator about doors.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Reachability {
    words: BTreeMap<NodeId, KeeperReport>,
    judged: BTreeMap<NodeId, DoorVerdict>,
    /// The doors that some keeper finds shut, as of the last verdicts.
    doubted: BTreeMap<NodeId, Vec<(NodeId, Millis)>>,
    news: Vec<DoorNews>,
}

impl Reachability {
    /// Records the report of a keeper, replacing its previous one.
    pub(crate) fn note(&mut self, keeper: NodeId, incarnation: Incarnation, report: DoorReport, now: Millis) {
        self.words.insert(keeper, KeeperReport { incarnation, at: now, report });
    }

    /// Updates the verdicts from the reports for a coordinator that leads since `leads_since`; skips nodes that leave
    /// anyway. Returns true if any verdict began or ended.
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
        let over = |judged: &DoorVerdict| {
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

    /// Begins verdicts, up to the limit.
    fn condemn(
        &mut self,
        state: &ClusterState,
        said: &BTreeMap<NodeId, ProberReports>,
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
            // The later keeper's start: since then both agree.
            .map(|(node, said)| (said.shut.iter().map(|(_, since)| *since).max().unwrap_or(now), *node))
            .collect();
        due.sort_unstable();
        let mut changed = false;
        for (since, node) in due {
            let Some(incarnation) = state.incarnation(node).filter(|_| left > 0 && settled) else { break };
            let by: Vec<NodeId> = said.get(&node).into_iter().flat_map(|said| &said.shut).map(|(by, _)| *by).collect();
            self.news.push(DoorNews { node, incarnation, by: by.clone(), shut_for_ms: now.since(since) });
            self.judged.insert(node, DoorVerdict { incarnation, since, opened: None, by });
            left -= 1;
            changed = true;
        }
        changed
    }

    /// Returns the reports about all nodes that are reported shut or have a verdict, from their present keepers.
    fn said(&self, state: &ClusterState) -> BTreeMap<NodeId, ProberReports> {
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

    /// Returns the reports of a node's keepers about its present incarnation (rule 74).
    fn said_of(&self, state: &ClusterState, node: &Node, keepers: &[RelayCandidate<'_>]) -> ProberReports {
        let mut said = ProberReports::default();
        let two = keepers_of(RelayCandidate::of(node), keepers);
        let mut believed = 0;
        for keeper in &two {
            let Some(KeeperReport { report, at, .. }) = self.words.get(keeper) else { continue };
            match report.of(node.id).filter(|door| door.incarnation == node.incarnation) {
                Some(door) => {
                    // A report covers only the time up to its arrival.
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

    /// Returns the nodes that clients cannot reach.
    pub(crate) fn unreached(&self) -> impl Iterator<Item = NodeId> + use<'_> {
        self.judged.iter().filter(|(_, judged)| judged.opened.is_none()).map(|(node, _)| *node)
    }

    /// Returns the nodes that may lead only partitions without another possible leader.
    pub(crate) fn spared(&self) -> impl Iterator<Item = NodeId> + use<'_> {
        self.judged.keys().copied()
    }

    /// Returns true if the node may lead only partitions without another possible leader: it is unreached, or was until
    /// recently.
    pub(crate) fn spares(&self, node: NodeId) -> bool {
        self.judged.contains_key(&node)
    }

    /// Returns true if clients cannot reach the node.
    pub(crate) fn is_unreached(&self, node: NodeId) -> bool {
        self.judged.get(&node).is_some_and(|judged| judged.opened.is_none())
    }

    /// Takes the verdicts that began or ended since the last call.
    pub(crate) fn take_news(&mut self) -> Vec<DoorNews> {
        std::mem::take(&mut self.news)
    }

    /// Returns the state of every door that is not simply open, for people; `None` without any reports.
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

/// Returns true if this is the present incarnation of an alive node.
fn is_that_life(state: &ClusterState, node: NodeId, incarnation: Incarnation) -> bool {
    state
        .nodes
        .get(&node)
        .is_some_and(|row| row.node.status == NodeStatus::Alive && row.node.incarnation == incarnation)
}
