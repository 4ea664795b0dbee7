//! Relays of this node, from the table and the coordinators' count.

use crate::tables::Tables;
use archon_proto::convert::members::session::Member;
use archon_security::BeatKey;
use archon_session::ReportRelays;
use archon_types::{RelayAddress, Version};
use parking_lot::Mutex;

/// Relays for this node's heartbeats.
#[derive(Debug, Default)]
pub(super) struct Relays(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Number of relays, from the last answer.
    count: u32,
    addresses: Vec<RelayAddress>,
    /// Inputs that the addresses were computed for, if they were.
    computed_for: Option<(u32, Version)>,
}

impl Relays {
    /// Records the number of relays of a coordinator.
    pub(super) fn note_count(&self, count: u32) {
        self.0.lock().count = count;
    }

    /// Returns the relays for the present rows, the preferred one first; none if the coordinators want none.
    pub(super) fn current(&self, tables: &Tables, member: Member) -> Vec<RelayAddress> {
        let mut known = self.0.lock();
        if known.count == 0 {
            return Vec::new();
        }
        if known.computed_for != Some((known.count, tables.nodes_version())) {
            let count = usize::try_from(known.count).unwrap_or(usize::MAX);
            let (version, addresses) = tables.relays_of(member, count);
            known.computed_for = Some((known.count, version));
            known.addresses = addresses;
        }
        known.addresses.clone()
    }

    /// Returns the name of this node's relay at an address.
    pub(super) fn name_at(&self, address: &str) -> Option<String> {
        let known = self.0.lock();
        known.addresses.iter().find(|relay| relay.address == address).map(|relay| relay.name.clone())
    }
}

/// Relays for reports that this node cannot send to the coordinators itself.
pub(super) struct PassedOn<'a> {
    pub(super) tables: &'a Tables,
    pub(super) member: Member,
    pub(super) relays: &'a Relays,
    pub(super) key: Option<&'a BeatKey>,
}

impl ReportRelays for PassedOn<'_> {
    fn relays(&self) -> Vec<RelayAddress> {
        // Not this node: it reaches no coordinator itself, whether it is a relay or not.
        let mut relays = self.relays.current(self.tables, self.member);
        relays.retain(|relay| relay.node != self.member.node);
        relays
    }

    fn key(&self) -> Option<&BeatKey> {
        self.key
    }
}
