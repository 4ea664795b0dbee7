//! Messages to a shard.

use super::ping::PingPart;
use super::row_run::RowRun;
use crate::flusher::{CopiedPage, FlushEvent};
use crate::peers::wire;
use crate::server::admit::Permit;
use crate::service::reply::ReplyTo;
use crate::shard::inbox::Weight;
use crate::storage::snapshots::{Snapshot, SnapshotOwner};
use archon_host::{
    Action, ByteHalves, CopyAsk, CopyPage, CopyStart, FormedCopy, SnapshotStart, SplitSearch, StaleRow, YieldPage,
};
use archon_kv::Growth;
use archon_replica::{Message, Position};
use archon_types::{
    Epoch, ErrorDetail, Incarnation, KeyRange, ManyKeys, Middle, Millis, PartitionId, PlacementId, Seq, StoredValue,
    Version,
};
use archon_wal::WalError;
use bytes::Bytes;
use std::ops::Bound;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// One admitted operation.
pub(crate) type OpRequest = archon_host::Request<ReplyTo>;

/// A copy that this leader serves.
#[derive(Clone, Debug)]
pub(crate) struct CopyOffer {
    /// The partition.
    pub(crate) partition: PartitionId,
    /// Its start.
    pub(crate) start: CopyStart,
    /// The placement with the rows.
    pub(crate) source: PlacementId,
    /// Cancelled before anything happens to the source that would spoil the copy: the end of its leadership, of its log
    /// from the copy's start on, of its data. A page is valid if this is still not cancelled *after* it was read.
    pub(crate) spoilt: CancellationToken,
}

/// A read at a copy that need not lead.
pub(crate) struct StaleRead {
    pub(crate) partition: PartitionId,
    pub(crate) key: Bytes,
    pub(crate) permit: Permit,
    pub(crate) answer: oneshot::Sender<Result<StaleRow, ErrorDetail>>,
}

/// A read of several keys, as of one moment, at a copy that need not lead.
pub(crate) struct ReplicaRead {
    pub(crate) partition: PartitionId,
    pub(crate) keys: ManyKeys,
    pub(crate) permit: Permit,
    pub(crate) answer: oneshot::Sender<ReplicaAnswer>,
}

/// Answer to a [`ReplicaRead`].
pub(crate) struct ReplicaAnswer {
    pub(crate) values: Result<Vec<Option<StoredValue>>, ErrorDetail>,
    /// Share of admission of the values, held until they are sent.
    pub(crate) permit: Permit,
}

/// Request for a snapshot.
pub(crate) struct SnapshotAsk {
    pub(crate) partition: PartitionId,
    /// Only these keys.
    pub(crate) keys: KeyRange,
    /// The reader, for limits.
    pub(crate) owner: SnapshotOwner,
    pub(crate) answer: oneshot::Sender<Result<SnapshotOffer, ErrorDetail>>,
}

/// A snapshot that this leader serves.
#[derive(Debug)]
pub(crate) struct SnapshotOffer {
    pub(crate) start: SnapshotStart,
    /// The log time of the last entry included.
    pub(crate) log_time: Millis,
    /// The placement with the rows.
    pub(crate) source: PlacementId,
    pub(crate) rows: Snapshot,
}

