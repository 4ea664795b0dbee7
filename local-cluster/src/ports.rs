//! Free ports on loopback for processes that must know each other's addresses before they start.

use crate::error::Error;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::TcpListener;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// Lower bound of the ports that are given out: services with well-known ports rarely listen above it.
const FIRST: u16 = 10_000;
/// Random ports tried before the kernel is asked for one of its own.
const TRIES: usize = 1_000;
/// The kernel's range of ports for its own choice: the first one, then the last one.
const KERNEL_RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// `count` addresses on loopback whose ports nobody listened on a moment ago and that this process has not given out
/// before. They are outside of the kernel's own range if possible: a member that starts again at its port would
/// otherwise find it taken by a connection, since the kernel chooses ports for these.
///
/// # Errors
/// If the machine has no free port left.
pub fn free_addresses(count: usize) -> Result<Vec<String>, Error> {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let range = FIRST..kernels_first_port();
    // All are held open until the last is found, so that the kernel cannot hand out one twice.
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

/// Lower bound of the ports that the kernel chooses itself; 0 if unknown.
fn kernels_first_port() -> u16 {
    let range = std::fs::read_to_string(KERNEL_RANGE).unwrap_or_default();
    range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(0)
}

/// Listens on a random free port of a range that was not given out yet. Random, so that several processes that look for
/// ports at once rarely meet.
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
    fn ports_differ() {
        let both = [free_addresses(3).unwrap(), free_addresses(3).unwrap()].concat();
        assert_eq!(both.iter().collect::<BTreeSet<_>>().len(), 6);
    }

    #[test]
    fn ports_are_outside_of_the_kernels_range() {
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
    fn an_empty_range_has_no_port() {
        for end in [0, FIRST] {
            assert!(listen_in(&(FIRST..end), &BTreeSet::new()).is_none());
        }
    }
}
