//! A service that records its callbacks, for tests of participants.

use archon_client::{AcquireError, Callbacks, Epoch, Grant, PartitionId, ReleaseCause};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) const SOON: Duration = Duration::from_secs(60);

/// A callback.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum CallbackEvent {
    Acquired(PartitionId, Epoch),
    Released(PartitionId, Epoch, ReleaseCause),
    Lost(PartitionId, Epoch),
}

/// A service that records its callbacks, and checks that no other service owns the same partition.
#[derive(Clone, Default)]
pub(crate) struct Service {
    pub(crate) told: Arc<Mutex<Vec<CallbackEvent>>>,
    /// Owned partitions of all services of a test.
    pub(crate) owners: Arc<Mutex<BTreeMap<PartitionId, Epoch>>>,
    /// Partition that it refuses to acquire.
    pub(crate) refuses: Option<u32>,
    /// Duration of a release.
    pub(crate) slow: Duration,
}

impl Service {
    pub(crate) fn beside(&self) -> Self {
        Self { owners: Arc::clone(&self.owners), ..Self::default() }
    }

    pub(crate) fn count(&self, what: impl Fn(&CallbackEvent) -> bool) -> usize {
        self.told.lock().iter().filter(|told| what(told)).count()
    }
}

impl Callbacks for Service {
    async fn acquire(&self, grant: Grant) -> Result<(), AcquireError> {
        let (partition, epoch) = (grant.partition(), grant.epoch());
        if self.refuses == Some(partition.index) {
            return Err("it is too large".into());
        }
        let before = self.owners.lock().insert(partition, epoch);
        assert!(before.is_none_or(|before| before == Epoch::ZERO), "{partition} is owned in epoch {before:?} as well");
        self.told.lock().push(CallbackEvent::Acquired(partition, epoch));
        Ok(())
    }

    async fn release(&self, grant: Grant, why: ReleaseCause) {
        tokio::time::sleep(self.slow).await;
        let partition = grant.partition();
        assert_eq!(grant.check(), Ok(grant.epoch()), "it still owns it");
        self.owners.lock().insert(partition, Epoch::ZERO);
        self.told.lock().push(CallbackEvent::Released(partition, grant.epoch(), why));
    }

    fn lost(&self, partition: PartitionId, epoch: Epoch) {
        self.owners.lock().insert(partition, Epoch::ZERO);
        self.told.lock().push(CallbackEvent::Lost(partition, epoch));
    }
}

pub(crate) async fn wait(what: &str, mut reached: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !reached() {
        assert!(begun.elapsed() < SOON, "waited for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    begun.elapsed()
}
