//! The relays of this node, as the table has them and coordinators want them.

use crate::shared::Shared;
use archon_proto::convert::session::Member;
use archon_security::BeatKey;
use archon_session::{RelayWays, ReportRelays};
use archon_types::{RelayAddress, Version};
use parking_lot::Mutex;

/// By which relays this node's heartbeats travel.
#[derive(Debug, Default)]
pub(super) struct Relays {
    ways: RelayWays,
    wanted: Mutex<Wanted>,
}

#[derive(Debug, Default)]
struct Wanted {
    /// How many relays there are, as the last answer said.
    count: u32,
    /// What the addresses were computed for, if they were.
    computed_for: Option<(u32, Version)>,
}

impl Relays {
    /// A coordinator said how many nodes relay.
    pub(super) fn note_count(&self, count: u32) {
        self.wanted.lock().count = count;
    }

    /// Those to be tried in this round, in this order, before the coordinators.
    pub(super) fn order(&self, shared: &Shared, member: Member) -> Vec<RelayAddress> {
        let any = self.compute(shared, member);
        self.ways.order(any)
    }

    /// Sees to it that they are those of the rows that are held now. Returns whether there are any.
    fn compute(&self, shared: &Shared, member: Member) -> bool {
        let mut wanted = self.wanted.lock();
        if wanted.count > 0 && wanted.computed_for != Some((wanted.count, shared.tables.nodes_version())) {
            let count = usize::try_from(wanted.count).unwrap_or(usize::MAX);
            let (version, addresses) = shared.tables.relays_of(member, count);
            wanted.computed_for = Some((wanted.count, version));
            self.ways.set(addresses);
        }
        wanted.count > 0
    }

    /// The name of this node's relay at an address.
    pub(super) fn name_at(&self, address: &str) -> Option<String> {
        self.ways.name_at(address)
    }

    /// Who answered: a relay, or a coordinator itself.
    pub(super) fn answered_by(&self, relay: Option<&RelayAddress>) {
        self.ways.answered_by(relay);
    }
}

/// Who passes on what this node cannot tell the coordinators itself.
pub(super) struct PassedOn<'a> {
    pub(super) shared: &'a Shared,
    pub(super) member: Member,
    pub(super) relays: &'a Relays,
    pub(super) key: Option<&'a BeatKey>,
}

impl ReportRelays for PassedOn<'_> {
    fn relays(&self) -> Vec<RelayAddress> {
        let any = self.relays.compute(self.shared, self.member);
        // It reaches no coordinator itself, whether it relays for others or not.
        let others = |relay: &RelayAddress| any && relay.node != self.member.node;
        self.relays.ways.all().into_iter().filter(others).collect()
    }

    fn key(&self) -> Option<&BeatKey> {
        self.key
    }
}
