//! Free ports on loopback for processes that must know each other's addresses before they start.

use crate::error::Error;
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::{Mutex, PoisonError};

static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// `count` addresses on loopback whose ports nobody listened on a moment ago and that this process has not given out
/// before.
///
/// # Errors
/// If the machine has no free port left.
pub fn free_addresses(count: usize) -> Result<Vec<String>, Error> {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    // All are held open until the last is found, so that the kernel cannot hand out one twice.
    let mut held = Vec::new();
    let mut addresses = Vec::new();
    while addresses.len() < count {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(Error::Port)?;
        let address = listener.local_addr().map_err(Error::Port)?;
        if given.insert(address.port()) {
            addresses.push(address.to_string());
        }
        held.push(listener);
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ() {
        let both = [free_addresses(3).unwrap(), free_addresses(3).unwrap()].concat();
        assert_eq!(both.iter().collect::<BTreeSet<_>>().len(), 6);
    }
}
