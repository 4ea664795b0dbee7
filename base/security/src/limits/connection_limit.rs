//! Connection places: the connections of one listener, in total, per address, and of callers that are not identified.
//!
//! A new connection is anonymous until it shows a certificate, or in plaintext until its first request. Anonymous
//! connections have a quarter of the places. If these are taken, the oldest one is closed, so a new caller always gets
//! the time that its handshake needs. An identified client needs a place among those of clients; an eighth of all places
//! is reserved for members.

use crate::{Caller, Identity, Refusals, Role, counted_address};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Default number of connections of a node.
pub const NODE_CONNECTIONS_MAX: usize = 4_096;
/// Connections of a coordinator; every node has some.
pub const COORDINATOR_CONNECTIONS_MAX: usize = 65_536;
/// Connections that a member accepts with few descriptors.
pub const CONNECTIONS_MIN: usize = 64;
/// Clients of one address can take `1 / ADDRESS_PART` of all places.
const ADDRESS_PART: usize = 2;
/// Anonymous connections can take `1 / ANONYMOUS_PART` of all places.
const ANONYMOUS_PART: usize = 4;
/// `1 / RESERVED_PART` of all places is reserved for members.
const RESERVED_PART: usize = 8;
/// TLS handshakes per second of one address: this many, or `1 / HANDSHAKE_PART` of all places if that is more.
const HANDSHAKES_MIN: usize = 50;
const HANDSHAKE_PART: usize = 64;
/// Handshakes that an address can begin at once, in seconds of its rate.
const HANDSHAKE_BURST: Duration = Duration::from_secs(8);
/// Longest delay of a handshake. Peers wait a second for it, and a peer that gave up must not cost its address a handshake.
const HANDSHAKE_DELAY_MAX: Duration = Duration::from_millis(500);
/// Handshake rates kept, one per address, before those of idle addresses are removed.
const ADDRESSES_MAX: usize = 4_096;

/// Returns the connections that a process with `descriptors` can accept, at most `connections_max`. Half of the
/// descriptors are left for the log, the engine and outgoing connections.
pub fn connections_for(connections_max: usize, descriptors: Option<u64>) -> usize {
    let half = descriptors.map_or(usize::MAX, |most| usize::try_from(most / 2).unwrap_or(usize::MAX));
    half.clamp(CONNECTIONS_MIN, connections_max)
}

/// The kind of caller that a connection was identified as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallerKind {
    /// A client or a participant.
    Client,
    /// A node, a coordinator, or an operator: reserved places are for these.
    Member,
}

impl CallerKind {
    /// Returns the kind of a role.
    pub const fn of(role: Role) -> Self {
        match role {
            Role::Client | Role::Participant => Self::Client,
            _ => Self::Member,
        }
    }
}

/// The places of a listener.
#[derive(Debug)]
pub struct ConnectionLimit {
    connections_max: usize,
    anonymous_max: usize,
    clients_max: usize,
    address_max: usize,
    inside: Mutex<LimitState>,
    refused: AtomicU64,
    refusals: Arc<Refusals>,
}

#[derive(Debug, Default)]
struct LimitState {
    last: u64,
    /// Anonymous connections by age.
    anonymous: BTreeMap<u64, Arc<Place>>,
    clients: usize,
    members: usize,
    addresses: HashMap<IpAddr, AddressPlaces>,
    /// When each address has used up its handshakes.
    handshakes: HashMap<IpAddr, Instant>,
}

#[derive(Debug, Default)]
struct AddressPlaces {
    anonymous: BTreeSet<u64>,
    clients: usize,
    members: usize,
}

/// One connection, as its owner and the limit share it.
#[derive(Debug)]
struct Place {
    number: u64,
    from: IpAddr,
    state: Mutex<PlaceState>,
}

#[derive(Debug)]
enum PlaceState {
    Anonymous(Option<Waker>),
    /// A newer connection has the place.
    Shed,
    Identified(CallerKind),
}

/// A connection that has no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The listener is full.
    #[error("there are {0} connections already, which is the limit; close some, or raise connections_max")]
    Full(usize),
    /// The address has too many.
    #[error("{count} connections from {from} are open, which is the limit for one address")]
    Address {
        /// The address.
        from: IpAddr,
        /// Its connections.
        count: usize,
    },
}

impl ConnectionLimit {
    /// Creates `connections_max` places. Clients of one address can take half of them.
    pub fn new(connections_max: usize) -> Arc<Self> {
        Self::noting(connections_max, Arc::default())
    }

