//! Interface between a node's partitions and their environment: clocks, disks and the network.
//!
//! Two shells drive the same rules: a shard of the node (`kvstore-node/src/shard/shell.rs`) and a machine of the
//! simulator (`checks/simulator/src/host/shell.rs`). The form follows omicron's `NodeHandlerCtx`: the rules own no I/O and
//! call for it.

use crate::copies::local_copy::LocalCopy;
use crate::copies::pages::{CopyJob, OfferResult};
use crate::copies::retention::RetentionLimits;
use crate::log_write::LogWrite;
use crate::operations::refusal::Refusal;
use crate::operations::request::{Reply, Request};
use crate::ranges::form::FormJob;
use crate::ranges::split_watch::SplitSearch;
use crate::ranges::split_work::FormedCopy;
use crate::ranges::yield_page::YieldAsk;
use archon_kv::engine::PageLimit;
use archon_kv::{DedupLimits, Effect, EffectError, Engine, LogTime, MemtableBudget, ViewError};
use archon_replica::{
    Alarm, Entry, Identity, Input, Message, Output, Position, RecoveredError, RecoveredState, Replica, ReplicaAddress,
    Timing,
};
use archon_types::{
    Answer, Epoch, ErrorDetail, ErrorKind, Incarnation, Millis, NodeId, PartitionId, PlacementId, RangeLimits, Report,
    Seq, TableId, Version,
};
use bytes::Bytes;

/// Longest time in milliseconds since a copy accepted an append of its leader, for a read with a bound. Leaders send one
/// to each in-sync follower once per second (less often with more than 1,024 replicas on their node).
pub const REPLICA_LAG_MS_MAX: u64 = 3_000;

/// A registration of the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeRegistration {
    /// The node.
    pub node: NodeId,
    /// Its incarnation.
    pub incarnation: Incarnation,
}

/// Location and progress of a copy, for events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyLocation {
    /// The partition.
    pub partition: PartitionId,
    /// The copy.
    pub placement: PlacementId,
    /// Its epoch.
    pub epoch: Epoch,
    /// Position up to which it knows everything to be committed.
    pub commit: Seq,
}

