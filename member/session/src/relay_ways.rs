//! The relays of a member and their order of preference.

use archon_member::RelayPreference;
use archon_types::{NodeId, RelayAddress};
use parking_lot::Mutex;

/// The relays for a member's heartbeats.
#[derive(Debug, Default)]
pub struct RelayWays(Mutex<RelayState>);

#[derive(Debug, Default)]
struct RelayState {
    addresses: Vec<RelayAddress>,
    ways: RelayPreference,
    /// The relay that answered last; none if a coordinator did.
    last: Option<NodeId>,
}

impl RelayWays {
    /// Sets the member's relays, the preferred one first.
    pub fn set(&self, addresses: Vec<RelayAddress>) {
        self.0.lock().addresses = addresses;
    }

    /// Returns all relays.
    pub fn all(&self) -> Vec<RelayAddress> {
        self.0.lock().addresses.clone()
    }

    /// Returns the relays to try in this round before the coordinators, in order; none if `relays` is false.
    pub fn order(&self, relays: bool) -> Vec<RelayAddress> {
        let mut inside = self.0.lock();
        let numbers: Vec<NodeId> = inside.addresses.iter().map(|relay| relay.node).filter(|_| relays).collect();
        let order = inside.ways.order(&numbers);
        let address = |node| inside.addresses.iter().find(|relay| relay.node == node).cloned();
        order.into_iter().filter_map(address).collect()
    }

    /// Returns the name of the relay at an address.
    pub fn name_at(&self, address: &str) -> Option<String> {
        let inside = self.0.lock();
        inside.addresses.iter().find(|relay| relay.address == address).map(|relay| relay.name.clone())
    }

    /// Records the answering relay; `None` for a coordinator.
    pub fn answered_by(&self, relay: Option<&RelayAddress>) {
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
