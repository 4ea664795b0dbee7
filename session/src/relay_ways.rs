//! The relays of a member, as it was told, and which of them is tried first.

use archon_member::Ways;
use archon_types::{NodeId, RelayAddress};
use parking_lot::Mutex;

/// By which relays a member's heartbeats travel.
#[derive(Debug, Default)]
pub struct RelayWays(Mutex<Inside>);

#[derive(Debug, Default)]
struct Inside {
    addresses: Vec<RelayAddress>,
    ways: Ways,
    /// Who answered last, if it was a relay.
    last: Option<NodeId>,
}

impl RelayWays {
    /// These are the member's relays from now on, the one that is to be tried first at the front.
    pub fn set(&self, addresses: Vec<RelayAddress>) {
        self.0.lock().addresses = addresses;
    }

    /// All of them.
    pub fn all(&self) -> Vec<RelayAddress> {
        self.0.lock().addresses.clone()
    }

    /// Those to be tried in this round, in this order, before the coordinators; none if `relays` says that nobody relays.
    pub fn order(&self, relays: bool) -> Vec<RelayAddress> {
        let mut inside = self.0.lock();
        let numbers: Vec<NodeId> = inside.addresses.iter().map(|relay| relay.node).filter(|_| relays).collect();
        let order = inside.ways.order(&numbers);
        let address = |node| inside.addresses.iter().find(|relay| relay.node == node).cloned();
        order.into_iter().filter_map(address).collect()
    }

    /// The name of this member's relay at an address.
    pub fn name_at(&self, address: &str) -> Option<String> {
        let inside = self.0.lock();
        inside.addresses.iter().find(|relay| relay.address == address).map(|relay| relay.name.clone())
    }

    /// Who answered: a relay, or a coordinator itself.
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
