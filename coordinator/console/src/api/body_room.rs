//! Room for the bodies of requests.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Room for bodies, of all callers and of each address.
#[derive(Clone, Debug)]
pub(crate) struct BodyRoom {
    pub(crate) large: Arc<Room>,
    pub(crate) small: Arc<Room>,
}

impl Default for BodyRoom {
    fn default() -> Self {
        let room = |bytes_max, all_bytes_max: usize| {
            Arc::new(Room {
                bytes_max,
                address_bytes_max: all_bytes_max / ADDRESS_PART,
                all: Arc::new(Semaphore::new(all_bytes_max)),
                addresses: Mutex::default(),
            })
        };
        Self {
            large: room(LARGE_BYTES_MAX, LARGE_BODIES_BYTES_MAX),
            small: room(SMALL_BYTES_MAX, SMALL_BODIES_BYTES_MAX),
        }
    }
}

/// Maximum size of large bodies: plans of many thousand moves. Also larger than the maximum of a value.
pub(crate) const LARGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Maximum size of other bodies.
pub(crate) const SMALL_BYTES_MAX: usize = 64 * 1024;

/// Maximum bytes of all large and of all small bodies, separately. One address can use half of each.
pub(crate) const LARGE_BODIES_BYTES_MAX: usize = 64 * 1024 * 1024;

pub(crate) const SMALL_BODIES_BYTES_MAX: usize = 16 * 1024 * 1024;

pub(crate) const ADDRESS_PART: usize = 2;

/// Room for bodies of up to `bytes_max` bytes.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) bytes_max: usize,
    address_bytes_max: usize,
    all: Arc<Semaphore>,
    /// Addresses with bodies that hold or wait for room.
    addresses: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
}

impl Room {
    /// Waits for room for a body of `length` bytes, within the part of its address first.
    pub(crate) async fn take(&self, from: IpAddr, length: Option<usize>) -> Option<BodyShare> {
        let weight = length.map_or(self.bytes_max, |length| length.min(self.bytes_max));
        let weight = u32::try_from(weight).unwrap_or(u32::MAX);
        let address = {
            let mut addresses = self.addresses.lock();
            addresses.retain(|_, address| Arc::strong_count(address) > 1);
            let create = || Arc::new(Semaphore::new(self.address_bytes_max));
            Arc::clone(addresses.entry(from).or_insert_with(create))
        };
        let of_address = address.acquire_many_owned(weight).await.ok()?;
        let of_all = Arc::clone(&self.all).acquire_many_owned(weight).await.ok()?;
        Some(BodyShare { _of_address: of_address, _of_all: of_all })
    }
}

/// The room that a body takes.
#[derive(Debug)]
pub(crate) struct BodyShare {
    _of_address: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}
