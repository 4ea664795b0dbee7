//! Shards: each a task with an OS thread of its own, that owns some partitions and everything about them, so that nothing
//! in it needs a lock.
//!
//! A turn drains the inbox, evaluates operations for as long as it may, steps replicas, and emits one batch for the log,
//! one batch of messages per peer, and one batch of answers per connection. A turn never awaits, and its engine reads may
//! block. Operations that it has no time for go on in the next, client by client ([`backlog`]). The connections
//! of clients and peers are served on the same threads: what they read reaches the shard, and what it answers reaches them,
//! without waking another thread (ADR 0018).

mod backlog;
mod budget;
mod cache;
mod carry;
mod copying;
mod duty;
mod gathered;
mod journal;
mod message;
mod operate;
mod park;
mod pull;
mod remember;
mod runtime;
mod slot;

pub(crate) use gathered::Gathered;
pub(crate) use message::{CopyAsk, CopyChunk, CopyStart, OpRequest, ShardMessage};
pub(crate) use runtime::ShardRuntime;
pub(crate) use slot::{ENGINE_AHEAD_UNKNOWN, Found};

use crate::copy::CopyRunner;
use crate::engine::Engine;
use crate::flusher::FlusherHandle;
use crate::grants::Grants;
use crate::health::Pulse;
use crate::holdings::Holdings;
use crate::inbox::{INBOX_BYTES_MAX, INBOX_MESSAGES_MAX, Inbox};
use crate::peer::Peers;
use crate::reply::Replies;
use crate::shared::Shared;
use crate::wire::PartPacker;
use archon_kv::{DedupLimits, Growth, RecentBudget};
use archon_replica::{Input, Output};
use archon_types::{Epoch, Incarnation, Millis, NodeId, PartitionId, PlacementId};
use archon_wal::Wal;
use backlog::Backlog;
use budget::Budget;
use journal::Journal;
use slot::Slot;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

/// How often replicas are told that time passes.
const TICK: Duration = Duration::from_millis(20);
/// Entries that only forget clients which one tick proposes at most, for all partitions of a shard.
const FORGETTINGS_MAX: usize = 4;

/// What all shards use.
pub(crate) struct Context {
    pub(crate) shared: Arc<Shared>,
    pub(crate) wal: Wal,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) flusher: FlusherHandle,
    pub(crate) holdings: Arc<Holdings>,
    pub(crate) peers: Arc<Peers>,
    pub(crate) copies: Arc<CopyRunner>,
    pub(crate) budget: RecentBudget,
    pub(crate) dedup: DedupLimits,
}

/// The ways into all shards.
#[derive(Clone)]
pub(crate) struct Shards {
    inboxes: Arc<[Arc<Inbox<ShardMessage>>]>,
}

impl Shards {
    /// Inboxes for `count` shards; [`Shards::start`] gives them threads.
    pub(crate) fn new(count: usize) -> Self {
        Self { inboxes: (0..count.max(1)).map(|_| Arc::new(Inbox::new(INBOX_MESSAGES_MAX, INBOX_BYTES_MAX))).collect() }
    }

    /// The inbox of the shard that owns `partition`.
    pub(crate) fn of(&self, partition: PartitionId) -> &Arc<Inbox<ShardMessage>> {
        &self.inboxes[self.number_of(partition)]
    }

