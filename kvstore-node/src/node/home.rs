//! Durable identity of the node, for its session.

use crate::node::identity::{DataDirectory, IdentityError};
use crate::session::Home;
use crate::session::holdings::Holdings;
use archon_proto::convert::members::session::RegistrationResult;
use archon_types::{ClusterId, GenerationKey, Incarnation, PlacementId, StorageId};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::sync::Arc;

/// The data directory, for the session.
pub(crate) struct DirectoryHome {
    pub(crate) directory: Arc<Mutex<DataDirectory>>,
    pub(crate) holdings: Arc<Holdings>,
}

impl Home for DirectoryHome {
    fn storage(&self) -> StorageId {
        self.directory.lock().identity().storage_id
    }

    fn cluster(&self) -> Option<ClusterId> {
        Some(self.directory.lock().identity().cluster_id).filter(|cluster| !cluster.is_nil())
    }

    fn last_life(&self) -> (Incarnation, GenerationKey) {
        let directory = self.directory.lock();
        let identity = directory.identity();
        (identity.last_incarnation, identity.generation_key)
    }

    fn held(&self) -> Vec<PlacementId> {
        self.holdings.whole()
    }

    fn store(&mut self, registered: &RegistrationResult) -> Result<(), IdentityError> {
        let mut directory = self.directory.lock();
        let RegistrationResult { cluster, node, generation_key, incarnation, protocol, .. } = *registered;
        directory.record_registration(cluster, node, (incarnation, generation_key))?;
        directory.record_protocol(protocol)
    }

    fn record_protocol(&self, protocol: u32) -> BoxFuture<'static, Result<(), IdentityError>> {
        let directory = Arc::clone(&self.directory);
        Box::pin(async move {
            let own = Arc::clone(&directory);
            let recorded = tokio::task::spawn_blocking(move || own.lock().record_protocol(protocol)).await;
            recorded.unwrap_or_else(|error| Err(directory.lock().task_failed(error)))
        })
    }
}
