//! What a service does with its partitions, whoever gives them.
//!
//! It has the shape of [`archon_client::Callbacks`]. Those cannot be called by anybody but the library: only it makes a
//! [`Grant`], so that nobody else can grant what no lease covers. [`ByParticipant`] lets a service of this shape be run by it.

use super::held::Lease;
use archon_client::{AcquireError, Callbacks, Epoch, Grant, PartitionId, Why};
use std::fmt;
use std::sync::Arc;

/// The right to act for a partition, to be asked each time before something is done in its name.
#[derive(Clone)]
pub struct Held {
    lease: Lease,
    check: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl Held {
    /// A lease, and how to find out whether it holds.
    pub fn new(lease: Lease, check: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { lease, check: Arc::new(check) }
    }

    /// Which partition, and the token for storage.
    pub fn lease(&self) -> Lease {
        self.lease
    }

    /// Whether it is owned at this moment.
    pub fn check(&self) -> bool {
        (self.check)()
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lease.fmt(out)
    }
}

/// As [`Callbacks`]: of one partition one of these runs at a time, and each acquisition has one ending.
pub trait Service: Send + Sync + 'static {
    /// Makes ready to own a partition. An error gives it to another server.
    fn acquire(&self, held: Held) -> impl Future<Output = Result<(), AcquireError>> + Send;

    /// Brings work to an end on a partition that is still owned; then it is given away.
    fn release(&self, held: Held) -> impl Future<Output = ()> + Send;

    /// It is over already.
    fn lost(&self, lease: Lease);
}

/// A service whose partitions are those of a lease table of Archon. The token is the epoch.
#[derive(Clone, Debug)]
pub struct ByParticipant<S>(pub S);

impl<S: Service> Callbacks for ByParticipant<S> {
    async fn acquire(&self, grant: Grant) -> Result<(), AcquireError> {
        self.0.acquire(held(grant)).await
    }

    async fn release(&self, grant: Grant, _: Why) {
        self.0.release(held(grant)).await;
    }

    fn lost(&self, partition: PartitionId, epoch: Epoch) {
        self.0.lost(Lease { partition: partition.index, token: epoch.get() });
    }
}

fn held(grant: Grant) -> Held {
    let lease = Lease { partition: grant.partition().index, token: grant.epoch().get() };
    Held::new(lease, move || grant.check().is_ok())
}