    /// Does the same with `refusals`, which records the refused requests of several listeners.
    pub fn noting(connections_max: usize, refusals: Arc<Refusals>) -> Arc<Self> {
        let address_max = (connections_max / ADDRESS_PART).max(1);
        Self::with_address_max(connections_max, address_max, refusals)
    }

    /// Does the same; clients of one address can take `address_max` places.
    pub fn with_address_max(connections_max: usize, address_max: usize, refusals: Arc<Refusals>) -> Arc<Self> {
        let anonymous_max = (connections_max / ANONYMOUS_PART).max(1);
        let clients_max = connections_max.saturating_sub(anonymous_max + connections_max / RESERVED_PART).max(1);
        let (inside, refused) = (Mutex::default(), AtomicU64::new(0));
        Arc::new(Self { connections_max, anonymous_max, clients_max, address_max, inside, refused, refusals })
    }

    /// Gives a new connection an anonymous place. If these are taken, the oldest anonymous connection loses its place:
    /// of the same address if that has half of them, of all otherwise.
    pub fn enter(self: &Arc<Self>, from: IpAddr) -> Entry {
        let (address, from) = (from.to_canonical(), counted_address(from));
        let mut inside = self.inside.lock();
        let of_address = inside.addresses.get(&from).map(|places| &places.anonymous);
        let address_max = (self.anonymous_max / ADDRESS_PART).max(1).min(self.address_max);
        let shed = match of_address {
            Some(anonymous) if anonymous.len() >= address_max => anonymous.first().copied(),
            _ if inside.anonymous.len() >= self.anonymous_max => inside.anonymous.keys().next().copied(),
            _ => None,
        };
        if let Some(shed) = shed {
            inside.shed(shed);
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        inside.last += 1;
        let number = inside.last;
        let place = Arc::new(Place { number, from, state: Mutex::new(PlaceState::Anonymous(None)) });
        inside.anonymous.insert(number, Arc::clone(&place));
        inside.addresses.entry(from).or_default().anonymous.insert(number);
        drop(inside);
        Entry { connection_limit: Arc::clone(self), address, place }
    }

    /// Returns the open connections.
    pub fn count(&self) -> usize {
        self.inside.lock().count()
    }

    /// Returns the refusals of requests on these connections.
    pub const fn refusals(&self) -> &Arc<Refusals> {
        &self.refusals
    }

    /// Returns the number of connections that got no place or lost it.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl LimitState {
    fn count(&self) -> usize {
        self.anonymous.len() + self.clients + self.members
    }

    fn shed(&mut self, number: u64) {
        if let Some(place) = self.anonymous.get(&number).cloned() {
            self.leave_anonymous(&place);
            let before = std::mem::replace(&mut *place.state.lock(), PlaceState::Shed);
            if let PlaceState::Anonymous(Some(waker)) = before {
                waker.wake();
            }
        }
    }

    fn leave_anonymous(&mut self, place: &Place) {
        self.anonymous.remove(&place.number);
        self.of_address(place.from, |places| {
            places.anonymous.remove(&place.number);
        });
    }

    fn of_address(&mut self, from: IpAddr, change: impl FnOnce(&mut AddressPlaces)) {
        let places = self.addresses.entry(from).or_default();
        change(places);
        if places.anonymous.is_empty() && places.clients + places.members == 0 {
            self.addresses.remove(&from);
        }
    }
}

/// A connection's place; dropping it gives it back.
#[derive(Debug)]
#[must_use = "dropping the entry gives its place back at once"]
pub struct Entry {
    connection_limit: Arc<ConnectionLimit>,
    address: IpAddr,
    place: Arc<Place>,
}

impl Entry {
    /// Returns the address that the connection counts for.
    pub fn from(&self) -> IpAddr {
        self.place.from
    }

    /// Returns the caller on the connection; its certificate names `identity`.
    pub fn caller(&self, identity: Option<Arc<Identity>>) -> Caller {
        Caller::new(self.place.from, self.address, identity, Arc::clone(self.connection_limit.refusals()))
    }

