//! Property V: the cluster converges once faults stop. The result describes what is still missing.

use crate::coordinator::member::host_of;
use crate::host::engine::SimEngine;
use crate::host::shell::MachineShell;
use crate::world::World;
use archon_coordinator_core::waiting_for;
use archon_host::LocalCopy;
use archon_kv::engine::{PageLimit, Row};
use archon_kv::row::{EXPIRING_KEY, KIND_VALUE, LOG_TIME_KEY, MERGED_KEY, POSITION_KEY};
use archon_kv::{Effect, PartitionView, Reader, Seal, View, ViewError, Window};
use archon_types::{
    ClientId, Millis, NodeId, NodeStatus, Partition, PartitionStatus, PlacementId, ReplicaState, ScanOrder,
};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;

impl World {
    /// Returns what the coordinator's state still lacks; `None` once it has converged.
    pub(crate) fn missing_in_state(&self) -> Option<String> {
        let state = &self.quorum.state;
        for host in &self.hosts {
            let row = state.node_by_storage(host.disk.storage);
            if !row.is_some_and(|row| row.is_active()) {
                return Some(format!("host {} is not active", host.number));
            }
        }
        for migration in state.migrations.active() {
            if !state.partitions.get(migration.partition).is_some_and(|row| self.is_gone(row)) {
                let why = waiting_for(state, migration);
                return Some(format!("{migration:?} is not over: {why:?}"));
            }
        }
        state.data_rows().find_map(|row| self.missing_in_row(row))
    }

    fn missing_in_row(&self, row: &Partition) -> Option<String> {
        let state = &self.quorum.state;
        if self.is_gone(row) {
            return None;
        }
        if row.status != PartitionStatus::Online {
            return Some(format!("{} is {}: {row:?}", row.id, row.status));
        }
        if let Some(split) = &row.split {
            return Some(format!("{} is being split: {split:?}", row.id));
        }
        if let Some(merge) = &row.merge {
            return Some(format!("{} is being merged: {merge:?}", row.id));
        }
        let stuck = row.placements.iter().find(|copy| match copy.state {
            ReplicaState::Live => !state.is_active(copy.node),
            ReplicaState::Load | ReplicaState::Unload => true,
        });
        if let Some(stuck) = stuck {
            let node = state.node(stuck.node).map(|node| node.node.status);
            let lost = node.is_none_or(|status| status == NodeStatus::Lost);
            return Some(format!("{stuck:?} of {} (its node is lost: {lost})", row.id));
        }
        let wanted = state.tables.get(&row.id.table).map_or(0, |table| usize::from(table.replication));
        let live = row.live().count();
        (live != wanted).then(|| format!("{live} of {wanted} copies of {}: {row:?}", row.id))
    }

    /// Returns true if faults destroyed every in-sync copy of this partition: only an operator can resolve that, and in
    /// most worlds none does.
    fn is_gone(&self, row: &Partition) -> bool {
        let left = !self.plan.accepts_loss && self.checks.damage.reached(row.id);
        left && row.live().next().is_none()
    }

    /// Returns what the nodes still lack, once the coordinator's state has converged.
    pub(crate) fn missing_on_nodes(&self) -> Option<String> {
        for row in self.quorum.state.data_rows().filter(|row| !self.is_gone(row)) {
            let Some(leader) = row.leader_placement() else { continue };
            let end = self.copy_of(leader.node, leader.id).map(|local| local.replica.last());
            for live in row.live() {
                let Some(local) = self.copy_of(live.node, live.id) else {
                    return Some(format!("{} of {} is not open", live.id, row.id));
                };
                let behind = Some(local.replica.last()) != end || local.replica.commit() != local.replica.last().seq;
                if self.is_sealed(row, live.node, live.id) {
                    return Some(format!("{} of {} has keys sealed, and is not being split", live.id, row.id));
                }
                if behind || local.serving != (live.id == leader.id) {
                    let (last, commit) = (local.replica.last(), local.replica.commit());
                    let standing = local.replica.status();
                    return Some(format!("{} of {} is {standing:?} at {last:?}, committed {commit}", live.id, row.id));
                }
            }
        }
        None
    }

    fn copy_of(&self, node: NodeId, placement: PlacementId) -> Option<&LocalCopy<MachineShell>> {
        let address = &self.quorum.state.node(node)?.node.address;
        self.hosts.get(host_of(address)?)?.process.as_ref()?.partitions.copies().get(&placement)
    }

    /// Returns true if the log of a copy gives keys away that its row does not.
    fn is_sealed(&self, row: &Partition, node: NodeId, copy: PlacementId) -> bool {
        let Some((local, engine)) = self.copy_of(node, copy).zip(self.engine_of(node)) else { return false };
        let view = PartitionView::new(&local.memtable, engine, copy, Reader::Committed);
        !row.is_reshaped() && !matches!(Seal::current(&view), Ok(None))
    }

