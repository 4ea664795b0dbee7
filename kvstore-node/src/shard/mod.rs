//! Shards: each a task with its own OS thread that owns some partitions and everything about them, so that nothing in
//! it needs a lock. `kvstore-node/host` decides what to do with partitions; a shard brings time, messages and results
//! of the disk, and carries out the outputs ([`shell`]).
//!
//! A turn drains the inbox, evaluates operations within its time, steps replicas, and emits one batch for the log, one
//! batch of messages per peer, and one batch of answers per connection. A turn never awaits, and its engine reads may
//! block. Operations that do not fit continue in the next turn, client by client ([`backlog`]). Connections of clients
//! and peers are served on the same threads: what they read reaches the shard, and its answers reach them, without
//! waking another thread (ADR 0018).

mod backlog;
mod budget;
mod cache;
mod context;
mod flush;
pub(crate) mod inbox;
mod journal;
mod message;
mod operations;
mod ping;
mod row_run;
mod runtime;
mod shards;
mod shell;
mod snapshot;
mod start;
mod words;

pub(crate) use context::Context;
pub(crate) use message::{
    CopyOffer, OpRequest, ReplicaAnswer, ReplicaRead, ShardMessage, SnapshotAsk, SnapshotOffer, StaleRead,
};
pub(crate) use ping::PingPart;
pub(crate) use row_run::RowRun;
pub(crate) use runtime::ShardRuntime;
pub(crate) use shards::Shards;
pub(crate) use start::start;

use crate::engine::PageLimit;
use crate::node::state::NodeState;
use crate::server::health::Pulse;
use crate::shard::inbox::Inbox;
use archon_host::{CopyAsk, Partitions};
use archon_replica::Input;
use archon_telemetry::Histogram;
use archon_types::{ErrorDetail, Millis};
use backlog::Backlog;
use budget::Budget;
use shell::ShardShell;
use snapshot::WantedSnapshot;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Interval of replica ticks.
const TICK: Duration = Duration::from_millis(20);
/// Entries that only drop client records, proposed per tick for all partitions of a shard.
const FORGETTINGS_MAX: usize = 4;

struct Shard {
    inbox: Arc<Inbox<ShardMessage>>,
    pulse: Arc<Pulse>,
    context: Arc<Context>,
    partitions: Partitions<ShardShell>,
    /// Operations that continue in the next turn.
    backlog: Backlog<OpRequest>,
    turn_seconds: Arc<Histogram>,
    /// Local clock at the beginning of the turn.
    now: Millis,
    stopping: bool,
    /// Snapshots that begin once the engine has their rows.
    snapshots_wanted: Vec<WantedSnapshot>,
}

/// Notifies the node when a shard's thread ends, also by a panic: without it nothing may be answered.
struct EndGuard {
    pulse: Arc<Pulse>,
    shared: Arc<NodeState>,
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.pulse.end();
        if std::thread::panicking() {
            tracing::error!("a shard has panicked; the node stops");
            self.shared.lifecycle.fail();
        }
    }
}

