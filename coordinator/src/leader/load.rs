//! Reported loads of nodes: for plans, progress and people, never for safety. Kept in the leader's memory.

use archon_proto::convert::members::load::{Load as Said, PlacementLoad};
use archon_types::{DiskFull, LogPin, MemberCertificate, Millis, NodeId, PlacementId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Maximum number of placements recorded per node; a heartbeat names only changed ones.
const PLACEMENTS_PER_NODE_MAX: usize = 32_768;

/// Progress of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CopyProgress {
    /// Bytes copied.
    pub(crate) done: u64,
    /// Total bytes, estimated.
    pub(crate) total: u64,
}

impl CopyProgress {
    /// Returns the progress in percent, below 100 while the copy goes on.
    pub(crate) fn percent(self) -> u32 {
        if self.total == 0 {
            return 0;
        }
        let percent = self.done.saturating_mul(100) / self.total;
        u32::try_from(percent).unwrap_or(99).min(99)
    }
}

#[derive(Clone, Debug, Default)]
struct Load {
    bytes_stored: u64,
    operations_per_second: u64,
    placements: BTreeMap<PlacementId, PlacementLoad>,
    copies: BTreeMap<PlacementId, CopyProgress>,
    disk_full: Option<DiskFull>,
    certificate: Option<MemberCertificate>,
    log_pin: Option<LogPin>,
}

/// Time after which a report of a node that waits for disk space counts no longer. It is repeated with each attempt to
/// start, which may take long on a slow disk, and the first heartbeat ends it.
const WAIT_REPORTED: Duration = Duration::from_secs(120);

/// A node that is not registered, because it waits for disk space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpaceWait {
    /// The shortage.
    pub(crate) lack: DiskFull,
    /// Unix time at which the wait began.
    pub(crate) began: Millis,
    /// Time of the last report.
    pub(crate) reported: Instant,
}

fn is_recent(wait: &SpaceWait, now: Instant) -> bool {
    now.saturating_duration_since(wait.reported) < WAIT_REPORTED
}

/// The loads of all nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loads {
    nodes: BTreeMap<NodeId, Load>,
    /// Nodes that wait for disk space before they register.
    waits: BTreeMap<NodeId, SpaceWait>,
}

impl Loads {
    /// Records the load in a heartbeat. Returns true if its disk became full, or has space again.
    pub(crate) fn note(&mut self, node: NodeId, said: &Said) -> bool {
        self.waits.remove(&node);
        let load = self.nodes.entry(node).or_default();
        let turned = load.disk_full.is_some() != said.disk_full.is_some();
        load.disk_full = said.disk_full;
        load.certificate = said.certificate;
        load.log_pin = said.log_pin;
        load.bytes_stored = said.bytes_stored;
        load.operations_per_second = said.operations_per_second;
        for placement in &said.placements {
            let id = placement.placement;
            if load.placements.len() < PLACEMENTS_PER_NODE_MAX || load.placements.contains_key(&id) {
                load.placements.insert(id, *placement);
            }
        }
        let copies = said.copies.iter().take(PLACEMENTS_PER_NODE_MAX);
        load.copies = copies
            .map(|copy| (copy.placement, CopyProgress { done: copy.bytes_done, total: copy.bytes_total }))
            .collect();
        turned
    }

    /// Records that a node waits for disk space. Such a node is not alive, so only the age of a report ends it.
    pub(crate) fn note_wait(&mut self, node: NodeId, wait: SpaceWait) {
        self.waits.retain(|_, earlier| is_recent(earlier, wait.reported));
        self.waits.insert(node, wait);
    }

    /// Returns the nodes that wait for disk space, as reported a short time before `now`.
    pub(crate) fn waits(&self, now: Instant) -> impl Iterator<Item = (NodeId, SpaceWait)> {
        self.waits.iter().filter(move |(_, wait)| is_recent(wait, now)).map(|(node, wait)| (*node, *wait))
    }

    /// Returns the nodes that refuse writes because their disks are full.
    pub(crate) fn full_disks(&self) -> impl Iterator<Item = (NodeId, DiskFull)> {
        self.nodes.iter().filter_map(|(node, load)| Some((*node, load.disk_full?)))
    }

    /// Returns the nodes with a copy that retains much of the log.
    pub(crate) fn log_pins(&self) -> impl Iterator<Item = (NodeId, LogPin)> {
        self.nodes.iter().filter_map(|(node, load)| Some((*node, load.log_pin?)))
    }

    /// Returns the certificates of nodes.
    pub(crate) fn certificates(&self) -> impl Iterator<Item = (NodeId, MemberCertificate)> {
        self.nodes.iter().filter_map(|(node, load)| Some((*node, load.certificate?)))
    }

    /// Returns the lack of space of a node's disk, if it refuses writes because of it.
    pub(crate) fn disk_full(&self, node: NodeId) -> Option<DiskFull> {
        self.nodes.get(&node)?.disk_full
    }