    fn engine_of(&self, node: NodeId) -> Option<&SimEngine> {
        let address = &self.quorum.state.node(node)?.node.address;
        Some(&self.hosts.get(host_of(address)?)?.disk.engine)
    }

    /// Returns a Live replica whose rows differ from those of the committed log.
    pub(crate) fn differing_rows(&self) -> Option<String> {
        for row in self.quorum.state.data_rows().filter(|row| !self.is_gone(row)) {
            let Some(known) = self.checks.partitions.get(&row.id) else { continue };
            let (mut model, mut windows) = (BTreeMap::<Bytes, Bytes>::new(), BTreeMap::<ClientId, Window>::new());
            for entry in known.latest().ledger.entries() {
                let Ok(effect) = Effect::decode(&entry.bytes) else { continue };
                model.retain(|key, _| !effect.clears(key));
                for change in effect.rows() {
                    match change.value {
                        Some(value) => model.insert(change.key, value),
                        None => model.remove(&change.key),
                    };
                }
                windows.retain(|client, _| !effect.forget.contains(client));
                if let Some(record) = &effect.record {
                    let window = windows.entry(record.client).or_insert_with(|| Window::new(record, effect.at));
                    window.record(record, effect.at);
                }
                if let Some(key_origin) = known.key_origin.as_ref().filter(|key_origin| key_origin.at == entry.at.seq) {
                    // Copied from the parent, except the time, which may be any later one.
                    let of_origin =
                        |key: &Bytes| key.first() == Some(&KIND_VALUE) && key_origin.keys.contains(&key[1..]);
                    model.retain(|key, _| of_origin(key) || key == MERGED_KEY || key == EXPIRING_KEY);
                    windows.clear();
                }
            }
            if let Some(key) =
                model.keys().find(|key| key.first() == Some(&KIND_VALUE) && !row.range.contains(&key[1..]))
            {
                return Some(format!("{} has {key:?}, which is not one of its keys", row.id));
            }
            for live in row.live() {
                let Some(local) = self.copy_of(live.node, live.id) else { continue };
                let Some(engine) = self.engine_of(live.node) else { continue };
                let view = PartitionView::new(&local.memtable, engine, live.id, Reader::Committed);
                let all = PageLimit { rows_max: usize::MAX, bytes_max: usize::MAX };
                let Ok(page) = view.page(Bound::Unbounded, &[0xFF], ScanOrder::Ascending, all) else {
                    return Some(format!("{} of {} cannot be read", live.id, row.id));
                };
                // Each engine has its own time.
                let timeless = known.key_origin.is_some() && !model.contains_key(LOG_TIME_KEY);
                // The copied rows may have the mark of a later value of the parent.
                let marked = known.key_origin.is_some() && !model.contains_key(EXPIRING_KEY);
                let own = |row: &Row| {
                    row.key == POSITION_KEY
                        || (timeless && row.key == LOG_TIME_KEY)
                        || (marked && row.key == EXPIRING_KEY)
                };
                let rows = page.rows.into_iter().filter(|row| !own(row));
                let found: BTreeMap<Bytes, Bytes> = rows.map(|row| (row.key, row.value)).collect();
                if found != model {
                    let key = model.iter().find(|(key, value)| found.get(*key) != Some(value));
                    let extra = found.iter().find(|(key, _)| !model.contains_key(*key));
                    return Some(format!("{} of {}: expected {key:?}, not {extra:?}", live.id, row.id));
                }
                match differing_window(&view, &windows) {
                    Ok(None) => {}
                    Ok(Some(client)) => {
                        return Some(format!("{} of {}: the window of {client} differs", live.id, row.id));
                    }
                    Err(error) => {
                        return Some(format!("{} of {}: its windows cannot be read: {error}", live.id, row.id));
                    }
                }
            }
        }
        None
    }
}

/// Returns a client with another committed window than this one, or with one although it should have none.
fn differing_window(
    view: &PartitionView<'_>,
    windows: &BTreeMap<ClientId, Window>,
) -> Result<Option<ClientId>, ViewError> {
    let mut from = Some(ClientId::NIL);
    while let Some(next) = from {
        let (found, after) = view.clients(next, usize::MAX)?;
        let differs = |(client, last): &(ClientId, Millis)| windows.get(client).is_none_or(|known| known.last != *last);
        if let Some((client, _)) = found.into_iter().find(differs) {
            return Ok(Some(client));
        }
        from = after;
    }
    for (client, window) in windows {
        if view.window(*client)?.as_deref() != Some(window) {
            return Ok(Some(*client));
        }
    }
    view.differing_cached_window()
}
