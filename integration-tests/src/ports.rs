//! Free ports on loopback for processes that must know each other's addresses before they start.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::Mutex;

static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// `count` addresses on loopback whose ports nobody listened on a moment ago and that this process has not given out
/// before.
///
/// # Panics
/// If the machine has no free port left.
pub fn free_addresses(count: usize) -> Vec<String> {
    let mut given = GIVEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // All are held open until the last is found, so that the kernel cannot hand out one twice.
    let mut held = Vec::new();
    let mut addresses = Vec::new();
    while addresses.len() < count {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port on loopback");
        let address = listener.local_addr().expect("a bound listener has an address");
        if given.insert(address.port()) {
            addresses.push(address.to_string());
        }
        held.push(listener);
    }
    addresses
}