    /// Forgets copies that have left their nodes. `held` returns the copies on a node; it is called only for nodes with
    /// more recorded copies than `count`.
    pub(crate) fn forget_departed(
        &mut self,
        count: impl Fn(NodeId) -> usize,
        held: impl Fn(NodeId) -> BTreeSet<PlacementId>,
    ) {
        for (node, load) in &mut self.nodes {
            if load.placements.len() > count(*node) {
                let held = held(*node);
                load.placements.retain(|placement, _| held.contains(placement));
            }
        }
    }

    /// Forgets the loads of nodes that are no longer alive. Reports of nodes that wait for disk space stay.
    pub(crate) fn retain(&mut self, keep: impl Fn(NodeId) -> bool) {
        self.nodes.retain(|node, _| keep(*node));
    }

    /// Returns the bytes that a node stores, if reported.
    pub(crate) fn bytes_stored(&self, node: NodeId) -> Option<u64> {
        self.nodes.get(&node).map(|load| load.bytes_stored)
    }

    /// Returns the keys that a node stores, if reported; overwritten rows may be counted more than once.
    pub(crate) fn keys(&self, node: NodeId) -> Option<u64> {
        let load = self.nodes.get(&node)?;
        Some(load.placements.values().fold(0, |keys, placement| keys.saturating_add(placement.keys)))
    }

    /// Returns the operations that a node answered in its last second, if reported.
    pub(crate) fn operations_per_second(&self, node: NodeId) -> Option<u64> {
        self.nodes.get(&node).map(|load| load.operations_per_second)
    }

    /// Returns the bytes of one copy; zero if unknown.
    pub(crate) fn bytes(&self, node: NodeId, placement: PlacementId) -> u64 {
        self.nodes.get(&node).and_then(|load| load.placements.get(&placement)).map_or(0, |placement| placement.bytes)
    }

    /// Returns the progress of a copy that a node loads.
    pub(crate) fn copied(&self, node: NodeId, placement: PlacementId) -> Option<CopyProgress> {
        self.nodes.get(&node)?.copies.get(&placement).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::DiskLimit;

    #[test]
    fn percent_stays_below_100_while_copying() {
        assert_eq!(CopyProgress { done: 0, total: 0 }.percent(), 0);
        assert_eq!(CopyProgress { done: 50, total: 200 }.percent(), 25);
        assert_eq!(CopyProgress { done: 300, total: 200 }.percent(), 99);
        assert_eq!(CopyProgress { done: u64::MAX, total: 1 }.percent(), 99);
    }

    /// The report of a stopped node was forgotten with the loads of nodes that are not alive, so `status` showed the node
    /// as stopped between two reports.
    #[test]
    fn wait_for_space_outlasts_the_load_of_its_node() {
        let (athens, byzantium, began) = (NodeId::new(1), NodeId::new(2), Instant::now());
        let lack = DiskFull { free_bytes: 0, needed_bytes: 7, limit: DiskLimit::default() };
        let wait = |reported| SpaceWait { lack, began: Millis::new(5), reported };
        let mut loads = Loads::default();
        loads.note(athens, &Said::default());
        loads.note_wait(athens, wait(began));
        loads.retain(|_| false);
        let waiting = |loads: &Loads, now| loads.waits(now).map(|(node, _)| node).collect::<Vec<_>>();
        assert_eq!(waiting(&loads, began), [athens]);
        assert!(waiting(&loads, began + WAIT_REPORTED).is_empty());
        loads.note_wait(byzantium, wait(began + WAIT_REPORTED));
        assert_eq!(loads.waits.len(), 1, "reports that ended are dropped by the next one");
        loads.note(byzantium, &Said::default());
        assert_eq!(loads.waits.len(), 0, "a heartbeat ends the wait");
    }

    #[test]
    fn sizes_of_departed_copies_are_forgotten() {
        let said = |placements: std::ops::Range<u64>| {
            let load = |id| PlacementLoad { placement: PlacementId::new(id), bytes: 7, keys: 1 };
            Said { placements: placements.map(load).collect(), ..Said::default() }
        };
        let mut loads = Loads::default();
        let (athens, byzantium) = (NodeId::new(1), NodeId::new(2));
        loads.note(athens, &said(1..40));
        loads.note(byzantium, &said(40..42));
        let held = |_| [38, 39].map(PlacementId::new).into();
        let asked = std::cell::RefCell::new(Vec::new());
        loads.forget_departed(
            |_| 2,
            |node| {
                asked.borrow_mut().push(node);
                held(node)
            },
        );
        assert_eq!(asked.take(), [athens], "the other one has no more than it holds");
        assert_eq!((loads.keys(athens), loads.keys(NodeId::new(3))), (Some(2), None));
        assert_eq!((loads.bytes(athens, PlacementId::new(1)), loads.bytes(athens, PlacementId::new(39))), (0, 7));
        assert_eq!((loads.nodes[&athens].placements.len(), loads.nodes[&byzantium].placements.len()), (2, 2));
    }
}
