//! Snapshots of partitions: the full content at one position of the log, page by page.

use crate::error::{Error, Outcome};
use crate::kv::Client;
use crate::net::retry::Backoff;
use archon_proto::convert::error::detail_of;
use archon_proto::v1::{self, kv_client::KvClient};
use archon_security::ExpectedPeer;
use archon_types::limits::MESSAGE_BYTES_MAX;
use archon_types::{ErrorDetail, ErrorKind, KeyRange, PartitionId, Position, ScanOrder};
use bytes::Bytes;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tonic::Streaming;

/// Time-out of the next page.
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time-out of the start at a node: its storage engine first takes in all committed entries.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(25);

/// Content of a partition at one position of its log: everything committed up to there, and nothing else. It includes
/// every write acknowledged before the snapshot was requested.
#[derive(Debug)]
pub struct Snapshot {
    /// The partition.
    pub partition: PartitionId,
    /// The last included entry of the partition's log.
    pub position: Position,
    /// The log time of that entry, in milliseconds.
    pub log_time_ms: u64,
    /// The keys with complete entries in the snapshot.
    pub keys: KeyRange,
    /// Approximate size of the whole partition in bytes; zero if unknown.
    pub bytes_estimate: u64,
    first: Option<v1::SnapshotPage>,
    pages: Streaming<v1::SnapshotPage>,
    over: bool,
}

/// A page of a snapshot, in key order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotPage {
    /// The entries, packed; `archon_types::operations::packed_entries` unpacks them.
    pub entries: Bytes,
    /// Their CRC-32C, computed by the node.
    pub crc32c: u32,
    /// Their number.
    pub count: u32,
}

/// Scope of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SnapshotOf {
    /// The partition with this number, in a table with hashed keys.
    Partition(u32),
    /// The keys of this range in the same partition as its first key, in a table by ranges.
    Keys(KeyRange),
}

impl Client {
    /// Returns the known partitions with their keys; with hashed keys, each has all keys.
    pub fn partition_keys(&self) -> Vec<(u32, KeyRange)> {
        self.held().partitions().map(|row| (row.id.index, row.range.clone())).collect()
    }

    /// Starts a snapshot at the node that leads the partition. If that node ends it or goes away, it must be started
    /// again, because pages of two snapshots are inconsistent.
    ///
    /// # Errors
    /// See [`Error`]; `Overloaded` if the node has too many snapshots.
    pub async fn snapshot(&self, of: &SnapshotOf) -> Result<Snapshot, Error> {
        let deadline = Instant::now() + self.timeout().max(BEGIN_TIMEOUT);
        let mut last = None;
        match timeout_at(deadline, self.begin_snapshot(of, &mut last)).await {
            Ok(begun) => begun,
            Err(_) => Err(Error::DeadlineExceeded {
                timeout_ms: u64::try_from(self.timeout().max(BEGIN_TIMEOUT).as_millis()).unwrap_or(u64::MAX),
                outcome: Outcome::Read,
                last: last.map(Box::new),
            }),
        }
    }

    async fn begin_snapshot(&self, of: &SnapshotOf, last: &mut Option<ErrorDetail>) -> Result<Snapshot, Error> {
        let (shared, ..) = self.parts();
        if shared.via.is_some() {
            return Err(Error::invalid("a snapshot is asked of the node that leads; use a client that finds it"));
        }
        let mut backoff = Backoff::default();
        loop {
            if shared.stop.is_cancelled() {
                return Err(Error::Closed);
            }
            let detail = match self.ask_leader(of).await {
                Ok(snapshot) => return Ok(snapshot),
                Err(detail) if detail.kind.is_retryable() || detail.kind == ErrorKind::WrongNode => detail,
                Err(detail) => return Err(detail.into()),
            };
            self.want_refresh();
            let pause = backoff.pause(true, detail.retry_after_ms);
            *last = Some(detail);
            sleep(pause).await;
        }
    }

    async fn ask_leader(&self, of: &SnapshotOf) -> Result<Snapshot, ErrorDetail> {
        let (shared, ..) = self.parts();
        let table = self.held();
        let (partition, keys) = match of {
            SnapshotOf::Partition(index) => (PartitionId::new(table.table().id, *index), None),
            SnapshotOf::Keys(keys) => (table.first_of(keys, ScanOrder::Ascending), Some(keys.clone().into())),
        };
        let nobody = || {
            let why = format!("partition {} has no known leader", table.partition_name(partition));
            ErrorDetail::new(ErrorKind::Unavailable, why)
        };
        let leader =
            table.route_partition(partition).leader.and_then(|leader| table.node(leader)).ok_or_else(nobody)?;
        let (address, expected) = (&leader.address, ExpectedPeer::Node(leader.name.clone()));
        let told = |mut detail: ErrorDetail| {
            detail.message = format!("the node at {address}: {}", detail.message);
            detail
        };
        let mut node =
            KvClient::new(shared.links.channel(address, expected)?).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let request = v1::SnapshotRequest {
            cluster: shared.cluster_ref(),
            table: table.table().name.clone(),
            partition: partition.index,
            keys,
        };
        let begun = async {
            let mut pages = node.snapshot(request).await?.into_inner();
            Ok((pages.message().await?, pages))
        };
        let late =
            |_| ErrorDetail::new(ErrorKind::Unreachable, format!("the node at {address} did not answer in time"));
        let begun = timeout(BEGIN_TIMEOUT, begun).await.map_err(late)?;
        let (first, pages) = begun.map_err(|status| told(detail_of(&status)))?;
        let mut first = first.ok_or_else(|| told(ErrorDetail::new(ErrorKind::Unavailable, "it sent no page")))?;
        let head = first.head.take();
        let head = head.ok_or_else(|| told(ErrorDetail::new(ErrorKind::Internal, "its first page has no header")))?;
        let all = head.keys.map_or(Ok(KeyRange::ALL), KeyRange::try_from);
        Ok(Snapshot {
            partition,
            position: head.position.unwrap_or_default().into(),
            log_time_ms: head.log_time_ms,
            keys: all.map_err(ErrorDetail::from)?,
            bytes_estimate: head.bytes_estimate,
            first: Some(first),
            pages,
            over: false,
        })
    }
}

impl Snapshot {
    /// Returns the next page; `None` after the last one.
    ///
    /// # Errors
    /// See [`Error`]: the snapshot has ended, and its pages are incomplete.
    pub async fn next(&mut self) -> Result<Option<SnapshotPage>, Error> {
        if self.over {
            return Ok(None);
        }
        let page = match self.first.take() {
            Some(first) => first,
            None => {
                let late = |_| {
                    let why = format!("no page of the snapshot came within {} s", PAGE_TIMEOUT.as_secs());
                    ErrorDetail::new(ErrorKind::Unreachable, why)
                };
                let next = timeout(PAGE_TIMEOUT, self.pages.message()).await.map_err(late)?;
                let next = next.map_err(|status| detail_of(&status))?;
                next.ok_or_else(|| ErrorDetail::new(ErrorKind::Unavailable, "the snapshot ended before its last page"))?
            }
        };
        self.over = page.last;
        match page.entries.is_empty() && page.last {
            true => Ok(None),
            false => Ok(Some(SnapshotPage { entries: page.entries, crc32c: page.crc32c, count: page.count })),
        }
    }
}
