//! What a shard is told.

use super::Gathered;
use crate::admit::Permit;
use crate::flusher::{CopiedPage, FlushEvent};
use crate::inbox::Weigh;
use crate::ping::PingPart;
use crate::reply::ReplyTo;
use crate::snapshots::{Snapshot, SnapshotOwner};
use crate::wire;
use archon_host::{
    Action, ByteHalves, CopyAsk, CopyPage, CopyStart, FormedCopy, SnapshotStart, SplitSearch, StaleRow, YieldPage,
};
use archon_kv::Growth;
use archon_replica::{Message, Position};
use archon_types::{Epoch, ErrorDetail, Incarnation, KeyRange, Middle, Millis, PartitionId, PlacementId, Seq, Version};
use archon_wal::WalError;
use bytes::Bytes;
use std::ops::Bound;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// One admitted operation.
pub(crate) type OpRequest = archon_host::Request<ReplyTo>;

/// A copy that this leader gives.
#[derive(Clone, Debug)]
pub(crate) struct CopyOffer {
    /// The partition.
    pub(crate) partition: PartitionId,
    /// Where it begins.
    pub(crate) start: CopyStart,
    /// The placement whose space is to be read.
    pub(crate) source: PlacementId,
    /// Cancelled before anything happens to the source that would spoil the copy: the end of its leadership, of its log
    /// from the copy's start on, of its data. A page is good if this is not cancelled *after* it was read.
    pub(crate) spoilt: CancellationToken,
}

/// A read at a copy that need not lead.
pub(crate) struct StaleRead {
    pub(crate) partition: PartitionId,
    pub(crate) key: Bytes,
    pub(crate) permit: Permit,
    pub(crate) answer: oneshot::Sender<Result<StaleRow, ErrorDetail>>,
}

/// A snapshot that somebody asks for.
pub(crate) struct SnapshotAsk {
    pub(crate) partition: PartitionId,
    /// Only these keys.
    pub(crate) keys: KeyRange,
    /// The reader, as far as limits go.
    pub(crate) owner: SnapshotOwner,
    pub(crate) answer: oneshot::Sender<Result<SnapshotOffer, ErrorDetail>>,
}

/// A snapshot that this leader gives.
#[derive(Debug)]
pub(crate) struct SnapshotOffer {
    pub(crate) start: SnapshotStart,
    /// The log time of the last entry that is seen.
    pub(crate) log_time: Millis,
    /// The placement whose rows they are.
    pub(crate) source: PlacementId,
    pub(crate) rows: Snapshot,
}

/// A message to a shard.
pub(crate) enum ShardMessage {
    /// Operations of clients.
    Operations(Vec<OpRequest>),
    /// Somebody asks whether clients reach this node.
    Ping(PingPart),
    /// A read of a key at the copy here, whether it leads or not.
    ReadStale(StaleRead),
    /// Messages of other replicas.
    Replication(Vec<Message>),
    /// What follows from a push to this life of the node. Answered with whether it was carried out: not if that life is
    /// over, or the next one has not begun.
    Duties { incarnation: Incarnation, actions: Vec<Action>, done: oneshot::Sender<bool> },
    /// A batch handed to the log is durable, or was refused.
    Logged { batch: u64, result: Result<(), WalError> },
    /// The flusher tells something.
    Flushed(FlushEvent),
    /// A loader elsewhere asks this leader for a copy.
    CopyAsked { ask: CopyAsk, answer: oneshot::Sender<Result<CopyOffer, ErrorDetail>> },
    /// Rows of a copy that this node pulls.
    CopyRows(CopyPage<CopiedPage>),
    /// All rows of a copy are in, and on the disk.
    CopyDone { placement: PlacementId, attempt: u64, at: Position, version: Version },
    /// A copy must begin anew: what it resumed is gone.
    CopyAgain { placement: PlacementId, attempt: u64 },
    /// A page of a partition that is to be absorbed, upon the question with this number; `None` if there was none.
    AbsorbPage { placement: PlacementId, ask: u64, page: Option<YieldPage> },
    /// A leader elsewhere asks for rows of a partition that it is to absorb. Answered with a page, or `None` if this shard has none to
    /// give yet.
    YieldAsked {
        right: PartitionId,
        attempt: Version,
        after: Option<Bytes>,
        answer: oneshot::Sender<Option<YieldPage>>,
    },
    /// A copy was formed that belongs to this shard.
    Adopt(FormedCopy),
    /// A copy that was formed is held now: whoever had it formed says so.
    Formed,
    /// A walk over the rows of a partition that should perhaps be split has ended; `None`: it came to nothing.
    SplitPoint { search: SplitSearch, found: Option<ByteHalves>, took_ms: u64 },
    /// A coordinator asks where the middle of a partition is that is led here.
    MiddleAsked { partition: PartitionId, answer: oneshot::Sender<Result<Middle, ErrorDetail>> },
    /// The node registered anew.
    Renew { life: archon_host::Life, done: oneshot::Sender<()> },
    /// The lease does not cover these leaderships any more.
    Withdrawn(Vec<(PartitionId, Epoch)>),
    /// The tables changed, or the settings: replicas may have other peers, or another time-out for them.
    Peers,
    /// Give up every leadership.
    Release,
    /// Answered with the number of leaderships not yet given up.
    Leading(oneshot::Sender<usize>),
    /// Answered with the number of copies that others' leaders count although enough others are Live.
    Counted(oneshot::Sender<usize>),
    /// Answered with the committed rows of a placement from a key on that the engine may not have yet.
    Gathered { placement: PlacementId, from: Bound<Bytes>, answer: oneshot::Sender<Option<Gathered>> },
    /// Answered with the position up to which a placement's log is committed; `None` if it is not there any more.
    Committed { placement: PlacementId, answer: oneshot::Sender<Option<Seq>> },
    /// A client asks for a snapshot of a partition that is led here.
    SnapshotAsked(SnapshotAsk),
    /// Answered with the last of users' committed rows of these keys that a placement's memtable has.
    LastGathered { placement: PlacementId, keys: KeyRange, answer: oneshot::Sender<Option<Bytes>> },
    /// The size scan begins to count a placement, of which the last row of users was this a moment ago. Answered with the one up to
    /// which it is to count; dropped if the placement is not there any more.
    CountBegun { placement: PlacementId, known: Option<Bytes>, answer: oneshot::Sender<Option<Bytes>> },
    /// The size scan has come up to this key of a placement.
    CountReached { placement: PlacementId, key: Bytes },
    /// The size scan has counted a placement. Answered with what had grown since it was counted before, and since this count
    /// went by; `None` if it is not what was counted any more.
    CountEnded { placement: PlacementId, answer: oneshot::Sender<Option<(Growth, Growth)>> },
    /// Answered with how much each placement here has grown since it was counted; `None` where that is not what was counted any more.
    Grown(oneshot::Sender<Vec<(PlacementId, Option<Growth>)>>),
    /// End the thread once what is under way is done.
    Stop,
}

impl Weigh for ShardMessage {
    fn bytes(&self) -> usize {
        match self {
            Self::Operations(operations) => operations.iter().map(|request| request.op.bytes()).sum(),
            Self::ReadStale(read) => read.key.len(),
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
