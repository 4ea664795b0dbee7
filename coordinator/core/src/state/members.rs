//! Look-ups of nodes and participants, and changes of their rows.

use crate::state::ClusterState;
use crate::state::former_leaders::FormerLeader;
use crate::state::node_row::NodeRow;
use crate::state::nodes::Nodes;
use archon_types::{
    ErrorDetail, ErrorKind, Incarnation, LeaseTiming, NodeId, NodeStatus, Partition, RemovedNodes, StorageId,
    TableContent, TableId, Version,
};

impl FormerLeader {
    /// Returns the leader of this partition by its row, in its present incarnation, as a former leader that may not
    /// know the end; `None` without a leader.
    pub(crate) fn holding(state: &ClusterState, row: &Partition) -> Option<Self> {
        let leader = row.leader_placement()?;
        Some(Self {
            partition: row.id,
            epoch: row.epoch,
            placement: leader.id,
            node: leader.node,
            incarnation: state.incarnation(leader.node)?,
            failure_timeout_ms: state.timing_of(leader.node).failure_timeout_ms,
            lapsed: false,
        })
    }
}

impl NodeRow {
    /// Returns true if it has no room because of a limit of its own, which an operator can raise.
    pub fn is_at_own_limit(&self, state: &ClusterState) -> bool {
        self.room(state) == 0 && self.assigned_max() < self.assignable_max()
    }

    /// Returns the room for further copies, or leases, beside its present ones.
    pub(crate) fn room(&self, state: &ClusterState) -> u32 {
        self.room_beside(state.partitions.count_on(self.node.id))
    }
}

/// Maximum distance of any log's end from the applied index.
pub(crate) const AHEAD_MAX: u64 = 1_000_000;

impl ClusterState {
    /// Returns the removed nodes, if one was removed after `since`.
    pub fn removed_since(&self, since: Version) -> Option<RemovedNodes> {
        let list = || {
            // Participants are excluded from the removed nodes: otherwise a relay of their heartbeats would report them
            // as fenced.
            let mut there: Vec<NodeId> = self.members().map(|row| row.node.id).collect();
            there.sort_unstable();
            RemovedNodes::all_but(there.into_iter(), self.node_last, self.removed_version)
        };
        (self.removed_version > since).then(list)
    }

    /// Returns the removed members of a table, if one was removed after `since`.
    pub fn removed_of_since(&self, table: TableId, since: Version) -> Option<RemovedNodes> {
        if !self.is_lease(table) {
            return self.removed_since(since);
        }
        let version = self.participants_removed_version;
        (version > since).then(|| RemovedNodes::all_but(self.participants.keys().copied(), self.node_last, version))
    }

    /// Returns a version that rises whenever an incarnation begins, acts or ends, or a member's row changes otherwise.
    pub fn lives_version(&self) -> Version {
        self.nodes_version.max(self.participants_version).max(self.activated_version)
    }

    /// Returns the row of a node or a participant.
    pub fn node(&self, id: NodeId) -> Option<&NodeRow> {
        self.nodes.get(&id).or_else(|| self.participants.get(&id))
    }

    /// Returns the rows of all nodes and participants.
    pub fn members(&self) -> impl Iterator<Item = &NodeRow> {
        self.nodes.values().chain(self.participants.values())
    }

    /// Returns the members of a table: the participants for a lease table, else all nodes.
    pub fn members_of(&self, table: TableId) -> &Nodes {
        if self.is_lease(table) { &self.participants } else { &self.nodes }
    }

    /// Returns true if partitions of this table may be placed on this member.
    pub fn serves(&self, member: NodeId, table: TableId) -> bool {
        let Some(table) = self.tables.get(&table) else { return false };
        match self.participants.get(&member).and_then(|row| row.participant.as_ref()) {
            Some(participant) => table.holds == TableContent::Lease && participant.serves(&table.name),
            None => table.holds == TableContent::Data,
        }
    }

    /// Returns the heartbeat and lease timing of one member.
    pub fn timing_of(&self, member: NodeId) -> LeaseTiming {
        let own = self.participants.get(&member).and_then(|row| row.participant.as_ref()?.timing);
        own.unwrap_or(self.settings.timing)
    }

