//! State shared by all requests of a console.

use crate::api::body_room::BodyRoom;
use crate::cluster::Cluster;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// State shared by all requests of a console.
#[derive(Clone, Debug)]
pub(crate) struct ConsoleState {
    pub(crate) cluster: Arc<Cluster>,
    /// Cancelled when the console closes.
    pub(crate) stop: CancellationToken,
    /// Room for bodies.
    pub(crate) bodies: BodyRoom,
}

impl ConsoleState {
    /// Returns whether the console uses TLS, so that callers show certificates.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.cluster.config.transport.tls().is_some()
    }
}
