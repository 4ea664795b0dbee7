//! Copies of new partitions that a simulated node forms.

use archon_host::{ClearedSpaces, FormJob, FormedCopy, FormingCopy};
use archon_types::{KeyRange, PlacementId};
use std::collections::BTreeMap;

/// Copies of new partitions that a process forms.
#[derive(Debug, Default)]
pub(super) struct Forms {
    /// Copies being formed, and those that wait for the engine's sync.
    pub(super) forming: BTreeMap<PlacementId, FormingCopy>,
    /// Spaces of the engine with a requested clearing.
    cleared: ClearedSpaces,
    /// Copies whose forming stopped, with the attempts of their jobs.
    pub(super) spoilt: Vec<(PlacementId, u64)>,
    /// Formed copies to be opened.
    pub(super) adopting: Vec<FormedCopy>,
}

impl Forms {
    /// Begins to form a copy, unless its space was cleared, and returns whether it does.
    pub(super) fn begin(&mut self, job: FormJob) -> bool {
        if self.cleared.contains(job.to) {
            return false;
        }
        self.forming.insert(job.to, FormingCopy::new(job));
        true
    }

    /// Stops the forming of copies in a space that is cleared, and from it.
    pub(super) fn clear(&mut self, space: PlacementId) {
        self.forming.remove(&space);
        self.cleared.insert(space);
        self.spoil(space, &KeyRange::ALL);
    }

    /// Stops the forming of copies that would lack these cleared keys of a space.
    pub(super) fn spoil(&mut self, space: PlacementId, keys: &KeyRange) {
        let spoilt = self.forming.extract_if(.., |_, forming| forming.is_spoilt_by(space, keys));
        self.spoilt.extend(spoilt.map(|(to, forming)| (to, forming.job().attempt)));
    }
}