    /// Returns the node or participant with this name that is not lost.
    pub fn node_by_name(&self, name: &str) -> Option<&NodeRow> {
        let named = self.nodes.named(name).chain(self.participants.named(name));
        named.into_iter().find(|row| row.node.status != NodeStatus::Lost)
    }

    /// Returns the node with this data directory.
    pub fn node_by_storage(&self, storage: StorageId) -> Option<&NodeRow> {
        self.nodes.with_storage(storage)
    }

    /// Returns true if the node is alive and acts in its present incarnation.
    pub fn is_active(&self, node: NodeId) -> bool {
        self.node(node).is_some_and(NodeRow::is_active)
    }

    /// Returns true if the node is believed alive.
    pub fn is_alive(&self, node: NodeId) -> bool {
        self.node(node).is_some_and(|row| row.node.status == NodeStatus::Alive)
    }

    /// Returns true if the node registered, never confirmed that it acts, and failed, without a copy on it: nothing is
    /// lost with it.
    pub fn is_stranger(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|row| {
            row.node.status == NodeStatus::Failed && row.activated.is_none() && self.partitions.count_on(node) == 0
        })
    }

    /// Returns the present incarnation of a node.
    pub fn incarnation(&self, node: NodeId) -> Option<Incarnation> {
        self.node(node).map(|row| row.node.incarnation)
    }

    /// Returns the number of nodes believed alive.
    pub fn nodes_alive(&self) -> usize {
        self.nodes.len() - self.nodes.down().count()
    }

    /// Checks that a message comes from a node's present incarnation.
    ///
    /// # Errors
    /// `StaleIncarnation` if its row shows that this incarnation is fenced: the node was removed, failed, lost or
    /// registered again since, and should register again. `Unavailable` (retryable) if its incarnation is newer than
    /// this state.
    pub fn check_sender(&self, node: NodeId, incarnation: Incarnation) -> Result<&NodeRow, ErrorDetail> {
        let stale = |why: String| Err(ErrorDetail::new(ErrorKind::StaleIncarnation, why));
        let row = self.node(node);
        let known = row.map_or(Incarnation::ZERO, |row| row.node.incarnation);
        // An incarnation of an earlier generation, or of another one of this number, will not appear in this state.
        let coming = self.applied.saturating_add(1)..self.applied.saturating_add(AHEAD_MAX);
        if incarnation > known && coming.contains(&incarnation.get()) {
            let message = format!("incarnation {incarnation} of node {node} is not applied here yet; try again");
            return Err(ErrorDetail::new(ErrorKind::Unavailable, message).with_retry_after_ms(50));
        }
        let Some(row) = row else {
            return stale(format!("node {node} is not registered here; register first"));
        };
        if incarnation != known {
            return stale(format!(
                "incarnation {incarnation} of {} was replaced by {known}; register again",
                row.node.name
            ));
        }
        if row.node.status != NodeStatus::Alive {
            return stale(format!("{} is {}; register again to return", row.node.name, row.node.status));
        }
        Ok(row)
    }

    /// Changes the row of a node or a participant. Returns true if there is one. Holders of the row learn of the change
    /// only if it set this version.
    pub(crate) fn update_member(&mut self, id: NodeId, version: Version, change: impl FnOnce(&mut NodeRow)) -> bool {
        let (members, newest) = match self.participants.get(&id) {
            Some(_) => (&mut self.participants, &mut self.participants_version),
            None => (&mut self.nodes, &mut self.nodes_version),
        };
        let mut renewed = false;
        let changed = members.update(id, |row| {
            change(row);
            renewed = row.node.version == version;
        });
        if renewed {
            *newest = version;
        }
        changed
    }

    /// Forgets a node or a participant. Holders of its row learn of it by the version.
    pub(crate) fn remove_node(&mut self, node: NodeId, version: Version) {
        if self.participants.remove(node).is_some() {
            (self.participants_version, self.participants_removed_version) = (version, version);
        }
        if self.nodes.remove(node).is_some() {
            (self.nodes_version, self.removed_version) = (version, version);
        }
    }
}