/// Event of a copy, for metrics, logs and checkers. It has no effect on the partitions.
#[derive(Debug)]
pub enum CopyEvent<'a> {
    /// Opened.
    Opened {
        /// No data of it was held.
        fresh: bool,
    },
    /// Serving: everything committed before is known.
    Serving,
    /// No longer serving.
    Resting,
    /// Positions are committed.
    Committed {
        /// The commit position before.
        after: Seq,
    },
    /// A read was answered, after a confirmation of the leadership or under the lease.
    Read {
        /// By a round of confirmations.
        confirmed: bool,
    },
    /// A round of confirmations failed; its read is handled otherwise.
    NotConfirmed,
    /// A write was evaluated.
    Evaluated {
        /// True if it has an effect to be recorded.
        effect: bool,
        /// True if an empty effect is committed before the answer, to prove the leadership.
        proved: bool,
        /// True if it had a name.
        named: bool,
        /// The answer.
        answer: &'a Result<Answer, ErrorDetail>,
    },
    /// An operation waits for the leadership to settle.
    Parked,
    /// An answer waits for a lease.
    Held,
    /// Number of answers that no longer wait for a lease.
    Unheld(usize),
    /// Number of abandoned writes.
    Abandoned(usize),
    /// Number of clients dropped from the records.
    Forgotten(usize),
    /// Number of expired rows that an entry removes.
    Expired(usize),
    /// Uncommitted entries were truncated.
    Cut,
    /// The copy was reset, and that is reported.
    Emptied,
    /// Set aside.
    SetAside,
    /// Bytes of the right neighbour's rows that its log took in.
    Absorbing(u64),
    /// Formed beside a copy of its parent partition, and held from now on.
    Formed,
    /// Sealed keys are served again, or answered with a redirect.
    Unsealed {
        /// Duration of the seal at this leader, in milliseconds.
        sealed_ms: u64,
    },
    /// Its deletion begins.
    Unloading,
    /// Nothing is left of it.
    Deleted,
    /// Its data cannot be trusted, for this reason.
    Damaged(&'a str),
    /// This version cannot read an entry of its log, for this reason: the copy is kept and not served.
    Unreadable(&'a str),
    /// The engine refuses to read its rows: the copy is kept and not served.
    Unread,
    /// A pull from this leader begins.
    Pulling(ReplicaAddress),
    /// The pull restarts.
    PullingAgain,
    /// The pull is complete; the copy follows the log from here.
    Copied(Seq),
    /// The pull is no longer needed.
    CopyStopped,
    /// The log is no longer kept for this absent copy, which is loaded when it returns.
    LogNotKept(PlacementId),
    /// An entry was not written, as no copy could read it.
    EntryRefused(&'a EffectError),
    /// Two copies disagree about committed entries.
    Alarm(&'a Alarm),
}

/// Environment of a node's partitions: clock, log, engine, peers and clients.
pub trait Shell: Sized {
    /// Destination of an answer.
    type Reply: Reply;
    /// Ends a copy served to a loader when dropped.
    type Guard;
    /// Rows of a pulled copy on their way to the engine.
    type Page;
    /// State that the shell keeps with each copy.
    type Own: Default;

    /// Returns the local clock at this very moment (PROTOCOL rule 17).
    fn clock(&self) -> Millis;
    /// Returns the wall clock.
    fn wall(&self) -> Millis;
    /// Returns the registration that the node acts under.
    fn life(&self) -> Option<NodeRegistration>;
    /// Returns whether the node has a lease of the coordinators at this time of the local clock.
    fn has_lease(&self, now: Millis) -> bool;
    /// Returns whether the lease covers a leadership at this moment.
    fn covers(&self, partition: PartitionId, epoch: Epoch, now: Millis) -> bool;
    /// Returns the known registration of another node, and whether it counts as failed.
    fn peer(&self, node: NodeId) -> Option<(Incarnation, bool)>;
    /// Returns the replication intervals.
    fn timing(&self) -> Timing;
    /// Returns the longest time in milliseconds since a copy accepted an append of its leader, for a read with a bound.
    fn replica_lag_ms(&self) -> u64 {
        REPLICA_LAG_MS_MAX
    }
    /// Returns whether the node is stopping and accepts no operations.
    fn is_stopping(&self) -> bool;
    /// Returns whether the partition's table was dropped.
    fn is_dropped(&self, partition: PartitionId) -> bool;
    /// Returns whether the key belongs to another partition by its hash. In tables by ranges the row decides.
    fn is_misrouted(&self, partition: PartitionId, key: &[u8]) -> bool;
    /// Returns the version of the tables known here.
    fn tables_version(&self) -> Version;
    /// Returns the leader of a partition according to the tables known here.
    fn leader(&self, partition: PartitionId) -> Option<NodeId>;
    /// Returns the bounds on a partition's client records.
    fn dedup(&self) -> &DedupLimits;
    /// Returns whether the node's memtables are overfull with rows that the engine is taking in. False if uncommitted
    /// rows alone fill them: those leave memory only if followers keep accepting entries.
    fn engine_lags(&self) -> bool;
    /// Returns the memory budget for rows that the engine lacks.
    fn budget(&self) -> MemtableBudget;
    /// Returns the bounds on the log kept for copies that are behind.
    fn retention_limits(&self) -> RetentionLimits;
    /// Returns the bytes that the node has written to its log since it started, over all partitions.
    fn log_written(&self) -> u64 {
        0
    }
    /// Returns the log time of an empty copy.
    fn log_time(&self) -> LogTime {
        LogTime::default()
    }
    /// Creates a replica with the shell's limits.
    ///
    /// # Errors
    /// If what was recovered contradicts itself.
    fn replica(&self, identity: Identity, recovered: RecoveredState) -> Result<Replica, RecoveredError>;

    /// Returns the engine, for reads.
    fn engine(&self) -> &dyn Engine;
    /// Reads one row of the engine; the shell may have cached it with the copy.
    ///
    /// # Errors
    /// If it cannot be read.
    fn row(&self, own: &mut Self::Own, placement: PlacementId, key: &[u8]) -> Result<Option<Bytes>, ViewError>;
    /// Drops cached rows: the engine's rows were replaced, or the copy no longer serves.
    fn forget_rows(&self, own: &mut Self::Own);
    /// Reads entries of the log, up to `bytes_max`; fewer or none if they are no longer there.
    fn read_log(&self, placement: PlacementId, from: Seq, upto: Seq, bytes_max: usize) -> Vec<Entry>;

    /// Checks that the log and the memory have room for another write.
    ///
    /// # Errors
    /// The kind of shortage; every kind is retryable.
    fn room(&self) -> Result<(), ErrorKind>;
    /// Returns the limit on rows of a page in one log entry.
    fn page_limit(&self) -> PageLimit {
        PageLimit::PAGE
    }
    /// Decodes the effect of an entry.
    ///
    /// # Errors
    /// If this version cannot read it.
    fn read_entry(&self, entry: &Bytes) -> Result<Effect, EffectError> {
        Effect::decode(entry)
    }
    /// Returns the approximate size of an entry in the log, in bytes.
    fn logged_bytes(&self, entry: &Entry) -> u64;
    /// Adds a write to this turn's writes to the log.
    fn log(&mut self, placement: PlacementId, write: LogWrite);
    /// Requests this token in [`crate::Completions`] once this turn's writes are durable.
    fn log_token(&mut self, placement: PlacementId, token: u64);
    /// Requests a trim up to here in [`crate::Completions`] once this turn's writes are durable.
    fn log_trim(&mut self, placement: PlacementId, upto: Seq);
    /// Trims the log up to here.
    fn trim(&mut self, placement: PlacementId, upto: Seq);
    /// Deletes a copy without engine rows from the log; [`crate::Completions`] reports the end.
    fn delete(&mut self, partition: PartitionId, placement: PlacementId);

    /// Sends a message to another replica.
    fn send(&mut self, message: Message);
    /// Answers a client.
    fn answer(&mut self, at: CopyLocation, to: Self::Reply, log_time: Millis, outcome: Result<Answer, ErrorDetail>);
    /// Refuses an operation with the reason; `log_time` is zero without a local copy.
    fn refuse(&mut self, partition: PartitionId, to: Self::Reply, log_time: Millis, refusal: Refusal);
    /// Forwards an operation unchanged to another node, which answers it. Without an answer, the client gets the error
    /// of [`PassedOn::unanswered`](crate::PassedOn::unanswered).
    fn forward(&mut self, to: NodeId, request: Request<Self::Reply>);
    /// Queues a report for the coordinators. Returns whether there was room for it.
    fn report(&mut self, report: Report) -> bool;

    /// Clears a copy's space of the engine. Returns the number of the clearing, or `None` if the engine accepts no further
    /// work. A second request during a clearing is the same clearing.
    fn clear(&mut self, placement: PlacementId) -> Option<u64>;
    /// Pulls pages of a copy, in place of any other pull for the same placement.
    fn start_copy(&mut self, job: CopyJob);
    /// Stops pulling pages for this placement.
    fn stop_copy(&mut self, placement: PlacementId);
    /// Forms a copy in its space of the engine, in place of any other job for the same placement. Returns whether the
    /// job was accepted. [`crate::Partitions::mirroring`] reports that every row is copied,
    /// [`crate::Partitions::formed`] the end. The job ends without a report when its space, or its keys at the source,
    /// are cleared; if its space is damaged, [`crate::Partitions::damaged`] reports it.
    fn form(&mut self, job: FormJob) -> bool;
    /// Ends the copy formed from this source at `end`: the engine received everything of the source up to there.
    fn end_form(&mut self, from: PlacementId, to: PlacementId, end: Position);
    /// Stops forming this copy.
    fn stop_form(&mut self, placement: PlacementId);
    /// Passes a copy that was formed here to the thread that has its partition, for
    /// [`Partitions::adopt`](crate::Partitions::adopt).
    fn adopt(&mut self, formed: FormedCopy);
    /// Returns whether any known table splits or merges partitions automatically.
    fn limits_any(&self) -> bool {
        false
    }
    /// Returns the limits for automatic splits and merges of a table, according to the tables known here.
    fn range_limits(&self, _: TableId) -> RangeLimits {
        RangeLimits::NONE
    }
    /// Returns the approximate bytes that a copy holds; `None` if they were not counted yet.
    fn stored_bytes(&self, _: PlacementId) -> Option<u64> {
        None
    }
    /// Starts a walk over the rows of a partition; [`Partitions::split_point`](crate::Partitions::split_point) takes
    /// the result. Returns whether the walk was started.
    fn find_split_point(&mut self, _: SplitSearch) -> bool {
        false
    }
    /// Returns the partition of a whole copy held by another thread of the node.
    fn holds(&self, _: PlacementId) -> Option<PartitionId> {
        None
    }
    /// Asks the leader of the right partition of a merge for rows, which it reads with
    /// [`Partitions::yielded`](crate::Partitions::yielded). [`Partitions::absorb_page`](crate::Partitions::absorb_page)
    /// takes the result; unanswered requests are repeated.
    fn ask_right(&mut self, ask: YieldAsk);
    /// Offers rows of a copy to the engine.
    fn offer(&mut self, placement: PlacementId, page: Self::Page) -> OfferResult<Self::Page>;

    /// Handles rows that the engine refuses to read although nothing is damaged. The node ends, or goes on without the
    /// copy, which serves nothing from the end of the turn on.
    fn fail(&mut self, at: CopyLocation, error: &ViewError);
    /// Runs the shell's own periodic work for this copy.
    fn ticked(&mut self, local: &mut LocalCopy<Self>, now: Millis);
    /// Traces an input of a replica.
    fn stepped(&mut self, _: PlacementId, _: &Input) {}
    /// Traces an output of a replica.
    fn wants(&mut self, _: PlacementId, _: &Output) {}
    /// Takes an event.
    fn observe(&mut self, at: CopyLocation, observed: CopyEvent<'_>);
}
