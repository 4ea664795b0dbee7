//! The relays of this node, as the table has them and coordinators want them.

use crate::shared::Shared;
use archon_member::Ways;
use archon_proto::convert::session::Member;
use archon_session::RelayAddress;
use archon_types::{NodeId, Version};
use parking_lot::Mutex;

/// By which relays this node's heartbeats travel.
#[derive(Debug, Default)]
pub(super) struct Relays(Mutex<Inside>);

#[derive(Debug, Default)]
struct Inside {
    /// How many relays there are, as the last answer said.
    count: u32,
    /// What the addresses below were computed for, if they were.
    computed_for: Option<(u32, Version)>,
    addresses: Vec<RelayAddress>,
    ways: Ways,
    /// Who answered last, if it was a relay.
    last: Option<NodeId>,
}

impl Relays {
    /// A coordinator said how many nodes relay.
    pub(super) fn note_count(&self, count: u32) {
        self.0.lock().count = count;
    }

    /// Those to be tried in this round, in this order, before the coordinators.
    pub(super) fn order(&self, shared: &Shared, member: Member) -> Vec<RelayAddress> {
        let mut inside = self.0.lock();
        if inside.count == 0 {
            inside.ways.order(&[]);
            return Vec::new();
        }
        let wanted = (inside.count, shared.tables.nodes_version());
        if inside.computed_for != Some(wanted) {
            let count = usize::try_from(inside.count).unwrap_or(usize::MAX);
            let (version, addresses) = shared.tables.relays_of(member, count);
            (inside.computed_for, inside.addresses) = (Some((inside.count, version)), addresses);
        }
        let numbers: Vec<NodeId> = inside.addresses.iter().map(|relay| relay.node).collect();
        let order = inside.ways.order(&numbers);
        let address = |node| inside.addresses.iter().find(|relay| relay.node == node).cloned();
        order.into_iter().filter_map(address).collect()
    }

    /// The name of this node's relay at an address.
    pub(super) fn name_at(&self, address: &str) -> Option<String> {
        let inside = self.0.lock();
        inside.addresses.iter().find(|relay| relay.address == address).map(|relay| relay.name.clone())
    }

    /// Who answered: a relay, or a coordinator itself.
    pub(super) fn answered_by(&self, relay: Option<&RelayAddress>) {
        let mut inside = self.0.lock();
        let number = relay.map(|relay| relay.node);
        inside.ways.answered_by(number);
        if std::mem::replace(&mut inside.last, number) != number {
            match relay {
                Some(relay) => tracing::info!(relay = relay.name, "heartbeats are carried by a relay"),
                None => tracing::info!("heartbeats go straight to the coordinators"),
            }
        }
    }
}
