//! What drives a node's partitions: clocks, disks and the network, as the rules of this room see them.
//!
//! Two shells drive the same rules: a shard of the node (`kvstore-node/src/shard/shell.rs`) and a machine of the simulator
//! (`simulator/src/host/shell.rs`). The form follows omicron's `NodeHandlerCtx`: the rules own no I/O and call for it.

use crate::copying::{CopyJob, Offered};
use crate::form::FormJob;
use crate::local_copy::LocalCopy;
use crate::log_write::LogWrite;
use crate::refusal::Refusal;
use crate::request::{Reply, Request};
use crate::retention::RetentionLimits;
use crate::split_off::FormedCopy;
use crate::split_point::SplitSearch;
use crate::yielding::YieldAsk;
use archon_kv::engine::PageLimit;
use archon_kv::{DedupLimits, Effect, EffectError, Engine, LogTime, MemtableBudget, ViewError};
use archon_replica::{
    Alarm, Entry, Identity, Input, Message, Output, Position, Recovered, RecoveredError, Replica, ReplicaAddress,
    Timing,
};
use archon_types::{
    Answer, Epoch, ErrorDetail, ErrorKind, Incarnation, Millis, NodeId, PartitionId, PlacementId, RangeLimits, Report,
    Seq, TableId, Version,
};
use bytes::Bytes;

/// A registration of the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Life {
    /// The node.
    pub node: NodeId,
    /// Which of its registrations.
    pub incarnation: Incarnation,
}

/// Where a copy stands when something is said of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct At {
    /// The partition.
    pub partition: PartitionId,
    /// The copy.
    pub placement: PlacementId,
    /// The epoch that it obeys.
    pub epoch: Epoch,
    /// Up to where it knows everything to be committed.
    pub commit: Seq,
}

