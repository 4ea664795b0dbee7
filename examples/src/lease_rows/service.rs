//! Interface of a service to its partitions, independent of their source.
//!
//! It has the shape of [`archon_client::Callbacks`]. Only the library can call those: only it creates a [`Grant`], so
//! that no other code can grant beyond a lease. [`ByParticipant`] runs a service of this shape by the library.

use super::held::Lease;
use archon_client::{AcquireError, Callbacks, Epoch, Grant, PartitionId, ReleaseCause};
use std::fmt;
use std::sync::Arc;

/// The right to act for a partition, to be checked before each action in its name.
#[derive(Clone)]
pub struct Ownership {
    lease: Lease,
    check: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl Ownership {
    /// Creates one from a lease, and a check whether it holds.
    pub fn new(lease: Lease, check: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { lease, check: Arc::new(check) }
    }

    /// Returns the partition, and the token for storage.
    pub fn lease(&self) -> Lease {
        self.lease
    }

    /// Returns true if it is owned at this moment.
    pub fn check(&self) -> bool {
        (self.check)()
    }
}

impl fmt::Debug for Ownership {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lease.fmt(out)
    }
}

/// As [`Callbacks`]: for one partition one of these runs at a time, and each acquisition has one end.
pub trait Service: Send + Sync + 'static {
    /// Prepares to own a partition. An error gives it to another server.
    fn acquire(&self, held: Ownership) -> impl Future<Output = Result<(), AcquireError>> + Send;

    /// Finishes work on a partition that is still owned; then it is handed over.
    fn release(&self, held: Ownership) -> impl Future<Output = ()> + Send;

    /// The partition is already lost.
    fn lost(&self, lease: Lease);
}

/// A service whose partitions are those of a lease table of Archon. The token is the epoch.
#[derive(Clone, Debug)]
pub struct ByParticipant<S>(pub S);

impl<S: Service> Callbacks for ByParticipant<S> {
    async fn acquire(&self, grant: Grant) -> Result<(), AcquireError> {
        self.0.acquire(held(grant)).await
    }

    async fn release(&self, grant: Grant, _: ReleaseCause) {
        self.0.release(held(grant)).await;
    }

    fn lost(&self, partition: PartitionId, epoch: Epoch) {
        self.0.lost(Lease { partition: partition.index, token: epoch.get() });
    }
}

fn held(grant: Grant) -> Ownership {
    let lease = Lease { partition: grant.partition().index, token: grant.epoch().get() };
    Ownership::new(lease, move || grant.check().is_ok())
}