    /// The number of the shard that owns `partition`.
    pub(crate) fn number_of(&self, partition: PartitionId) -> usize {
        // Neighbouring partitions go to different shards; tables are spread against each other.
        let mixed =
            partition.table.get().wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17) ^ u64::from(partition.index);
        usize::try_from(mixed % self.inboxes.len() as u64).unwrap_or(0)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.inboxes.len()
    }

    /// The inbox of shard `number`.
    pub(crate) fn inbox(&self, number: usize) -> Option<&Arc<Inbox<ShardMessage>>> {
        self.inboxes.get(number)
    }

    /// Queues one message for every shard.
    pub(crate) fn tell_all(&self, mut message: impl FnMut() -> ShardMessage) {
        for inbox in self.inboxes.iter() {
            inbox.complete(message());
        }
    }

    /// Tells every shard of a new registration; returns once all have taken it in.
    pub(crate) async fn renew(&self, incarnation: Incarnation) {
        let mut waiting = Vec::new();
        self.tell_all(|| {
            let (done, wait) = oneshot::channel();
            waiting.push(wait);
            ShardMessage::Renew { incarnation, done }
        });
        for wait in waiting {
            // A shard that is gone leads nothing.
            let _ = wait.await;
        }
    }

    /// Has leaderships given up that no lease covers any more.
    pub(crate) fn withdraw(&self, leaderships: impl IntoIterator<Item = (PartitionId, Epoch)>) {
        let mut per_shard: BTreeMap<usize, Vec<(PartitionId, Epoch)>> = BTreeMap::new();
        for (partition, epoch) in leaderships {
            per_shard.entry(self.number_of(partition)).or_default().push((partition, epoch));
        }
        for (number, leaderships) in per_shard {
            self.inboxes[number].complete(ShardMessage::Withdrawn(leaderships));
        }
    }

    /// How many leaderships the shards have not yet given up.
    pub(crate) async fn leading(&self) -> usize {
        self.sum(ShardMessage::Leading).await
    }

    /// How many copies here other nodes' leaders wait for, although they could do without.
    pub(crate) async fn counted(&self) -> usize {
        self.sum(ShardMessage::Counted).await
    }

    /// How much each placement has grown since the census counted it.
    pub(crate) async fn grown(&self) -> Vec<(PlacementId, Growth)> {
        let mut all = Vec::new();
        for inbox in self.inboxes.iter() {
            let (answer, wait) = oneshot::channel();
            // A shard that has ended has nothing that grows.
            if inbox.push(ShardMessage::Grown(answer)).await.is_ok() {
                all.extend(wait.await.unwrap_or_default());
            }
        }
        all
    }

    async fn sum(&self, ask: impl Fn(oneshot::Sender<usize>) -> ShardMessage) -> usize {
        let mut waiting = Vec::new();
        self.tell_all(|| {
            let (answer, wait) = oneshot::channel();
            waiting.push(wait);
            ask(answer)
        });
        let mut sum = 0;
        for wait in waiting {
            sum += wait.await.unwrap_or(0);
        }
        sum
    }

    /// Starts the threads, one for each of `runtimes`, of which there is one per shard. `found` are the placements that
    /// recovery found.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(crate) fn start(
        &self,
        context: &Arc<Context>,
        pulses: &[Arc<Pulse>],
        found: BTreeMap<PlacementId, Found>,
        runtimes: Vec<ShardRuntime>,
    ) -> std::io::Result<Vec<JoinHandle<()>>> {
        let mut dormant: Vec<BTreeMap<PlacementId, Found>> = (0..self.count()).map(|_| BTreeMap::new()).collect();
        for (placement, found) in found {
            let number = self.number_of(found.partition);
            dormant[number].insert(placement, found);
        }
        let mut threads = Vec::new();
        for ((number, dormant), runtime) in dormant.into_iter().enumerate().zip(runtimes) {
            let inbox = Arc::clone(&self.inboxes[number]);
            let notify: journal::Notify = Arc::new({
                let inbox = Arc::clone(&inbox);
                move |batch, result| inbox.complete(ShardMessage::Logged { batch, result })
            });
            let shard = Shard {
                inbox,
                pulse: Arc::clone(&pulses[number]),
                dormant,
                slots: BTreeMap::new(),
                active: BTreeMap::new(),
                backlog: Backlog::default(),
                unloading: BTreeMap::new(),
                stopping: false,
                env: Env {
                    grants: context.shared.grants(),
                    now: context.shared.clock.now(),
                    journal: Journal::new(context.wal.clone(), u32::try_from(number).unwrap_or(u32::MAX), notify),
                    context: Arc::clone(context),
                    replies: Replies::default(),
                    outgoing: BTreeMap::new(),
                    touched: Vec::new(),
                    spare_outputs: Vec::new(),
                    followups: VecDeque::new(),
                    damaged: Vec::new(),
                    unparked: Vec::new(),
                    reading: VecDeque::new(),
                    releasing: false,
                },
            };
            let thread =
                std::thread::Builder::new().name(format!("shard-{number}")).spawn(move || runtime.run(shard.run()))?;
            threads.push(thread);
        }
        Ok(threads)
    }
}

/// What a shard's parts share within its thread.
struct Env {
    context: Arc<Context>,
    grants: Arc<Grants>,
    /// Local clock at the beginning of the turn.
    now: Millis,
    journal: Journal,
    replies: Replies,
    /// What goes to other nodes at the end of the turn.
    outgoing: BTreeMap<NodeId, PartPacker>,
    /// Replicas stepped since their last flush.
    touched: Vec<PlacementId>,
    /// Empty lists for what replicas want.
    spare_outputs: Vec<Vec<Output>>,
    /// What outputs led to.
    followups: VecDeque<(PlacementId, Input)>,
    /// Placements found damaged in this turn, with why.
    damaged: Vec<(PlacementId, String)>,
    /// Operations that waited for a leadership or its confirmation, in their order, to be looked at in the next turn.
    unparked: Vec<OpRequest>,
    /// Placements that were taken over, and have not read all clients that they remember.
    reading: VecDeque<PlacementId>,
    /// The node is stopping: every leadership is to be given up.
    releasing: bool,
}

