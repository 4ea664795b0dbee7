//! Calls of a coordinator.

use archon_documents::{CreateTable, MethodCall, ShowStatus, Status as ClusterStatus, read_answer, write};
use archon_proto::convert::error::detail_of;
use archon_proto::v1::table_client::TableClient;
use archon_proto::{documents, v1};
use archon_types::{ErrorDetail, ErrorKind, Partitioning, TableContent};
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response};
use uuid::Uuid;

pub fn channel(address: &str) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy()
}

/// Calls a method with a document.
pub async fn ask<T: MethodCall>(address: &str, document: &T) -> Result<T::Answer, ErrorDetail> {
    exchange::<T>(address, Request::new(message(document, None, request_id()))).await
}

/// As `ask`, under an id of the caller's, as a retry has it.
pub async fn ask_as<T: MethodCall>(address: &str, document: &T, id: &bytes::Bytes) -> Result<T::Answer, ErrorDetail> {
    exchange::<T>(address, Request::new(message(document, None, id.clone()))).await
}

/// As `ask`, for the cluster that is named.
pub async fn ask_of<T: MethodCall>(
    address: &str,
    document: &T,
    cluster: Option<v1::ClusterRef>,
) -> Result<T::Answer, ErrorDetail> {
    exchange::<T>(address, Request::new(message(document, cluster, request_id()))).await
}

/// As `ask`, with a deadline.
pub async fn ask_within<T: MethodCall>(
    address: &str,
    document: &T,
    within: Duration,
) -> Result<T::Answer, ErrorDetail> {
    let mut request = Request::new(message(document, None, request_id()));
    request.set_timeout(within);
    exchange::<T>(address, request).await
}

fn message<T: MethodCall>(document: &T, cluster: Option<v1::ClusterRef>, request_id: bytes::Bytes) -> v1::AdminRequest {
    v1::AdminRequest { cluster, request_id, document: write(document).unwrap().into() }
}

async fn exchange<T: MethodCall>(address: &str, request: Request<v1::AdminRequest>) -> Result<T::Answer, ErrorDetail> {
    let answer = documents::call(channel(address).into(), T::METHOD, request).await;
    read_answer(&answer.map_err(|status| detail_of(&status))?.into_inner().document)
}

pub async fn status(address: &str) -> Result<ClusterStatus, ErrorDetail> {
    ask(address, &ShowStatus {}).await
}

/// A table of data with hashed keys and one copy of each partition.
pub fn hashed(name: &str, partitions: u32) -> CreateTable {
    CreateTable::new(name, Partitioning::Hash { partitions }, 1, TableContent::Data)
}

pub async fn table(address: &str, wait_ms: u32) -> Result<v1::GetTableResponse, ErrorDetail> {
    let request = v1::GetTableRequest { wait_ms, ..v1::GetTableRequest::default() };
    let answer = TableClient::new(channel(address)).get_table(request).await;
    answer.map(Response::into_inner).map_err(|status| detail_of(&status))
}

pub fn request_id() -> bytes::Bytes {
    bytes::Bytes::copy_from_slice(Uuid::new_v4().as_bytes())
}

pub fn kind<T: std::fmt::Debug>(result: Result<T, ErrorDetail>) -> ErrorKind {
    result.unwrap_err().kind
}
