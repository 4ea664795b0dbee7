//! Shell of a shard for its partitions: the node's clocks, its log, engine, peers and clients.

use super::cache::{KeptRows, RowCache};
use super::context::Context;
use super::flush::hand_to_flusher;
use super::journal::Journal;
use super::message::{OpRequest, ShardMessage};
use crate::flusher::{CopiedPage, FlushRows, FlusherError};
use crate::node::grants::Grants;
use crate::peers::wire::PartPacker;
use crate::service::reply::{Outcome, Replies, ReplyTo};
use crate::storage::store;
use archon_host::{
    CopyEvent, CopyJob, CopyLocation, FormJob, FormedCopy, HeldState, LocalCopy, LogWrite, NodeRegistration,
    OfferResult, Refusal, RetentionLimits, Shell, SplitSearch, WaitsFor, YieldAsk,
};
use archon_kv::{DedupLimits, Engine, MemtableBudget, ViewError};
use archon_replica::{Entry, Identity, Limits, Message, Position, RecoveredError, RecoveredState, Replica, Timing};
use archon_types::{
    Epoch, ErrorKind, Incarnation, Millis, NodeId, NodeStatus, PartitionId, PlacementId, RangeLimits, Report, Seq,
    TableId, Version,
};
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::DropGuard;

/// Approximate cost of a log record beside its entry, in bytes.
const RECORD_OVERHEAD_BYTES: u64 = 64;

/// A shard's access to everything outside.
pub(super) struct ShardShell {
    pub(super) context: Arc<Context>,
    /// The lease, as of the beginning of the turn or newer.
    pub(super) grants: Arc<Grants>,
    pub(super) journal: Journal,
    pub(super) replies: Replies,
    /// Messages to other nodes, sent at the end of the turn.
    pub(super) outgoing: BTreeMap<NodeId, PartPacker>,
    /// Cached engine rows of all copies here; reads add to it.
    pub(super) cache: RefCell<RowCache>,
}

impl ShardShell {
    /// Passes messages and answers to their connections, at `now`. Returns whether there were any.
    pub(super) fn hand_over(&mut self, now: Instant) -> bool {
        let mut sent = false;
        for (node, packer) in &mut self.outgoing {
            let parts = packer.finish();
            if !parts.is_empty() {
                sent = true;
                self.context.peers.send(*node, parts);
            }
        }
        sent |= self.replies.has_streamed();
        self.context
            .shared
            .metrics
            .operations_refused
            .add(self.replies.send_at(now, |turn| self.journal.logged_at(turn)));
        sent
    }

    /// Fails the node if the log refuses a batch for good: its state is then unknown, and later acknowledgements might
    /// promise what is not stored.
    pub(super) fn look_at_journal(&mut self) {
        if let Some(error) = self.journal.take_failure() {
            tracing::error!(%error, "the write-ahead log refuses what this node wrote; the node stops and recovers from what is stored");
            self.context.shared.lifecycle.fail();
        }
    }
}

impl archon_host::Reply for ReplyTo {
    fn room(&self) -> Result<(), archon_types::ErrorDetail> {
        Self::room(self)
    }

    fn hold(&mut self, outcome: &archon_host::Outcome) -> Result<(), archon_types::ErrorDetail> {
        Self::hold(self, outcome)
    }

    fn waits(&mut self, waits_for: WaitsFor) {
        if let Some(asked) = self.asked_mut() {
            asked.waits(waits_for);
        }
    }
}

impl Shell for ShardShell {
    type Reply = ReplyTo;
    type Guard = DropGuard;
    type Page = CopiedPage;
    type Own = KeptRows;

    fn clock(&self) -> Millis {
        self.context.shared.clock.now()
    }

    fn wall(&self) -> Millis {
        self.context.shared.wall.now()
    }

    fn life(&self) -> Option<NodeRegistration> {
        let life = self.context.shared.membership.life()?;
        Some(NodeRegistration { node: life.member.node, incarnation: life.member.incarnation })
    }

    fn has_lease(&self, now: Millis) -> bool {
        self.grants.is_valid(now)
    }

    fn covers(&self, partition: PartitionId, epoch: Epoch, now: Millis) -> bool {
        self.grants.covers(partition, epoch, now)
    }

