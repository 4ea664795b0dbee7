//! How many connections a member takes, in all and from one address.
//!
//! Whoever is beyond that is told so, in the words of what it speaks, and counted. Connections that were taken are never
//! ended for those that come later.

use archon_security::{Caller, Identity, Refusals, counted_address};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections that a node takes in all, unless it is told otherwise or has too few descriptors.
pub const NODE_CONNECTIONS_MAX: usize = 4_096;
/// Connections that a coordinator takes, to which every node has some, unless it has too few descriptors.
pub const COORDINATOR_CONNECTIONS_MAX: usize = 65_536;
/// Connections that a member takes at least, however few descriptors it has.
pub const CONNECTIONS_MIN: usize = 64;
/// Which part of them may come from one address.
const ADDRESS_PART: usize = 2;

/// Connections of `connections_max` that a process takes which may have `descriptors` open: half of these at most, for log,
/// engine and the connections that it makes itself need some as well.
pub fn connections_for(connections_max: usize, descriptors: Option<u64>) -> usize {
    let half = descriptors.map_or(usize::MAX, |most| usize::try_from(most / 2).unwrap_or(usize::MAX));
    half.clamp(CONNECTIONS_MIN, connections_max)
}

/// Lets in as many connections as a member takes, and counts those that it refuses.
#[derive(Debug)]
pub struct ConnectionLimit {
    connections_max: usize,
    address_max: usize,
    inside: Mutex<Inside>,
    refused: AtomicU64,
    refusals: Arc<Refusals>,
}

#[derive(Debug, Default)]
struct Inside {
    all: usize,
    addresses: HashMap<IpAddr, usize>,
}

/// Why a connection was not let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// There are too many.
    #[error("there are {0} connections already, which is the limit; close some, or raise connections_max")]
    Full(usize),
    /// There are too many from its address.
    #[error("there are {count} connections from {from} already, which is the limit for one address")]
    Address {
        /// Where it comes from.
        from: IpAddr,
        /// How many have come from there.
        count: usize,
    },
}

impl ConnectionLimit {
    /// At most `connections_max` connections in all, half of which may come from one address.
    pub fn new(connections_max: usize) -> Arc<Self> {
        Self::noting(connections_max, Arc::default())
    }

    /// The same; refusals of those who were let in are noted together with those of other doors.
    pub fn noting(connections_max: usize, refusals: Arc<Refusals>) -> Arc<Self> {
        let address_max = (connections_max / ADDRESS_PART).max(1);
        let (inside, refused) = (Mutex::default(), AtomicU64::new(0));
        Arc::new(Self { connections_max, address_max, inside, refused, refusals })
    }

    /// A panic while it was held leaves a count at most one too high.
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a connection in, until its [`Entry`] is dropped.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn enter(self: &Arc<Self>, from: IpAddr) -> Result<Entry, Refusal> {
        let (address, from) = (from.to_canonical(), counted_address(from));
        let mut inside = self.inside();
        let count = inside.addresses.get(&from).copied().unwrap_or(0);
        let refusal = if inside.all >= self.connections_max {
            Refusal::Full(inside.all)
        } else if count >= self.address_max {
            Refusal::Address { from, count }
        } else {
            inside.all += 1;
            inside.addresses.insert(from, count + 1);
            return Ok(Entry { connection_limit: Arc::clone(self), from, address });
        };
        drop(inside);
        self.refused.fetch_add(1, Ordering::Relaxed);
        Err(refusal)
    }

    /// Connections that are in now.
    pub fn count(&self) -> usize {
        self.inside().all
    }

    /// What those who were let in asked for and may not have.
    pub const fn refusals(&self) -> &Arc<Refusals> {
        &self.refusals
    }

    /// Connections that were refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// A connection's place; dropping it gives it back.
#[derive(Debug)]
#[must_use = "dropping the entry gives its place back at once"]
pub struct Entry {
    connection_limit: Arc<ConnectionLimit>,
    from: IpAddr,
    address: IpAddr,
}

impl Entry {
    /// The address that the connection counts for.
    pub const fn from(&self) -> IpAddr {
        self.from
    }

    /// Whoever asks for something on the connection, whose certificate says that it is `identity`.
    pub fn caller(&self, identity: Option<Arc<Identity>>) -> Caller {
        Caller::new(self.from, self.address, identity, Arc::clone(self.connection_limit.refusals()))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut inside = self.connection_limit.inside();
        inside.all -= 1;
        if let Some(count) = inside.addresses.get_mut(&self.from) {
            *count -= 1;
            if *count == 0 {
                inside.addresses.remove(&self.from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn connections_are_bounded_in_all_and_per_address_and_places_are_given_back() {
        let connection_limit = ConnectionLimit::new(4);
        let mut held: Vec<Entry> = (0..2).map(|_| connection_limit.enter(at(1)).unwrap()).collect();
        let refusal = connection_limit.enter(at(1)).unwrap_err();
        assert_eq!(refusal, Refusal::Address { from: at(1), count: 2 });
        assert!(refusal.to_string().contains("from 10.0.0.1"), "{refusal}");
        held.extend((2..4).map(|last| connection_limit.enter(at(last)).unwrap()));
        assert_eq!(connection_limit.enter(at(4)).unwrap_err(), Refusal::Full(4));
        assert_eq!((connection_limit.count(), connection_limit.refused()), (4, 2));
        drop(held.remove(0));
        held.push(connection_limit.enter(at(1)).unwrap());
        drop(held);
        assert_eq!((connection_limit.count(), connection_limit.inside().addresses.len()), (0, 0));
    }

    #[test]
    fn whoever_has_a_network_of_version_6_is_one() {
        let at = |address: &str| counted_address(address.parse().unwrap());
        assert_eq!(at("2001:db8:1:2::7"), at("2001:db8:1:2:ffff::1"));
        assert_ne!(at("2001:db8:1:2::7"), at("2001:db8:1:3::7"));
        assert_eq!(at("::ffff:10.0.0.1"), at("10.0.0.1"));
        assert_ne!(at("10.0.0.1"), at("10.0.0.2"));
    }

    #[test]
    fn a_process_with_few_descriptors_takes_few_connections() {
        let most = NODE_CONNECTIONS_MAX;
        assert_eq!(connections_for(most, None), most);
        assert_eq!(connections_for(most, Some(1_024)), 512);
        assert_eq!(connections_for(most, Some(10)), CONNECTIONS_MIN);
        assert_eq!(connections_for(most, Some(1 << 20)), most);
    }
}
