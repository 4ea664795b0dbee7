//! Free ports on loopback for processes that must know each other's addresses before they start.

use crate::error::Error;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::TcpListener;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// Lowest port to assign: services with well-known ports rarely listen above it.
const FIRST: u16 = 10_000;
/// Random ports tried before the kernel assigns one.
const TRIES: usize = 1_000;
/// File with the kernel's ephemeral port range: first port, then last port.
const KERNEL_RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// Returns `count` loopback addresses whose ports had no listener a moment ago and that this process has not returned
/// before. They lie outside the kernel's ephemeral range if possible: otherwise a restarting member could find its port
/// taken by an outgoing connection.
///
/// # Errors
/// If the machine has no free port left.
pub fn free_addresses(count: usize) -> Result<Vec<String>, Error> {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let range = FIRST..kernels_first_port();
    // All are held open until the last is found, so that the kernel cannot return one twice.
    let mut held = Vec::new();
    let mut addresses = Vec::new();
    while addresses.len() < count {
        let listener =
            listen_in(&range, &given).map_or_else(|| TcpListener::bind("127.0.0.1:0"), Ok).map_err(Error::Port)?;
        let address = listener.local_addr().map_err(Error::Port)?;
        if given.insert(address.port()) {
            addresses.push(address.to_string());
        }
        held.push(listener);
    }
    Ok(addresses)
}

/// Returns the lower bound of the kernel's ephemeral ports; 0 if unknown.
fn kernels_first_port() -> u16 {
    let range = std::fs::read_to_string(KERNEL_RANGE).unwrap_or_default();
    range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(0)
}

/// Listens on a random free port of a range that was not returned yet. Random, so that concurrent processes rarely
/// collide.
fn listen_in(range: &Range<u16>, given: &BTreeSet<u16>) -> Option<TcpListener> {
    let length = u64::from(range.end.checked_sub(range.start).filter(|length| *length > 0)?);
    let random = || RandomState::new().build_hasher().finish() % length;
    let ports = (0..TRIES).filter_map(|_| range.start.checked_add(u16::try_from(random()).ok()?));
    ports.filter(|port| !given.contains(port)).find_map(|port| TcpListener::bind(("127.0.0.1", port)).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assigned_ports_differ() {
        let both = [free_addresses(3).unwrap(), free_addresses(3).unwrap()].concat();
        assert_eq!(both.iter().collect::<BTreeSet<_>>().len(), 6);
    }

    #[test]
    fn assigned_ports_avoid_the_ephemeral_range() {
        let first = kernels_first_port();
        if first <= FIRST {
            return;
        }
        for address in free_addresses(20).unwrap() {
            let (_, port) = address.rsplit_once(':').unwrap();
            assert!((FIRST..first).contains(&port.parse().unwrap()), "{address}, the kernel chooses from {first} on");
        }
    }

    #[test]
    fn empty_range_has_no_port() {
        for end in [0, FIRST] {
            assert!(listen_in(&(FIRST..end), &BTreeSet::new()).is_none());
        }
    }
}