    fn peer(&self, node: NodeId) -> Option<(Incarnation, bool)> {
        let node = self.context.shared.tables.node(node)?;
        Some((node.incarnation, node.status != NodeStatus::Alive))
    }

    fn timing(&self) -> Timing {
        let timeout_ms = self.context.shared.membership.life().map(|life| life.replication_timeout_ms());
        timeout_ms.map_or_else(Timing::default, |replication_timeout_ms| Timing {
            replication_timeout_ms,
            keep_alive_ms: keep_alive_ms(replication_timeout_ms, self.context.holdings.len()),
        })
    }

    fn is_stopping(&self) -> bool {
        self.context.shared.lifecycle.is_stopping()
    }

    fn is_dropped(&self, partition: PartitionId) -> bool {
        self.context.shared.tables.dropped(partition).is_some()
    }

    fn is_misrouted(&self, partition: PartitionId, key: &[u8]) -> bool {
        self.context.shared.tables.is_misrouted(partition, key)
    }

    fn tables_version(&self) -> Version {
        self.context.shared.tables.version()
    }

    fn leader(&self, partition: PartitionId) -> Option<NodeId> {
        self.context.shared.tables.leader(partition)
    }

    fn dedup(&self) -> &DedupLimits {
        &self.context.dedup
    }

    fn engine_lags(&self) -> bool {
        self.context.budget.is_overfull() && self.context.flusher.is_at_work()
    }

    fn budget(&self) -> MemtableBudget {
        self.context.budget.clone()
    }

    fn retention_limits(&self) -> RetentionLimits {
        let placements = self.context.holdings.len();
        let limits = RetentionLimits::of_node(placements).on_disk(placements, self.context.disk_bytes);
        match self.context.flusher.is_disk_full() || self.context.wal.read_only() {
            true => limits.on_full_disk(),
            false => limits,
        }
    }

    fn log_written(&self) -> u64 {
        self.context.wal.progress().bytes
    }

    fn replica(&self, identity: Identity, recovered: RecoveredState) -> Result<Replica, RecoveredError> {
        Replica::new(identity, recovered, Limits::default())
    }

    fn engine(&self) -> &dyn Engine {
        &*self.context.engine
    }

    fn row(&self, kept: &mut KeptRows, placement: PlacementId, key: &[u8]) -> Result<Option<Bytes>, ViewError> {
        let mut cache = self.cache.borrow_mut();
        if let Some(found) = cache.get(kept, key) {
            return Ok(found);
        }
        let found = self.context.engine.get(placement, key)?;
        cache.put(kept, Bytes::copy_from_slice(key), found.as_deref());
        Ok(found)
    }

    fn forget_rows(&self, kept: &mut KeptRows) {
        kept.forget();
    }

    fn read_log(&self, placement: PlacementId, from: Seq, upto: Seq, bytes_max: usize) -> Vec<Entry> {
        let records = match self.context.wal.read(store::stream(placement), from.get(), bytes_max) {
            Ok(records) => records,
            Err(error) => {
                tracing::debug!(%placement, %from, %error, "log entries are no longer there");
                return Vec::new();
            }
        };
        let wanted = records.into_iter().take_while(|record| record.seq <= upto.get());
        // A malformed record ends the list: the reader then falls back to a copy.
        wanted.map_while(|record| store::read_entry(record.seq, &record.data).ok()).collect()
    }

    fn room(&self) -> Result<(), ErrorKind> {
        match self.journal.is_full() || self.context.budget.is_full() {
            true => Err(ErrorKind::Overloaded),
            false => Ok(()),
        }
    }

    fn logged_bytes(&self, entry: &Entry) -> u64 {
        entry.bytes.len() as u64 + RECORD_OVERHEAD_BYTES
    }

    fn log(&mut self, placement: PlacementId, write: LogWrite) {
        self.journal.write(placement, write);
    }

    fn log_token(&mut self, placement: PlacementId, token: u64) {
        self.journal.completes.tokens.push((placement, token));
    }

    fn log_trim(&mut self, placement: PlacementId, upto: Seq) {
        self.journal.completes.trims.push((placement, upto));
    }

    fn trim(&mut self, placement: PlacementId, upto: Seq) {
        self.context.wal.trim(store::stream(placement), upto.get());
        self.context.shared.metrics.trims.add(1);
    }

    fn delete(&mut self, partition: PartitionId, placement: PlacementId) {
        self.journal.delete(partition, placement);
    }

