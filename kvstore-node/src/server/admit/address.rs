//! Admission per address: all connections from one address share a part of the node.

use super::bounded_count::BoundedCount;
use archon_security::counted_address;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

/// Work in progress of the clients at one address.
#[derive(Debug)]
pub(super) struct Address {
    at: IpAddr,
    /// Number that distinguishes addresses, for serving them in turn.
    pub(super) number: u64,
    pub(super) bytes: BoundedCount,
    pub(super) node: Arc<Node>,
}

/// Work in progress of the whole node.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) bytes: BoundedCount,
    known: Mutex<KnownAddresses>,
}

/// Addresses with work in progress, or soon.
#[derive(Debug, Default)]
struct KnownAddresses {
    last: u64,
    addresses: HashMap<IpAddr, Weak<Address>>,
}

impl Node {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes: BoundedCount::new(bytes_max), known: Mutex::default() }
    }

    /// Returns the share of clients at `from`.
    pub(super) fn address(self: &Arc<Self>, from: IpAddr) -> Arc<Address> {
        let at = counted_address(from);
        let mut known = self.known.lock();
        if let Some(address) = known.addresses.get(&at).and_then(Weak::upgrade) {
            return address;
        }
        known.last += 1;
        let bytes = BoundedCount::new(self.bytes.max() / super::ADDRESS_SHARE);
        let address = Arc::new(Address { at, number: known.last, bytes, node: Arc::clone(self) });
        known.addresses.insert(at, Arc::downgrade(&address));
        address
    }

    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        self.known.lock().addresses.len()
    }
}

impl Drop for Address {
    fn drop(&mut self) {
        let mut known = self.node.known.lock();
        // A client from there may have arrived meanwhile.
        if known.addresses.get(&self.at).is_some_and(|address| address.strong_count() == 0) {
            known.addresses.remove(&self.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_removed_with_its_last_user() {
        let node = Arc::new(Node::new(100));
        let from: IpAddr = "10.0.0.1".parse().unwrap();
        let (one, other) = (node.address(from), node.address(from));
        assert!(Arc::ptr_eq(&one, &other));
        drop(one);
        assert_eq!(node.known(), 1);
        drop(other);
        assert_eq!(node.known(), 0);
    }
}
