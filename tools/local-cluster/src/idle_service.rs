//! A service without work of its own.

use archon_client::{AcquireError, Callbacks, Epoch, Grant, PartitionId, ReleaseCause};

/// Accepts every partition, and releases it at once: for programs that need only the ownership.
#[derive(Clone, Copy, Debug)]
pub struct IdleService;

impl Callbacks for IdleService {
    async fn acquire(&self, _: Grant) -> Result<(), AcquireError> {
        Ok(())
    }

    async fn release(&self, _: Grant, _: ReleaseCause) {}

    fn lost(&self, _: PartitionId, _: Epoch) {}
}
