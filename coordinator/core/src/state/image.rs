//! Images of the state, serialised while the state goes on changing.

use crate::state::ClusterState;
use serde::Serialize;
use std::sync::Arc;

/// A state at one instant, to be serialised or used elsewhere. It has no indexes for look-ups.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct Image(ClusterState);

impl Image {
    /// Returns the state of this image with rebuilt indexes, which takes time and blocks nothing.
    pub fn restored(self) -> ClusterState {
        let partitions = self.0.partitions.indexed();
        ClusterState { partitions, ..self.0 }
    }
}

impl ClusterState {
    /// Returns the serialisable content of this state while it goes on changing. It is cheap: partition rows are
    /// shared, not copied. It serialises like the state itself.
    pub fn image(&self) -> Image {
        Image(Self {
            cluster: self.cluster,
            settings: self.settings.clone(),
            settings_version: self.settings_version,
            access: Arc::clone(&self.access),
            access_version: self.access_version,
            protocol: self.protocol,
            protocol_held: self.protocol_held,
            generation: self.generation,
            generation_keys: self.generation_keys.clone(),
            recovery: self.recovery.clone(),
            former_coordinators: self.former_coordinators.clone(),
            coordinators: self.coordinators.clone(),
            nodes: self.nodes.clone(),
            participants: self.participants.clone(),
            tables: self.tables.clone(),
            partitions: self.partitions.image(),
            departed: self.departed.clone(),
            untouched: self.untouched.clone(),
            surpassed: self.surpassed.clone(),
            former_leaders: self.former_leaders.clone(),
            condemned: self.condemned.clone(),
            controls: self.controls.clone(),
            migrations: self.migrations.clone(),
            answers: self.answers.clone(),
            events: self.events.clone(),
            node_last: self.node_last,
            table_last: self.table_last,
            placement_last: self.placement_last,
            migration_last: self.migration_last,
            nodes_version: self.nodes_version,
            participants_version: self.participants_version,
            removed_version: self.removed_version,
            participants_removed_version: self.participants_removed_version,
            dropped_version: self.dropped_version,
            activated_version: self.activated_version,
            moves_version: self.moves_version,
            controls_version: self.controls_version,
            applied: self.applied,
            #[cfg(any(test, feature = "mutants"))]
            mutant: self.mutant,
        })
    }
}