    fn send(&mut self, message: Message) {
        self.outgoing.entry(message.to.node).or_default().push(&message);
    }

    fn answer(&mut self, _: CopyLocation, to: ReplyTo, log_time: Millis, outcome: Outcome) {
        self.replies.add(to, log_time, outcome);
    }

    fn refuse(&mut self, partition: PartitionId, to: ReplyTo, log_time: Millis, refusal: Refusal) {
        let detail = self.words(partition, refusal);
        self.replies.add(to, log_time, Err(detail));
    }

    fn forward(&mut self, to: NodeId, request: OpRequest) {
        self.context.forwards.forward(to, request);
    }

    fn report(&mut self, report: Report) -> bool {
        let taken = self.context.shared.reports.put(report);
        if !taken {
            tracing::debug!("too many reports wait; what matters is repeated");
        }
        taken
    }

    fn clear(&mut self, placement: PlacementId) -> Option<u64> {
        let clear = self.context.flusher.clear(placement);
        clear
            .inspect_err(
                |error| tracing::warn!(%placement, %error, "the placement's data is cleared at the next start"),
            )
            .ok()
    }

    fn start_copy(&mut self, job: CopyJob) {
        self.context.copies.start(job);
    }

    fn stop_copy(&mut self, placement: PlacementId) {
        self.context.copies.stop(placement);
    }

    fn form(&mut self, job: FormJob) -> bool {
        let taken = self.context.flusher.form(job);
        taken.inspect_err(|error| tracing::debug!(%error, "a replica is not formed")).is_ok()
    }

    fn end_form(&mut self, from: PlacementId, to: PlacementId, end: Position) {
        if let Err(error) = self.context.flusher.end_form(from, to, end) {
            tracing::debug!(%error, "nothing more is formed");
        }
    }

    fn stop_form(&mut self, placement: PlacementId) {
        // A stopped flusher forms nothing.
        let _ = self.context.flusher.stop_form(placement);
    }

    fn adopt(&mut self, formed: FormedCopy) {
        self.context.shards.of(formed.partition).complete(ShardMessage::Adopt(formed));
    }

    fn limits_any(&self) -> bool {
        self.context.shared.tables.limits_any()
    }

    fn range_limits(&self, table: TableId) -> RangeLimits {
        self.context.shared.tables.range_limits(table)
    }

    fn stored_bytes(&self, placement: PlacementId) -> Option<u64> {
        self.context.shared.load.counted(placement)
    }

    fn find_split_point(&mut self, search: SplitSearch) -> bool {
        self.context.split_searches.begin(search)
    }

    fn holds(&self, copy: PlacementId) -> Option<PartitionId> {
        self.context.holdings.whole_copy_of(copy)
    }

    fn ask_right(&mut self, ask: YieldAsk) {
        self.context.copies.ask_right(ask);
    }

    fn offer(&mut self, space: PlacementId, page: CopiedPage) -> OfferResult<CopiedPage> {
        match self.context.flusher.apply(space, Seq::ZERO, FlushRows::Copied(page)) {
            Ok(()) => OfferResult::Taken,
            // A copy into a space being cleared restarts when that is done.
            Err((FlusherError::Full { .. } | FlusherError::Clearing { .. }, FlushRows::Copied(page))) => {
                OfferResult::Wait(page)
            }
            Err((error, _)) => {
                tracing::debug!(%error, "rows of a replica are dropped");
                OfferResult::Taken
            }
        }
    }

    fn fail(&mut self, at: CopyLocation, error: &ViewError) {
        if self.context.flusher.note_read_failure(error) {
            tracing::debug!(partition = %at.partition, placement = %at.placement, %error, "the engine cannot be read, as it met a full disk");
            return;
        }
        tracing::error!(partition = %at.partition, placement = %at.placement, %error, "the engine cannot be read; the node stops and its data is left as it is");
        self.context.shared.lifecycle.fail();
    }

    fn ticked(&mut self, local: &mut LocalCopy<Self>, now: Millis) {
        hand_to_flusher(self, local, now);
    }

