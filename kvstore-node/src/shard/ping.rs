//! A ping on its way through the shards, each of which takes part in it with one turn.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc;

/// A ping on its way through the shards.
struct Ping {
    /// Its number, which the answer names.
    number: u64,
    /// Number of shards without a turn yet.
    left: AtomicUsize,
    /// Permit to answer its stream.
    answer: Mutex<Option<mpsc::OwnedPermit<u64>>>,
}

/// One shard's part of a ping.
pub(crate) struct PingPart(Arc<Ping>);

impl PingPart {
    /// Creates the parts of ping `number` for `shards` shards. The last one to answer sends the number with `answer`.
    pub(crate) fn for_each_shard(
        shards: usize,
        number: u64,
        answer: mpsc::OwnedPermit<u64>,
    ) -> impl Iterator<Item = Self> {
        let ping = Ping { number, left: AtomicUsize::new(shards), answer: Mutex::new(Some(answer)) };
        std::iter::repeat_n(Arc::new(ping), shards).map(Self)
    }

    /// Records the shard's turn. The last one answers.
    pub(crate) fn answer(&self) {
        let Ping { number, left, answer } = &*self.0;
        if left.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(permit) = answer.lock().take()
        {
            permit.send(*number);
        }
    }
}
