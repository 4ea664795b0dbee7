//! The log entry of a command that is being applied.

use crate::state::ClusterState;
use crate::state::actor::Actor;
use crate::state::events::EventKind;
use crate::state::response::Response;
use archon_types::{ErrorDetail, Millis, Version};

/// Context of a command: its log entry.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) index: u64,
    pub(crate) at: Millis,
    pub(crate) who: &'a Actor,
}

impl Entry<'_> {
    pub(crate) const fn version(self) -> Version {
        Version::new(self.index)
    }

    pub(crate) fn done(self) -> Result<Response, ErrorDetail> {
        Ok(Response::Done { version: self.version() })
    }

    pub(crate) fn note(self, state: &mut ClusterState, what: EventKind) {
        state.note(self.at, self.index, self.who, what);
    }
}
