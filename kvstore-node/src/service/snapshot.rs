//! `Kv.Snapshot`: all entries of a partition as of one position, page by page.

use super::kv::KvService;
use super::{overloaded, refuse};
use crate::copies::pages;
use crate::engine::{Engine, PageLimit, Row};
use crate::node::state::shutting_down;
use crate::shard::inbox::PushError;
use crate::shard::{ShardMessage, SnapshotAsk, SnapshotOffer};
use crate::storage::snapshots::{SnapshotError, SnapshotOwner};
use archon_host::Origin;
use archon_kv::row;
use archon_proto::convert::kv::key_range::range_field;
use archon_proto::v1;
use archon_security::Caller;
use archon_types::pack_entry;
use archon_types::{ErrorDetail, ErrorKind, KeyRange, Millis, Op, PartitionId, ScanOrder};
use bytes::BytesMut;
use futures::Stream;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

/// Pages read ahead of a slow reader.
const PAGES_AHEAD: usize = 4;
/// Longest wait until the engine has the rows of a snapshot.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest time for which a reader may leave a page unread.
const STALL_MAX: Duration = Duration::from_secs(30);
/// Duration allowed for a snapshot beside the time for its bytes.
const GRACE: Duration = Duration::from_secs(60);
/// Least pace of a reader: rows overwritten meanwhile are kept for it.
const BYTES_PER_SECOND_MIN: u64 = 64 * 1024;

pub(crate) type Pages = Pin<Box<dyn Stream<Item = Result<v1::SnapshotPage, Status>> + Send>>;

impl KvService {
    /// Begins a snapshot; its pages follow.
    pub(super) async fn give_snapshot(
        &self,
        caller: &Caller,
        request: v1::SnapshotRequest,
    ) -> Result<Pages, ErrorDetail> {
        self.check(request.cluster.as_ref(), None)?;
        let keys = request.keys.map_or(Ok(KeyRange::ALL), KeyRange::try_from)?;
        let read = Op::Scan { keys: keys.clone(), order: ScanOrder::Ascending, limit: 1 };
        let table = self.table(caller, &request.table, &read).await?;
        self.check_right(caller, table.id, &read)?;
        if keys.is_empty() || (!table.keys.is_range() && !keys.is_all()) {
            let why = format!(
                "SnapshotRequest.keys: a range of keys that is not empty, and all of them in a table whose keys are hashed, as in {}",
                table.name
            );
            return Err(ErrorDetail::new(ErrorKind::InvalidArgument, why));
        }
        if request.partition >= table.keys.numbers_end() {
            let why = format!("table {} has no partition {}", table.name, request.partition);
            return Err(ErrorDetail::new(ErrorKind::InvalidArgument, why));
        }
        let partition = PartitionId::new(table.id, request.partition);
        // The answer proves a leadership that still held after this request arrived: so this node has every write
        // acknowledged before.
        self.operate_as(caller, partition, read, None, Origin::RoutingClient).await.outcome?;
        let (answer, offer) = oneshot::channel();
        let ask = SnapshotAsk { partition, keys, owner: SnapshotOwner::of(caller), answer };
        match self.shards.of(partition).try_push(ShardMessage::SnapshotAsked(ask)) {
            Ok(()) => {}
            Err(PushError::Full(_)) => return Err(overloaded()),
            Err(PushError::Closed(_)) => return Err(shutting_down()),
        }
        let late = |_| {
            let why =
                format!("the storage engine did not take in what is committed within {} s", BEGIN_TIMEOUT.as_secs());
            ErrorDetail::new(ErrorKind::Unavailable, why).with_retry_after_ms(1_000)
        };
        let offer = tokio::time::timeout(BEGIN_TIMEOUT, offer).await.map_err(late)?;
        let offer = offer.map_err(|_| shutting_down())??;
        let (sender, receiver) = mpsc::channel(PAGES_AHEAD);
        let service = self.clone();
        self.tasks.spawn(async move { service.send_snapshot(offer, sender).await });
        Ok(Box::pin(ReceiverStream::new(receiver)))
    }

