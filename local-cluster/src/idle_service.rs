//! A service that has nothing to do when partitions come and go.

use archon_client::{AcquireError, Callbacks, Epoch, Grant, PartitionId, Why};

/// Takes what it is given, and gives it up at once: where it matters alone who owns what.
#[derive(Clone, Copy, Debug)]
pub struct IdleService;

impl Callbacks for IdleService {
    async fn acquire(&self, _: Grant) -> Result<(), AcquireError> {
        Ok(())
    }

    async fn release(&self, _: Grant, _: Why) {}

    fn lost(&self, _: PartitionId, _: Epoch) {}
}