/// A message to a shard.
pub(crate) enum ShardMessage {
    /// Client operations.
    Operations(Vec<OpRequest>),
    /// A probe of this node's reachability for clients.
    Ping(PingPart),
    /// A read of a key at the copy here, whether it leads or not.
    ReadStale(StaleRead),
    /// The same, within a bound on what it may miss.
    ReadReplica(ReplicaRead),
    /// Messages of other replicas.
    Replication(Vec<Message>),
    /// Actions of a push to this incarnation. Answered with whether they were carried out: not if the incarnation has
    /// ended, or has not begun.
    Duties { incarnation: Incarnation, actions: Vec<Action>, done: oneshot::Sender<bool> },
    /// A batch handed to the log is durable, or was refused.
    Logged { batch: u64, result: Result<(), WalError> },
    /// An event of the flusher.
    Flushed(FlushEvent),
    /// A loader on another node asks this leader for a copy.
    CopyAsked { ask: CopyAsk, answer: oneshot::Sender<Result<CopyOffer, ErrorDetail>> },
    /// Rows of a copy that this node pulls.
    CopyRows(CopyPage<CopiedPage>),
    /// All rows of a copy are in, on disk.
    CopyDone { placement: PlacementId, attempt: u64, at: Position, version: Version },
    /// A copy must restart: its resume point is gone.
    CopyAgain { placement: PlacementId, attempt: u64 },
    /// A page of a merge source, for the request with this number; `None` if there was none.
    AbsorbPage { placement: PlacementId, ask: u64, page: Option<YieldPage> },
    /// The leader of a merge target asks for rows of the right partition. Answered with a page, or `None` if this shard
    /// has none to give yet.
    YieldAsked {
        right: PartitionId,
        attempt: Version,
        after: Option<Bytes>,
        answer: oneshot::Sender<Option<YieldPage>>,
    },
    /// A formed copy that belongs to this shard.
    Adopt(FormedCopy),
    /// A formed copy is held now; sent to the shard that formed it.
    Formed,
    /// A walk over the rows of a partition has ended, for a split; `None` if it failed.
    SplitPoint { search: SplitSearch, found: Option<ByteHalves>, took_ms: u64 },
    /// A coordinator asks for the split key of a partition led here.
    MiddleAsked { partition: PartitionId, answer: oneshot::Sender<Result<Middle, ErrorDetail>> },
    /// The node has registered again.
    Renew { life: archon_host::NodeRegistration, done: oneshot::Sender<()> },
    /// No lease covers these leaderships any longer.
    Withdrawn(Vec<(PartitionId, Epoch)>),
    /// Tables or settings changed: replicas may have other peers, or another time-out.
    Peers,
    /// Give up every leadership.
    Release,
    /// Answered with the number of leaderships not yet given up.
    Leading(oneshot::Sender<usize>),
    /// Answered with the number of copies that leaders elsewhere count although enough others are Live.
    Counted(oneshot::Sender<usize>),
    /// Answered with the committed rows of a placement from a key on that the engine may not have yet.
    Gathered { placement: PlacementId, from: Bound<Bytes>, answer: oneshot::Sender<Option<RowRun>> },
    /// Answered with the commit position of a placement's log; `None` if it is no longer here.
    Committed { placement: PlacementId, answer: oneshot::Sender<Option<Seq>> },
    /// A client asks for a snapshot of a partition led here.
    SnapshotAsked(SnapshotAsk),
    /// Answered with the last committed user row of these keys in a placement's memtable.
    LastGathered { placement: PlacementId, keys: KeyRange, answer: oneshot::Sender<Option<Bytes>> },
    /// The size scan begins to count a placement, with `known` as its last user row a moment ago. Answered with the
    /// last row to count; dropped if the placement is no longer here.
    CountBegun { placement: PlacementId, known: Option<Bytes>, answer: oneshot::Sender<Option<Bytes>> },
    /// The size scan has counted a placement up to this key.
    CountReached { placement: PlacementId, key: Bytes },
    /// The size scan has counted a placement. Answered with the growth since the previous count, and since this count
    /// passed; `None` if the count no longer applies.
    CountEnded { placement: PlacementId, answer: oneshot::Sender<Option<(Growth, Growth)>> },
    /// Answered with the growth of each placement here since its count; `None` where the count no longer applies.
    Grown(oneshot::Sender<Vec<(PlacementId, Option<Growth>)>>),
    /// End the thread once pending work is done.
    Stop,
}

impl Weight for ShardMessage {
    fn bytes(&self) -> usize {
        match self {
            Self::Operations(operations) => operations.iter().map(|request| request.op.bytes()).sum(),
            Self::ReadStale(read) => read.key.len(),
            Self::ReadReplica(read) => read.keys.bytes(),
            Self::SnapshotAsked(ask) => ask.keys.begin.len() + ask.keys.end.as_ref().map_or(0, Bytes::len),
            Self::Replication(messages) => messages.iter().map(wire::weight).sum(),
            Self::CopyRows(page) => page.content.bytes(),
            Self::AbsorbPage { page: Some(page), .. } => {
                page.rows.iter().map(|row| row.key.len() + row.value.len()).sum()
            }
            _ => 0,
        }
    }
}