    fn observe(&mut self, at: CopyLocation, observed: CopyEvent<'_>) {
        let CopyLocation { partition, placement, epoch, commit } = at;
        let shared = &self.context.shared;
        let metrics = &shared.metrics;
        match observed {
            CopyEvent::Committed { after } => metrics.commits.add(commit.get().saturating_sub(after.get())),
            CopyEvent::Held => metrics.replies_held.add(1),
            CopyEvent::Unheld(answers) => metrics.replies_held.subtract(answers as u64),
            CopyEvent::Forgotten(clients) => metrics.clients_forgotten.add(clients as u64),
            CopyEvent::Expired(rows) => metrics.rows_expired.add(rows as u64),
            CopyEvent::Serving => {
                metrics.partitions_led.add(1);
                tracing::info!(%partition, %placement, %epoch, "serving");
            }
            CopyEvent::Resting => {
                metrics.partitions_led.subtract(1);
                tracing::info!(%partition, %placement, %epoch, "no longer serving");
            }
            CopyEvent::SetAside => {
                tracing::warn!(%partition, %placement, "set aside: nothing is served from this placement, and its data is kept");
            }
            CopyEvent::Deleted => {
                tracing::info!(%partition, %placement, "unloaded");
                shared.load.forget(placement);
                self.context.holdings.remove(placement);
            }
            CopyEvent::Damaged(why) => {
                tracing::error!(%partition, %placement, why, "placement damaged");
                metrics.alarms.add(1);
                self.context.holdings.set(placement, partition, HeldState::Damaged);
            }
            CopyEvent::Unreadable(why) => {
                tracing::error!(%partition, %placement, why, "this version does not read a replica; it is kept and not served");
                metrics.alarms.add(1);
                shared.load.unreadable(placement);
            }
            CopyEvent::Unread => {
                tracing::error!(%partition, %placement, "the engine refuses to read a replica; it is kept, and served again once the engine is opened again");
                metrics.alarms.add(1);
                // A copy that was just formed is not listed yet.
                self.context.holdings.note_formed(placement, partition);
            }
            CopyEvent::Pulling(leader) => {
                tracing::info!(%partition, %placement, leader = %leader.node, "pulling a copy");
            }
            CopyEvent::PullingAgain => metrics.copies_restarted.add(1),
            CopyEvent::Copied(seq) => {
                tracing::info!(%partition, %placement, %seq, "copied; following the log");
                shared.load.copy(placement, None);
            }
            CopyEvent::CopyStopped => shared.load.copy(placement, None),
            CopyEvent::LogNotKept(copy) => {
                metrics.logs_not_kept.add(1);
                tracing::warn!(%partition, %placement, absent = %copy, "the log is no longer kept for a copy that is away; it is loaded again when it returns");
            }
            CopyEvent::EntryRefused(error) => {
                metrics.alarms.add(1);
                tracing::error!(%partition, %placement, %error, "an entry was not written: no replica could read it");
            }
            CopyEvent::Alarm(alarm) => {
                metrics.alarms.add(1);
                tracing::error!(%partition, %placement, %alarm, "alarm");
            }
            CopyEvent::Absorbing(bytes) => metrics.copy_bytes_in.add(bytes),
            CopyEvent::Formed => {
                tracing::info!(%partition, %placement, upto = %commit, "formed from the replica of the partition that is split");
                self.context.holdings.note_formed(placement, partition);
                self.context.shards.send_all(|| ShardMessage::Formed);
            }
            CopyEvent::Unsealed { sealed_ms } => {
                metrics.seals_over.add(1);
                metrics.sealed.add(Duration::from_millis(sealed_ms));
            }
            CopyEvent::Opened { .. }
            | CopyEvent::Read { .. }
            | CopyEvent::NotConfirmed
            | CopyEvent::Evaluated { .. }
            | CopyEvent::Parked
            | CopyEvent::Abandoned(_)
            | CopyEvent::Cut
            | CopyEvent::Emptied
            | CopyEvent::Unloading => {}
        }
    }
}

/// Returns the keep-alive interval of followers: the replication time-out, or longer with so many copies here that
/// asking after each of them every second would be costly.
fn keep_alive_ms(replication_timeout_ms: u64, placements: usize) -> u64 {
    const PLACEMENTS_PER_TIMEOUT: u64 = 1_024;
    let placements = u64::try_from(placements).unwrap_or(u64::MAX);
    replication_timeout_ms.saturating_mul(1 + placements / PLACEMENTS_PER_TIMEOUT)
}