impl Shard {
    async fn run(mut self) {
        let _guard = EndGuard { pulse: Arc::clone(&self.pulse), shared: Arc::clone(&self.context.shared) };
        let mut turn = Vec::new();
        let mut next_tick = std::pin::pin!(sleep_until(Instant::now()));
        loop {
            if self.backlog.is_empty() && self.partitions.clients_to_read() == 0 {
                tokio::select! {
                    biased;
                    () = self.inbox.filled() => {}
                    () = next_tick.as_mut() => {}
                }
            }
            self.inbox.drain(&mut turn);
            let begun = std::time::Instant::now();
            let mut budget = Budget::begin(begun);
            self.now = self.context.shared.clock.now();
            self.partitions.shell_mut().journal.begin_turn(begun);
            self.partitions.begin(self.now);
            self.partitions.shell_mut().grants = self.context.shared.membership.grants();
            self.pulse.begin(self.now);
            let has_work = !turn.is_empty() || !self.backlog.is_empty();
            if has_work {
                self.context.shared.metrics.turns.add(1);
            }
            for message in turn.drain(..) {
                self.take(message, &mut budget);
            }
            self.go_on(&mut budget);
            self.read_clients(&mut budget);
            if next_tick.deadline() <= Instant::now() {
                next_tick.as_mut().reset(Instant::now() + TICK);
                self.tick(&mut budget);
            }
            self.settle();
            let now = std::time::Instant::now();
            let sent = self.partitions.shell_mut().hand_over(now);
            if has_work {
                self.turn_seconds.observe(now.saturating_duration_since(begun));
            }
            if self.partitions.shell().journal.has_gathered() {
                if sent {
                    // Followers should write while this node does, so their messages are sent first.
                    tokio::task::yield_now().await;
                }
                let here = self.is_idle();
                if self.partitions.shell_mut().journal.submit(here) {
                    self.context.shared.metrics.appends.add(1);
                }
            }
            if self.stopping && self.partitions.shell().journal.is_idle() && self.is_idle() {
                return;
            }
            if !self.is_idle() {
                // Connections send the answers of this turn and read new messages: the next turn takes them together.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Returns whether no work waits.
    fn is_idle(&self) -> bool {
        self.backlog.is_empty() && self.partitions.clients_to_read() == 0 && self.inbox.is_empty()
    }

    fn take(&mut self, message: ShardMessage, budget: &mut Budget) {
        let partitions = &mut self.partitions;
        match message {
            ShardMessage::Operations(operations) => self.arrived(operations, budget),
            ShardMessage::Ping(part) => part.answer(),
            ShardMessage::ReadStale(read) => self.read_stale(read, budget),
            ShardMessage::ReadReplica(read) => self.read_replica(read, budget),
            ShardMessage::Replication(messages) => {
                for message in messages {
                    partitions.step(message.to.placement, Input::Message(message));
                }
            }
            ShardMessage::Duties { incarnation, actions, done } => {
                // The push may have been abandoned.
                let _ = done.send(partitions.duties(incarnation, actions));
            }
            ShardMessage::Logged { batch, result } => self.logged(batch, result),
            ShardMessage::Flushed(event) => self.flushed(event),
            ShardMessage::CopyAsked { ask, answer } => {
                // The loader may have given up.
                let _ = answer.send(self.copy_asked(ask));
            }
            ShardMessage::CopyRows(page) => partitions.copy_page(page),
            ShardMessage::CopyDone { placement, attempt, at, version } => {
                partitions.copy_done(placement, attempt, at, version);
            }
            ShardMessage::CopyAgain { placement, attempt } => partitions.copy_again(placement, attempt),
            ShardMessage::AbsorbPage { placement, ask, page } => partitions.absorb_page(placement, ask, page),
            ShardMessage::YieldAsked { right, attempt, after, answer } => {
                // The leader may have given up.
                if !answer.is_closed() {
                    let limit = PageLimit::PAGE;
                    let _ = answer.send(partitions.yielded(right, attempt, after.as_ref(), limit));
                    budget.spend(true, std::time::Instant::now);
                }
            }
            ShardMessage::Renew { life, done } => {
                partitions.renew(life);
                let _ = done.send(());
            }
            ShardMessage::Withdrawn(leaderships) => partitions.withdrawn(leaderships),
            ShardMessage::Adopt(formed) => {
                // The copy may have been deleted meanwhile.
                if !self.context.flusher.was_cleared(formed.placement) {
                    partitions.adopt(formed);
                }
            }
            // Every turn checks its consequences.
            ShardMessage::Formed => {}
            ShardMessage::SplitPoint { search, found, took_ms } => {
                partitions.split_point(&search, found.as_ref(), took_ms);
            }
            ShardMessage::MiddleAsked { partition, answer } => {
                let middle = partitions.middle(partition);
                let _ = answer.send(middle.map_err(|refusal| partitions.shell().words(partition, refusal)));
            }
            ShardMessage::Peers => partitions.peers_changed(),
            ShardMessage::Release => partitions.release(),
            ShardMessage::Leading(answer) => {
                let _ = answer.send(partitions.leading());
            }
            ShardMessage::Counted(answer) => {
                let _ = answer.send(partitions.counted());
            }
            ShardMessage::Gathered { placement, from, answer } => {
                let memtable = partitions.memtable(placement);
                let _ =
                    answer.send(memtable.map(|memtable| RowRun::from_key(memtable, from.as_ref().map(|key| &key[..]))));
            }
            ShardMessage::Committed { placement, answer } => {
                let copy = partitions.copies().get(&placement);
                let _ = answer.send(copy.map(|local| local.replica.commit()));
            }
            ShardMessage::SnapshotAsked(ask) => self.snapshot_asked(ask),
            ShardMessage::LastGathered { placement, keys, answer } => {
                let last = partitions.memtable(placement).and_then(|memtable| memtable.last_value(&keys));
                let _ = answer.send(last);
            }
            ShardMessage::CountBegun { placement, known, answer } => {
                if let Some(memtable) = partitions.memtable_mut(placement) {
                    let _ = answer.send(memtable.begin_count(known));
                }
            }
            ShardMessage::CountReached { placement, key } => {
                if let Some(memtable) = partitions.memtable_mut(placement) {
                    memtable.count_reached(key);
                }
            }
            ShardMessage::CountEnded { placement, answer } => {
                let memtable = partitions.memtable_mut(placement);
                let _ = answer.send(memtable.and_then(|memtable| Some((memtable.counted()?, memtable.grown()?))));
            }
            ShardMessage::Grown(answer) => {
                let grown = partitions.copies().iter().map(|(placement, local)| (*placement, local.memtable.grown()));
                let _ = answer.send(grown.collect());
            }
            ShardMessage::Stop => {
                self.stopping = true;
                partitions.stop();
            }
        }
    }

    fn copy_asked(&mut self, ask: CopyAsk) -> Result<CopyOffer, ErrorDetail> {
        let spoilt = CancellationToken::new();
        let start = self.partitions.copy_asked(ask, spoilt.clone().drop_guard());
        let start = start.map_err(|refusal| self.partitions.shell().copy_words(ask, refusal))?;
        Ok(CopyOffer { partition: ask.partition, start, source: ask.source, spoilt })
    }

    /// Ends the turn's inputs; operations that waited are retried in the next turn.
    fn settle(&mut self) {
        self.partitions.settle();
        // They came before all queued operations of their clients.
        while let Some(request) = self.partitions.pop_unparked() {
            self.backlog.push_first(request.client, request);
        }
    }

    fn tick(&mut self, budget: &mut Budget) {
        let shell = self.partitions.shell_mut();
        shell.journal.retry();
        shell.look_at_journal();
        shell.cache.get_mut().tell(&shell.context.shared.metrics.row_cache_bytes);
        let (disk_full, log_refused) = (shell.context.flusher.is_disk_full(), shell.journal.is_refused());
        if log_refused {
            shell.context.shared.load.log_refused(self.now);
        }
        if disk_full {
            // The engine may lack that space.
            shell.context.wal.free_space();
        }
        // A log that is only busy leads to `Overloaded`, see `room`.
        let held = self.partitions.tick(disk_full || log_refused, FORGETTINGS_MAX);
        if held > 0 {
            tracing::debug!(held, "answers wait for a lease");
        }
        if !disk_full && !log_refused {
            let mut own = Budget::of_expiry(std::time::Instant::now());
            self.partitions.expire(|| {
                let now = std::time::Instant::now();
                own.spend(true, || now);
                budget.spend(true, || now);
                !own.is_spent() || !budget.is_spent()
            });
        }
        self.look_at_snapshots();
    }

    fn logged(&mut self, batch: u64, result: Result<(), archon_wal::WalError>) {
        if result.is_err() {
            self.context.shared.metrics.append_errors.add(1);
        }
        let shell = self.partitions.shell_mut();
        let done = shell.journal.logged(batch, result);
        shell.look_at_journal();
        for done in done {
            self.partitions.durable(done);
        }
    }
}