    /// Moves the connection to the places of `kind`. A connection that was identified before keeps its place.
    ///
    /// # Errors
    /// [`Refusal`]; the connection stays anonymous.
    pub fn identify(&self, kind: CallerKind) -> Result<(), Refusal> {
        let limit = &self.connection_limit;
        let mut inside = limit.inside.lock();
        let mut state = self.place.state.lock();
        match *state {
            PlaceState::Identified(_) => return Ok(()),
            PlaceState::Shed => return Err(Refusal::Full(inside.count())),
            PlaceState::Anonymous(_) => {}
        }
        let from = self.place.from;
        let of_address = inside.addresses.get(&from).map_or(0, |places| places.clients);
        let known_max = limit.connections_max.saturating_sub(limit.anonymous_max).max(1);
        let refusal = if inside.clients + inside.members >= known_max {
            Some(Refusal::Full(inside.count()))
        } else if kind == CallerKind::Client && of_address >= limit.address_max {
            Some(Refusal::Address { from, count: of_address })
        } else if kind == CallerKind::Client && inside.clients >= limit.clients_max {
            Some(Refusal::Full(inside.count()))
        } else {
            None
        };
        if let Some(refusal) = refusal {
            limit.refused.fetch_add(1, Ordering::Relaxed);
            return Err(refusal);
        }
        *state = PlaceState::Identified(kind);
        drop(state);
        inside.of_address(from, |places| match kind {
            CallerKind::Client => places.clients += 1,
            CallerKind::Member => places.members += 1,
        });
        inside.leave_anonymous(&self.place);
        match kind {
            CallerKind::Client => inside.clients += 1,
            CallerKind::Member => inside.members += 1,
        }
        Ok(())
    }

    /// Is ready once a newer connection has the place.
    pub fn poll_shed(&self, context: &Context<'_>) -> Poll<()> {
        match &mut *self.place.state.lock() {
            PlaceState::Anonymous(waker) => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
            PlaceState::Shed => Poll::Ready(()),
            PlaceState::Identified(_) => Poll::Pending,
        }
    }

    /// Waits until a newer connection has the place.
    pub async fn shed(&self) {
        poll_fn(|context| self.poll_shed(context)).await;
    }

