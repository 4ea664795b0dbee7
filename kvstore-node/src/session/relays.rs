//! Relays of this node, from the table and the coordinators' count.

use crate::tables::Tables;
use archon_proto::convert::members::session::Member;
use archon_security::BeatKey;
use archon_session::{RelayWays, ReportRelays};
use archon_types::{RelayAddress, Version};
use parking_lot::Mutex;

/// Relays for this node's heartbeats.
#[derive(Debug, Default)]
pub(super) struct Relays {
    ways: RelayWays,
    wanted: Mutex<WantedRelays>,
}

#[derive(Debug, Default)]
struct WantedRelays {
    /// Number of relays, from the last answer.
    count: u32,
    /// Inputs that the addresses were computed for, if they were.
    computed_for: Option<(u32, Version)>,
}

impl Relays {
    /// Records the number of relays of a coordinator.
    pub(super) fn note_count(&self, count: u32) {
        self.wanted.lock().count = count;
    }

    /// Returns the relays to try in this round, in order, before the coordinators.
    pub(super) fn order(&self, tables: &Tables, member: Member) -> Vec<RelayAddress> {
        let any = self.compute(tables, member);
        self.ways.order(any)
    }

    /// Computes the relays for the present rows, if needed. Returns whether there are any.
    fn compute(&self, tables: &Tables, member: Member) -> bool {
        let mut wanted = self.wanted.lock();
        if wanted.count > 0 && wanted.computed_for != Some((wanted.count, tables.nodes_version())) {
            let count = usize::try_from(wanted.count).unwrap_or(usize::MAX);
            let (version, addresses) = tables.relays_of(member, count);
            wanted.computed_for = Some((wanted.count, version));
            self.ways.set(addresses);
        }
        wanted.count > 0
    }

    /// Returns the name of this node's relay at an address.
    pub(super) fn name_at(&self, address: &str) -> Option<String> {
        self.ways.name_at(address)
    }

    /// Records which relay answered, or that a coordinator did.
    pub(super) fn answered_by(&self, relay: Option<&RelayAddress>) {
        self.ways.answered_by(relay);
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
        let any = self.relays.compute(self.tables, self.member);
        // Not this node: it reaches no coordinator itself, whether it is a relay or not.
        let others = |relay: &RelayAddress| any && relay.node != self.member.node;
        self.relays.ways.all().into_iter().filter(others).collect()
    }

    fn key(&self) -> Option<&BeatKey> {
        self.key
    }
}