/// What happened to a copy, for those who count, log or judge. Nothing follows from it.
#[derive(Debug)]
pub enum Observed<'a> {
    /// It is opened.
    Opened {
        /// Nothing was held of it.
        fresh: bool,
    },
    /// It serves: what was committed before is known.
    Serving,
    /// It serves no longer.
    Resting,
    /// These positions are committed.
    Committed {
        /// What was committed before.
        after: Seq,
    },
    /// A read was answered after its leadership was confirmed, or under the lease.
    Read {
        /// By a round of confirmations.
        confirmed: bool,
    },
    /// A round of confirmations failed; its read is answered otherwise.
    NotConfirmed,
    /// A write was evaluated.
    Evaluated {
        /// It has an effect to be recorded.
        effect: bool,
        /// An empty effect is committed before the answer, to prove the leadership.
        proved: bool,
        /// It carried a name.
        named: bool,
        /// The answer.
        answer: &'a Result<Answer, ErrorDetail>,
    },
    /// An operation waits for the leadership to settle.
    Parked,
    /// An answer waits for a lease.
    Held,
    /// So many answers wait for a lease no more.
    Unheld(usize),
    /// So many writes were abandoned.
    Abandoned(usize),
    /// So many clients were forgotten.
    Forgotten(usize),
    /// Uncommitted entries were cut off.
    Cut,
    /// It has thrown its data away, and that is reported.
    Emptied,
    /// It is set aside.
    SetAside,
    /// Its log took in so many bytes of the right neighbour's rows.
    Absorbing(u64),
    /// It was formed beside a copy of the partition that it is split off, and is held from here on.
    Formed,
    /// Keys that were to be another partition's are admitted again, or answered by the word that they are.
    Unsealed {
        /// For how long this leader admitted nothing about them, in milliseconds.
        sealed_ms: u64,
    },
    /// Its deletion begins.
    Unloading,
    /// Nothing is left of it.
    Deleted,
    /// Its data cannot be trusted, for this reason.
    Damaged(&'a str),
    /// This version does not read an entry of its log, for this reason: it is kept and not served.
    Unreadable(&'a str),
    /// A copy is to be pulled from this leader.
    Pulling(ReplicaAddress),
    /// The copy under way begins anew.
    PullingAgain,
    /// A copy was pulled to its end; the log is followed from here on.
    Copied(Seq),
    /// The copy under way is of no use any more.
    CopyStopped,
    /// The log is no longer kept for this absent copy, which is loaded again when it returns.
    LogNotKept(PlacementId),
    /// An entry was not written: no copy could read it.
    EntryRefused(&'a EffectError),
    /// Two copies disagree about what is committed.
    Alarm(&'a Alarm),
}

/// A clock, a log, an engine, peers and clients.
pub trait Shell: Sized {
    /// To whom an answer goes.
    type Reply: Reply;
    /// Ends a copy that is given to a loader, when it is dropped.
    type Guard;
    /// Rows of a copy that is pulled, on their way to the engine.
    type Page;
    /// What the shell keeps with each copy.
    type Own: Default;

    /// The local clock at this very moment (PROTOCOL rule 17).
    fn clock(&self) -> Millis;
    /// The wall clock.
    fn wall(&self) -> Millis;
    /// The registration that the node acts under.
    fn life(&self) -> Option<Life>;
    /// Whether the lease covers a leadership at this moment.
    fn covers(&self, partition: PartitionId, epoch: Epoch, now: Millis) -> bool;
    /// The registration of another node that is known here, and whether it counts as failed.
    fn peer(&self, node: NodeId) -> Option<(Incarnation, bool)>;
    /// The intervals of replication.
    fn timing(&self) -> Timing;
    /// Whether the node is stopping, and takes no operations.
    fn is_stopping(&self) -> bool;
    /// Whether the partition's table was dropped.
    fn is_dropped(&self, partition: PartitionId) -> bool;
    /// Whether the key belongs to another partition by its hash. In tables by ranges the row says it.
    fn is_misrouted(&self, partition: PartitionId, key: &[u8]) -> bool;
    /// The version of the tables known here.
    fn tables_version(&self) -> Version;
    /// Who leads a partition, as far as the tables known here say.
    fn leader(&self, partition: PartitionId) -> Option<NodeId>;
    /// How whom a partition remembers is bounded.
    fn dedup(&self) -> &DedupLimits;
    /// Returns whether the memtables of the node are overfull, with rows that the engine is taking in. Not if all that fills them is uncommitted:
    /// that leaves memory only if followers go on taking entries.
    fn engine_lags(&self) -> bool;
    /// The memory for rows that the engine does not have yet.
    fn budget(&self) -> MemtableBudget;
    /// How much log is kept for copies that are behind.
    fn retention_limits(&self) -> RetentionLimits;
    /// Bytes that the node has written to its log since it started, all partitions together.
    fn log_written(&self) -> u64 {
        0
    }
    /// The log time of a copy that holds nothing.
    fn log_time(&self) -> LogTime {
        LogTime::default()
    }
    /// A replica of these bounds.
    ///
    /// # Errors
    /// If what was recovered contradicts itself.
    fn replica(&self, identity: Identity, recovered: Recovered) -> Result<Replica, RecoveredError>;

    /// The engine, to be read.
    fn engine(&self) -> &dyn Engine;
    /// One row of the engine; the shell may have kept it with the copy.
    ///
    /// # Errors
    /// If it cannot be read.
    fn row(&self, own: &mut Self::Own, placement: PlacementId, key: Bytes) -> Result<Option<Bytes>, ViewError>;
    /// The engine's rows are replaced, or nobody reads here any more: none that was kept is good.
    fn forget_rows(&self, own: &mut Self::Own);
    /// Entries of the log, as many as come to `bytes_max`; fewer or none if they are no longer there.
    fn read_log(&self, placement: PlacementId, from: Seq, upto: Seq, bytes_max: usize) -> Vec<Entry>;

    /// Whether the log and the memory have room for another write.
    ///
    /// # Errors
    /// The kind of the lack; every kind is retryable.
    fn room(&self) -> Result<(), ErrorKind>;
    /// The rows that one entry of the log takes from a page.
    fn page_limit(&self) -> PageLimit {
        PageLimit::PAGE
    }
    /// The effect of an entry.
    ///
    /// # Errors
    /// If this version does not read it.
    fn read_entry(&self, entry: &Bytes) -> Result<Effect, EffectError> {
        Effect::decode(entry)
    }
    /// What an entry takes in the log, in bytes, about.
    fn logged_bytes(&self, entry: &Entry) -> u64;
    /// Writes to the log, with everything else of this turn.
    fn log(&mut self, placement: PlacementId, write: LogWrite);
    /// Once this turn's writes are durable, [`crate::Completes`] is to bring this token.
    fn log_token(&mut self, placement: PlacementId, token: u64);
    /// Once this turn's writes are durable, [`crate::Completes`] is to say that the log may forget the entries up to here.
    fn log_trim(&mut self, placement: PlacementId, upto: Seq);
    /// The log forgets the entries up to here.
    fn trim(&mut self, placement: PlacementId, upto: Seq);
    /// Has the log forget a copy of which the engine holds nothing any more; [`crate::Completes`] brings it once it has.
    fn delete(&mut self, partition: PartitionId, placement: PlacementId);

    /// Sends a message to another replica.
    fn send(&mut self, message: Message);
    /// Answers a client.
    fn answer(&mut self, at: At, to: Self::Reply, log_time: Millis, outcome: Result<Answer, ErrorDetail>);
    /// Tells a client why it gets no answer; `log_time` is zero if no copy is here.
    fn refuse(&mut self, partition: PartitionId, to: Self::Reply, log_time: Millis, refusal: Refusal);
    /// Passes an operation on to another node, just as it is. From there comes the answer; if none does, the client is told as
    /// [`PassedOn::unanswered`](crate::PassedOn::unanswered) says.
    fn forward(&mut self, to: NodeId, request: Request<Self::Reply>);
    /// Queues a report for the coordinators. Returns whether there was room for it.
    fn report(&mut self, report: Report) -> bool;

    /// Empties a copy's space of the engine; gives the number that the end of it will bear, or `None` if nothing is taken any
    /// more. A second request while the first is under way is the same clearing.
    fn clear(&mut self, placement: PlacementId) -> Option<u64>;
    /// Pulls pages of a copy, in place of any other for the same placement.
    fn start_copy(&mut self, job: CopyJob);
    /// Pulls no more pages for this placement.
    fn stop_copy(&mut self, placement: PlacementId);
    /// Forms a copy in its space of the engine, in place of any other job for the same placement; [`crate::Partitions::formed`]
    /// tells when it is done, and [`crate::Partitions::mirroring`] before that when every row is copied. It ends without a word when its
    /// space is cleared, or what it is to have at the source; if its space is damaged, by [`crate::Partitions::damaged`]. Returns whether
    /// the job was taken.
    fn form(&mut self, job: FormJob) -> bool;
    /// A copy that is formed from this source ends there: the engine was given everything of the source up to `end`.
    fn end_form(&mut self, from: PlacementId, to: PlacementId, end: Position);
    /// Forms this copy no further.
    fn stop_form(&mut self, placement: PlacementId);
    /// Brings a copy that was formed here to whoever has its partition, to be taken up by
    /// [`Partitions::adopt`](crate::Partitions::adopt).
    fn adopt(&mut self, formed: FormedCopy);
    /// Whether partitions of any table that is known here are split or merged by themselves.
    fn limits_any(&self) -> bool {
        false
    }
    /// When partitions of a table are split and merged by themselves, as far as the tables known here say.
    fn range_limits(&self, _: TableId) -> RangeLimits {
        RangeLimits::NONE
    }
    /// How many bytes a copy holds, about; `None` if they were not counted yet.
    fn stored_bytes(&self, _: PlacementId) -> Option<u64> {
        None
    }
    /// Has the rows of a partition walked over; [`Partitions::split_point`](crate::Partitions::split_point) tells what was found.
    /// Returns whether that is begun.
    fn find_split_point(&mut self, _: SplitSearch) -> bool {
        false
    }
    /// The partition of which another thread of the node holds this copy, whole.
    fn holds(&self, _: PlacementId) -> Option<PartitionId> {
        None
    }
    /// Asks the leader of the partition that is to be absorbed for rows, which gives them by
    /// [`Partitions::yielded`](crate::Partitions::yielded). What comes of it is for
    /// [`Partitions::absorb_page`](crate::Partitions::absorb_page); a question that gets no answer is asked again.
    fn ask_right(&mut self, ask: YieldAsk);
    /// Gives rows of a copy to the engine.
    fn offer(&mut self, placement: PlacementId, page: Self::Page) -> Offered<Self::Page>;

    /// Rows cannot be read although nothing is damaged: the disk refuses, and the node ends.
    fn fail(&mut self, at: At, error: &ViewError);
    /// Time has passed for this copy; what else the shell does for it from time to time.
    fn ticked(&mut self, local: &mut LocalCopy<Self>, now: Millis);
    /// A replica is given this, for who traces it.
    fn stepped(&mut self, _: PlacementId, _: &Input) {}
    /// A replica wants this done, for who traces it.
    fn wants(&mut self, _: PlacementId, _: &Output) {}
    /// Something happened.
    fn observe(&mut self, at: At, observed: Observed<'_>);
}