    /// Returns the delay before the connection can begin a TLS handshake at `now`, half a second at most. None if its address has too
    /// many handshakes for that: the connection is to be closed, and counts for nothing.
    pub fn handshake_delay(&self, now: Instant) -> Option<Duration> {
        let limit = &self.connection_limit;
        let rate = HANDSHAKES_MIN.max(limit.connections_max / HANDSHAKE_PART);
        let interval = Duration::from_secs(1) / u32::try_from(rate).unwrap_or(u32::MAX);
        let mut inside = limit.inside.lock();
        if inside.handshakes.len() >= ADDRESSES_MAX {
            inside.handshakes.retain(|_, used_up| *used_up > now);
        }
        let used_up = inside.handshakes.entry(self.place.from).or_insert(now);
        let until = (*used_up).max(now) + interval;
        let delay = until.saturating_duration_since(now + HANDSHAKE_BURST);
        if delay > HANDSHAKE_DELAY_MAX {
            return None;
        }
        *used_up = until;
        Some(delay)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut inside = self.connection_limit.inside.lock();
        let state = self.place.state.lock();
        match *state {
            PlaceState::Anonymous(_) => inside.leave_anonymous(&self.place),
            PlaceState::Shed => {}
            PlaceState::Identified(CallerKind::Client) => {
                inside.clients -= 1;
                inside.of_address(self.place.from, |places| places.clients -= 1);
            }
            PlaceState::Identified(CallerKind::Member) => {
                inside.members -= 1;
                inside.of_address(self.place.from, |places| places.members -= 1);
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

    fn is_shed(entry: &Entry) -> bool {
        entry.poll_shed(&Context::from_waker(Waker::noop())).is_ready()
    }

    /// Of 32 places: 8 anonymous, 20 of clients, 4 more for members; 16 of the clients of one address.
    fn identified(limit: &Arc<ConnectionLimit>, from: u8, kind: CallerKind) -> Result<Entry, Refusal> {
        let entry = limit.enter(at(from));
        entry.identify(kind).map(|()| entry)
    }

    #[test]
    fn clients_are_limited_in_total_and_per_address() {
        let limit = ConnectionLimit::new(32);
        let mut held: Vec<Entry> = (0..16).map(|_| identified(&limit, 1, CallerKind::Client).unwrap()).collect();
        let refusal = identified(&limit, 1, CallerKind::Client).unwrap_err();
        assert_eq!(refusal, Refusal::Address { from: at(1), count: 16 });
        assert!(refusal.to_string().contains("from 10.0.0.1"), "{refusal}");
        held.extend((2..6).map(|from| identified(&limit, from, CallerKind::Client).unwrap()));
        assert_eq!(identified(&limit, 6, CallerKind::Client).unwrap_err(), Refusal::Full(21));
        assert_eq!((limit.count(), limit.refused()), (20, 2));
        drop(held.remove(0));
        held.push(identified(&limit, 1, CallerKind::Client).unwrap());
        drop(held);
        assert_eq!((limit.count(), limit.inside.lock().addresses.len()), (0, 0));
    }

    #[test]
    fn members_have_reserved_places() {
        let limit = ConnectionLimit::new(32);
        let mut held: Vec<Entry> = (0..16).map(|_| identified(&limit, 1, CallerKind::Client).unwrap()).collect();
        held.extend((2..6).map(|from| identified(&limit, from, CallerKind::Client).unwrap()));
        held.extend((0..4).map(|_| identified(&limit, 1, CallerKind::Member).unwrap()));
        assert_eq!(identified(&limit, 7, CallerKind::Member).unwrap_err(), Refusal::Full(25));
        held[0].identify(CallerKind::Member).expect("an identified connection keeps its place");
    }

    #[test]
    fn oldest_anonymous_connection_is_shed() {
        let limit = ConnectionLimit::new(32);
        let first = limit.enter(at(1));
        let known = identified(&limit, 1, CallerKind::Client).unwrap();
        let flood: Vec<Entry> = (0..100).map(|number| limit.enter(at(2 + number % 4))).collect();
        assert!(is_shed(&first) && first.identify(CallerKind::Client).is_err());
        assert!(!is_shed(&known));
        assert_eq!(flood.iter().filter(|entry| !is_shed(entry)).count(), 8);
        assert!(flood[92..].iter().all(|entry| !is_shed(entry)), "the newest ones stay");
        // A newcomer is identified in spite of the flood.
        let newcomer = limit.enter(at(9));
        newcomer.identify(CallerKind::Client).unwrap();
        assert_eq!(limit.refused(), 94);
        drop((first, known, flood, newcomer));
        assert_eq!((limit.count(), limit.inside.lock().addresses.len()), (0, 0));
    }

    #[test]
    fn flood_of_one_address_sheds_only_its_own_connections() {
        let limit = ConnectionLimit::new(32);
        let other = limit.enter(at(1));
        let flood: Vec<Entry> = (0..100).map(|_| limit.enter(at(2))).collect();
        assert!(!is_shed(&other));
        assert_eq!(flood.iter().filter(|entry| !is_shed(entry)).count(), 4);
    }

    #[test]
    fn handshakes_of_one_address_have_a_rate() {
        let (limit, now) = (ConnectionLimit::new(NODE_CONNECTIONS_MAX), Instant::now());
        let entry = limit.enter(at(1));
        let delays: Vec<Duration> = (0..1_000).map_while(|_| entry.handshake_delay(now)).collect();
        assert_eq!(delays.iter().filter(|delay| delay.is_zero()).count(), 512, "a burst");
        assert_eq!(delays.len(), 512 + 32, "half a second of the rate may wait");
        assert_eq!(limit.enter(at(2)).handshake_delay(now), Some(Duration::ZERO), "other addresses do not wait");
    }

    #[test]
    fn address_recovers_at_once_from_flood_of_handshakes() {
        let (limit, begin) = (ConnectionLimit::new(NODE_CONNECTIONS_MAX), Instant::now());
        let entry = limit.enter(at(1));
        let flood_ms = 60_000;
        let begun =
            (0..flood_ms).filter(|ms| entry.handshake_delay(begin + Duration::from_millis(*ms)).is_some()).count();
        let rate_and_burst = 64 * (60 + 8) + 32;
        assert!(begun <= rate_and_burst, "{begun}");
        let after = begin + Duration::from_millis(flood_ms + 100);
        assert!(entry.handshake_delay(after).is_some(), "refused handshakes count for nothing");
    }

    #[test]
    fn network_of_version_6_is_one_address() {
        let at = |address: &str| counted_address(address.parse().unwrap());
        assert_eq!(at("2001:db8:1:2::7"), at("2001:db8:1:2:ffff::1"));
        assert_ne!(at("2001:db8:1:2::7"), at("2001:db8:1:3::7"));
        assert_eq!(at("::ffff:10.0.0.1"), at("10.0.0.1"));
        assert_ne!(at("10.0.0.1"), at("10.0.0.2"));
    }

    #[test]
    fn few_descriptors_limit_the_connections() {
        let most = NODE_CONNECTIONS_MAX;
        assert_eq!(connections_for(most, None), most);
        assert_eq!(connections_for(most, Some(1_024)), 512);
        assert_eq!(connections_for(most, Some(10)), CONNECTIONS_MIN);
        assert_eq!(connections_for(most, Some(1 << 20)), most);
    }
}
