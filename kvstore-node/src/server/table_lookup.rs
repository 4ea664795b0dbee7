//! Questions to the coordinators about tables that this node has not received.

use arc_swap::ArcSwap;
use archon_proto::v1::{GetTableRequest, table_client::TableClient};
use archon_security::Transport;
use archon_session::Coordinators;
use archon_types::limits::MESSAGE_BYTES_MAX;
use archon_types::{ClusterId, ErrorDetail, ErrorKind};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tonic::Request;
use tonic::transport::Channel;

/// Maximum number of concurrent questions to the coordinators; the others wait for a place.
const LOOKUPS_MAX: usize = 32;

/// Questions to the coordinators whether a table exists. This node may not have received a new table yet, so only the
/// leading coordinator can deny one (PROTOCOL rule 88).
pub(crate) struct TableLookup {
    coordinators: Coordinators,
    /// Addresses of the coordinators, as of the last question.
    learned: Arc<ArcSwap<Vec<String>>>,
    places: Semaphore,
}

impl TableLookup {
    /// Creates the channels to the coordinators, connected on first use.
    pub(crate) fn new(configured: Vec<String>, transport: Transport) -> Self {
        let learned = Arc::new(ArcSwap::default());
        let addresses = Arc::clone(&learned);
        let all = move || Vec::clone(&addresses.load());
        let coordinators = Coordinators::new(configured, transport, all);
        Self { coordinators, learned, places: Semaphore::new(LOOKUPS_MAX) }
    }

    /// Returns whether the cluster has the table, according to a coordinator.
    ///
    /// # Errors
    /// The last refusal, if none of them answers in time.
    pub(super) async fn exists(
        &self,
        cluster: ClusterId,
        name: &str,
        learned: Vec<String>,
        within: Duration,
    ) -> Result<bool, ErrorDetail> {
        let Ok(_place) = self.places.acquire().await else { return Ok(true) };
        self.learned.store(Arc::new(learned));
        // No version is newer, so the answer holds no rows.
        let request = GetTableRequest {
            cluster: Some(cluster.into()),
            table: name.to_owned(),
            since: u64::MAX,
            unassigned: true,
            ..Default::default()
        };
        let client = |channel| TableClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let call =
            async |mut client: TableClient<Channel>, request: Request<GetTableRequest>| client.get_table(request).await;
        match self.coordinators.call_service(within, request, client, call).await {
            Ok(_) => Ok(true),
            Err(detail) if detail.kind == ErrorKind::NotFound => Ok(false),
            Err(detail) => Err(detail),
        }
    }
}