struct Shard {
    inbox: Arc<Inbox<ShardMessage>>,
    pulse: Arc<Pulse>,
    /// Found at start-up, not named by a duty yet.
    dormant: BTreeMap<PlacementId, Found>,
    slots: BTreeMap<PlacementId, Slot>,
    /// The placement that answers for a partition.
    active: BTreeMap<PartitionId, PlacementId>,
    /// Operations that go on in the next turn.
    backlog: Backlog<OpRequest>,
    /// Being deleted, by the clearing whose end is the end of them.
    unloading: BTreeMap<PlacementId, u64>,
    stopping: bool,
    env: Env,
}

/// Tells the node when a shard's thread ends, also by a panic: without it nothing may be answered any more.
struct EndGuard {
    pulse: Arc<Pulse>,
    shared: Arc<Shared>,
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.pulse.end();
        if std::thread::panicking() {
            tracing::error!("a shard has panicked; the node stops");
            self.shared.fail();
        }
    }
}

impl Shard {
    async fn run(mut self) {
        let _guard = EndGuard { pulse: Arc::clone(&self.pulse), shared: Arc::clone(&self.env.context.shared) };
        let mut turn = Vec::new();
        let mut next_tick = std::pin::pin!(sleep_until(Instant::now()));
        loop {
            if self.backlog.is_empty() && self.env.reading.is_empty() {
                tokio::select! {
                    biased;
                    () = self.inbox.filled() => {}
                    () = next_tick.as_mut() => {}
                }
            }
            self.inbox.drain(&mut turn);
            let mut budget = Budget::begin(std::time::Instant::now());
            self.env.now = self.env.context.shared.clock.now();
            self.env.grants = self.env.context.shared.grants();
            self.pulse.begin(self.env.now);
            if !turn.is_empty() || !self.backlog.is_empty() {
                self.env.context.shared.metrics.turns.add(1);
            }
            for message in turn.drain(..) {
                self.take(message, &mut budget);
            }
            self.go_on(&mut budget);
            self.read_clients(&mut budget);
            if next_tick.deadline() <= Instant::now() {
                next_tick.as_mut().reset(Instant::now() + TICK);
                self.tick();
            }
            self.settle();
            let sent = self.send();
            if self.env.journal.has_gathered() {
                if sent {
                    // Followers are to write while this node does, so what they are told leaves first.
                    tokio::task::yield_now().await;
                }
                let here = self.is_idle();
                if self.env.journal.submit(here) {
                    self.env.context.shared.metrics.appends.add(1);
                }
            }
            if self.stopping && self.env.journal.is_idle() && self.is_idle() {
                return;
            }
            if !self.is_idle() {
                // Connections send what this turn gave them and read what came meanwhile: the next one takes it together.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Whether nothing waits to be taken up.
    fn is_idle(&self) -> bool {
        self.backlog.is_empty() && self.env.reading.is_empty() && self.inbox.is_empty()
    }

    fn take(&mut self, message: ShardMessage, budget: &mut Budget) {
        match message {
            ShardMessage::Operations(operations) => self.arrived(operations, budget),
            ShardMessage::Replication(messages) => {
                for message in messages {
                    self.step(message.to.placement, Input::Message(message));
                }
            }
            ShardMessage::Duties { incarnation, actions, done } => {
                // Nobody listens if the push was given up.
                let _ = done.send(self.duties(incarnation, actions));
            }
            ShardMessage::Logged { batch, result } => self.logged(batch, result),
            ShardMessage::Flushed { partition, event } => self.flushed(partition, event),
            ShardMessage::CopyAsked { ask, answer } => {
                // A loader that gave up does not want the answer.
                let _ = answer.send(self.copy_asked(ask));
            }
            ShardMessage::CopyRows(chunk) => self.copy_rows(chunk),
            ShardMessage::CopyDone { placement, attempt, at, version } => {
                self.copy_done(placement, attempt, at, version);
            }
            ShardMessage::CopyAgain { placement, attempt } => self.copy_again(placement, attempt),
            ShardMessage::Renew { incarnation, done } => {
                self.renew(incarnation);
                let _ = done.send(());
            }
            ShardMessage::Withdrawn(leaderships) => self.withdrawn(leaderships),
            ShardMessage::Peers => self.peers_changed(),
            ShardMessage::Release => self.release(),
            ShardMessage::Leading(answer) => {
                let leading = self.slots.values().filter(|slot| slot.serving).count();
                let _ = answer.send(leading);
            }
            ShardMessage::Counted(answer) => {
                let counted = self.slots.values().filter(|slot| !slot.aside && slot.copy().is_spare()).count();
                let _ = answer.send(counted);
            }
            ShardMessage::Gathered { placement, from, answer } => {
                let _ = answer.send(self.gathered(placement, from.as_ref().map(|key| &key[..])));
            }
            ShardMessage::CountReached { placement, key } => {
                if let Some(recent) = self.window(placement) {
                    recent.count_reached(key);
                }
            }
            ShardMessage::CountEnded { placement, answer } => {
                let grown = self.window(placement).and_then(|recent| Some((recent.counted()?, recent.grown())));
                let _ = answer.send(grown);
            }
            ShardMessage::Grown(answer) => {
                let _ = answer.send(self.grown());
            }
            ShardMessage::Stop => self.stop(),
        }
    }

    /// Gives a replica an input and carries out what follows.
    fn step(&mut self, placement: PlacementId, input: Input) {
        if let Some(slot) = self.slots.get_mut(&placement) {
            self.env.step(slot, input);
        }
    }

    /// Flushes every replica that was stepped, until nothing more follows.
    fn settle(&mut self) {
        loop {
            while let Some((placement, input)) = self.env.followups.pop_front() {
                self.step(placement, input);
            }
            // They came before everything that waits of their clients.
            while let Some(request) = self.env.unparked.pop() {
                self.backlog.push_first(request.client, request);
            }
            if self.env.touched.is_empty() {
                break;
            }
            for placement in std::mem::take(&mut self.env.touched) {
                if let Some(slot) = self.slots.get_mut(&placement) {
                    slot.touched = false;
                    let mut out = self.env.outputs();
                    slot.replica.flush(self.env.now, &mut out);
                    slot.end_spoilt_copies();
                    self.env.carry_out(slot, out);
                }
            }
        }
        for (placement, why) in std::mem::take(&mut self.env.damaged) {
            self.damage(placement, why);
        }
    }

    /// Gives messages and answers to their connections. Returns whether there were any.
    fn send(&mut self) -> bool {
        let env = &mut self.env;
        let mut sent = false;
        for (node, packer) in &mut env.outgoing {
            let parts = packer.finish();
            if !parts.is_empty() {
                sent = true;
                env.context.peers.send(*node, parts);
            }
        }
        sent |= env.replies.has_streamed();
        env.context.shared.metrics.operations_refused.add(env.replies.send());
        sent
    }

    fn tick(&mut self) {
        self.env.journal.retry();
        self.env.look_at_journal();
        let no_room = self.env.context.flusher.is_out_of_room();
        if self.env.journal.is_refused() {
            self.env.context.shared.load.log_refused(self.env.now);
        }
        if no_room {
            // They may be what the engine lacks.
            self.env.context.wal.shed_spares();
        }
        let refused = no_room || self.env.journal.is_refused() || self.env.journal.is_full();
        let mut held = 0;
        let mut forgettings = FORGETTINGS_MAX;
        for slot in self.slots.values_mut() {
            self.env.lease(slot);
            if slot.replica.wants_ticks() {
                self.env.step(slot, Input::Tick);
            }
            if slot.serving {
                self.env.step(slot, Input::ReadOnly(refused));
                if forgettings > 0 && self.env.forget_clients(slot) {
                    forgettings -= 1;
                }
            }
            slot.learn_engine_ahead();
            self.env.hand_to_flusher(slot);
            self.env.release_held(slot);
            self.env.unpark(slot);
            held += slot.waiting.held();
        }
        if held > 0 {
            tracing::debug!(held, "answers wait for a lease");
        }
    }

    fn logged(&mut self, batch: u64, result: Result<(), archon_wal::WalError>) {
        if result.is_err() {
            self.env.context.shared.metrics.append_errors.add(1);
        }
        let done = self.env.journal.logged(batch, result);
        self.env.look_at_journal();
        for done in done {
            for (placement, token) in done.tokens {
                self.step(placement, Input::Persisted { token });
            }
            for (placement, upto) in done.trims {
                self.env.context.wal.trim(crate::store::stream(placement), upto.get());
                self.env.context.shared.metrics.trims.add(1);
                self.step(placement, Input::Trimmed { upto });
            }
            for (partition, placement) in done.deletions {
                self.deleted(partition, placement);
            }
        }
    }

    fn stop(&mut self) {
        self.stopping = true;
        for slot in self.slots.values_mut() {
            self.env.fail_waiting(slot, &crate::shared::shutting_down());
        }
    }
}

impl Env {
    /// A log that refuses a batch for good has a state that this node does not understand: going on would mean to promise
    /// what is not stored.
    fn look_at_journal(&mut self) {
        if let Some(error) = self.journal.take_failure() {
            tracing::error!(%error, "the write-ahead log refuses what this node wrote; the node stops and recovers from what is stored");
            self.context.shared.fail();
        }
    }

    fn step(&mut self, slot: &mut Slot, input: Input) {
        let mut out = self.outputs();
        slot.replica.step(self.now, input, &mut out);
        slot.end_spoilt_copies();
        self.touch(slot);
        self.carry_out(slot, out);
    }
}