    async fn send_snapshot(self, offer: SnapshotOffer, pages: mpsc::Sender<Result<v1::SnapshotPage, Status>>) {
        let why = tokio::select! {
            ended = self.send_pages(offer, &pages) => match ended {
                Ok(()) => return,
                Err(why) => why,
            },
            () = self.stop.cancelled() => shutting_down(),
            // The reader hung up: the rest is not needed.
            () = pages.closed() => return,
        };
        // Without room for it the stream ends before its last page, which has the same meaning.
        let _ = pages.try_send(Err(refuse(why)));
    }

    async fn send_pages(
        &self,
        offer: SnapshotOffer,
        pages: &mpsc::Sender<Result<v1::SnapshotPage, Status>>,
    ) -> Result<(), ErrorDetail> {
        let SnapshotOffer { start, log_time, source, rows } = offer;
        let (began, rows) = (Instant::now(), Arc::new(rows));
        let mut head = Some(v1::SnapshotHead {
            position: Some(start.position.into()),
            log_time_ms: log_time.get(),
            keys: range_field(start.keys),
            bytes_estimate: self.shared.load.bytes_of(source),
        });
        let mut sent = 0_u64;
        loop {
            let next = {
                let (engine, rows): (Arc<dyn Engine>, _) = (Arc::clone(&self.engine), Arc::clone(&rows));
                tokio::task::spawn_blocking(move || page_of(rows.next(&*engine, PageLimit::PAGE)?, log_time))
            };
            let next = next.await.unwrap_or_else(|_| Err(SnapshotError::Unreadable("reading a page failed".into())));
            let mut page = next.map_err(|error| over(&error))?;
            if page.count == 0 && !page.last {
                continue; // All its rows had expired.
            }
            page.head = head.take();
            let (last, bytes) = (page.last, page.entries.len() as u64);
            match tokio::time::timeout(STALL_MAX, pages.send(Ok(page))).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Ok(()),
                Err(_) => {
                    return Err(too_slow(format!("no page was taken for {} s", STALL_MAX.as_secs())));
                }
            }
            self.shared.metrics.snapshot_bytes_out.add(bytes);
            sent += bytes;
            if last {
                return Ok(());
            }
            if began.elapsed() > GRACE + Duration::from_secs(sent / BYTES_PER_SECOND_MIN) {
                return Err(too_slow(format!("less than {BYTES_PER_SECOND_MIN} bytes were taken per second")));
            }
        }
    }
}

/// Encodes rows as a page, without values that had expired by the log time of the snapshot. The last page marks the end.
fn page_of(rows: Option<Vec<Row>>, log_time: Millis) -> Result<v1::SnapshotPage, SnapshotError> {
    let last = rows.is_none();
    let rows = rows.unwrap_or_default();
    let mut entries = BytesMut::with_capacity(rows.iter().map(|row| row.key.len() + row.value.len() + 16).sum());
    let mut count = 0;
    for row in &rows {
        let stored = row::decode_stored(&row.value).map_err(|error| SnapshotError::Unreadable(error.to_string()))?;
        if stored.expires.is_none_or(|expires| expires > log_time) {
            pack_entry(&mut entries, row.key.get(1..).unwrap_or_default(), &stored);
            count += 1;
        }
    }
    let entries = entries.freeze();
    Ok(v1::SnapshotPage { head: None, crc32c: pages::checksum(&entries), entries, count, last })
}

fn over(error: &SnapshotError) -> ErrorDetail {
    let kind = match error {
        SnapshotError::TooMany | SnapshotError::TooManyOf { .. } | SnapshotError::TooMuchChanged(_) => {
            ErrorKind::Overloaded
        }
        SnapshotError::Cleared | SnapshotError::Unreadable(_) => ErrorKind::Unavailable,
    };
    ErrorDetail::new(kind, format!("the snapshot is over: {error}"))
}

fn too_slow(what: String) -> ErrorDetail {
    ErrorDetail::new(ErrorKind::DeadlineExceeded, format!("the snapshot has ended: {what}; start it again"))
}
