//! Effects by which a partition gives keys away: sealed before another partition is formed from them, opened again if nothing
//! comes of that, cleared once the other has them.

use super::effect::{Effect, RowChange};
use super::row::SEAL_KEY;
use super::seal::Seal;
use archon_types::{KeyRange, Millis};
use bytes::Bytes;

/// From here on nothing is admitted in what `seal` covers.
pub fn split(at: Millis, seal: &Seal) -> Effect {
    Effect::new(at, vec![RowChange::set(Bytes::from_static(SEAL_KEY), seal.encode())])
}

/// What was sealed is admitted again.
pub fn open(at: Millis) -> Effect {
    Effect::new(at, vec![RowChange::remove(Bytes::from_static(SEAL_KEY))])
}

/// Users' rows in `range` are another partition's: they go, and the seal on them. What the partition keeps of clients stays.
pub fn clear(at: Millis, range: KeyRange) -> Effect {
    Effect { clear: Some(range), ..open(at) }
}
