//! Task that runs a service's callbacks: one at a time per partition, in the order of the decisions.

use super::callbacks::Callbacks;
use super::grant::Grant;
use super::state::ParticipantState;
use crate::measure::{Callback, CallbackEnd, CallbackKind};
use archon_member::{Acquisition, Effect, ReleaseCause};
use archon_types::PartitionId;
use std::collections::{BTreeMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};

/// Maximum number of ended callbacks reported in one decision.
const TOLD_AT_ONCE: usize = 1_024;

/// A running callback.
struct RunningCallback {
    effect: Effect,
    handle: AbortHandle,
    timed: Callback,
}

/// Pending work for one partition.
#[derive(Default)]
struct Work {
    running: Option<RunningCallback>,
    /// Next callbacks. Empty if none is running.
    waiting: VecDeque<Effect>,
}

/// Callbacks of one participant.
pub(super) struct CallbackRunner<C> {
    shared: Arc<ParticipantState>,
    callbacks: Arc<C>,
    work: BTreeMap<PartitionId, Work>,
    /// Each task returns whether it succeeded.
    tasks: JoinSet<bool>,
    by_task: BTreeMap<Id, PartitionId>,
}

impl<C: Callbacks> CallbackRunner<C> {
    pub(super) fn new(shared: Arc<ParticipantState>, callbacks: C) -> Self {
        let callbacks = Arc::new(callbacks);
        Self { shared, callbacks, work: BTreeMap::new(), tasks: JoinSet::new(), by_task: BTreeMap::new() }
    }

    /// Runs until the session has ended and all its decisions are executed.
    pub(super) async fn run(mut self, mut effects: mpsc::UnboundedReceiver<Effect>) {
        let shared = Arc::clone(&self.shared);
        let mut over = pin!(shared.over());
        loop {
            tokio::select! {
                biased;
                Some(first) = self.tasks.join_next_with_id() => self.ended(first),
                Some(effect) = effects.recv() => self.take(effect),
                () = &mut over => break,
            }
        }
        while let Ok(effect) = effects.try_recv() {
            self.take(effect);
        }
        while let Some(first) = self.tasks.join_next_with_id().await {
            self.ended(first);
        }
    }

    fn take(&mut self, effect: Effect) {
        let (Effect::Acquire(of) | Effect::Release(of, _) | Effect::Lost(of)) = effect;
        let work = self.work.entry(of.partition).or_default();
        if matches!(effect, Effect::Lost(_)) {
            let waited = work.waiting.len();
            // Callbacks that have not started are dropped; if the service does not know the acquisition, it need not
            // be notified of the loss.
            let unheard = work.waiting.contains(&Effect::Acquire(of));
            work.waiting.retain(|waiting| acquired(waiting) != of);
            debug_assert!(waited <= work.waiting.len() + 2, "an acquisition and its release at most");
            if unheard {
                self.shared.deliver_loss();
                return;
            }
            if let Some(running) = work.running.as_ref().filter(|running| acquired(&running.effect) == of) {
                running.handle.abort();
            }
        }
        work.waiting.push_back(effect);
        self.proceed(of.partition);
    }

    /// Starts the next callback, unless one is running.
    fn proceed(&mut self, partition: PartitionId) {
        loop {
            let Some(work) = self.work.get_mut(&partition).filter(|work| work.running.is_none()) else { return };
            let Some(effect) = work.waiting.pop_front() else {
                self.work.remove(&partition);
                return;
            };
            let of = acquired(&effect);
            let grant = Grant::new(of, Arc::clone(&self.shared));
            let callbacks = Arc::clone(&self.callbacks);
            let (handle, kind) = match effect {
                Effect::Lost(_) => {
                    self.shared.counters.losses.count();
                    self.shared.measures.lost();
                    tracing::warn!(partition = %of.partition, epoch = %of.epoch, "lost a partition");
                    callbacks.lost(of.partition, of.epoch);
                    self.shared.deliver_loss();
                    continue;
                }
                Effect::Acquire(_) => {
                    self.shared.counters.acquisitions.count();
                    (self.tasks.spawn(acquire(callbacks, grant)), CallbackKind::Acquire)
                }
                Effect::Release(_, why) => (self.tasks.spawn(release(callbacks, grant, why)), CallbackKind::Release),
            };
            self.by_task.insert(handle.id(), partition);
            if let Some(work) = self.work.get_mut(&partition) {
                work.running = Some(RunningCallback { effect, handle, timed: self.shared.measures.callback(kind) });
            }
            return;
        }
    }

    /// Handles ended callbacks in one decision: each decision is published as a whole, at a cost that grows with the
    /// number of partitions.
    fn ended(&mut self, first: Result<(Id, bool), JoinError>) {
        let mut partitions = Vec::new();
        let mut told = Vec::new();
        let mut next = Some(first);
        while let Some(ended) = next {
            let (id, well, broken_off) = match ended {
                Ok((id, well)) => (id, well, false),
                Err(error) => (error.id(), false, error.is_cancelled()),
            };
            if let Some(partition) = self.by_task.remove(&id) {
                let running = self.work.get_mut(&partition).and_then(|work| work.running.take());
                partitions.push(partition);
                if let Some(running) = &running {
                    let end = match (broken_off, well) {
                        (true, _) => CallbackEnd::Aborted,
                        (false, true) => CallbackEnd::Ok,
                        (false, false) => CallbackEnd::Failed,
                    };
                    self.shared.measures.called(&running.timed, end);
                }
                if let Some(RunningCallback { effect, .. }) = running.filter(|_| !broken_off) {
                    self.note_release(effect, well);
                    told.push((effect, well));
                }
            }
            next = if partitions.len() < TOLD_AT_ONCE { self.tasks.try_join_next_with_id() } else { None };
        }
        if !told.is_empty() {
            self.shared.decide(|decides, now| {
                for (effect, well) in told {
                    match effect {
                        Effect::Acquire(of) => decides.acquired(of, well, now),
                        Effect::Release(of, _) => decides.released(of, now),
                        Effect::Lost(_) => {}
                    }
                }
            });
        }
        partitions.into_iter().for_each(|partition| self.proceed(partition));
    }

    fn note_release(&self, effect: Effect, well: bool) {
        let Effect::Release(of, _) = effect else { return };
        self.shared.counters.releases.count();
        if !well {
            tracing::error!(partition = %of.partition, epoch = %of.epoch, "the release of a partition panicked");
        }
    }
}

async fn acquire<C: Callbacks>(callbacks: Arc<C>, grant: Grant) -> bool {
    let (partition, epoch) = (grant.partition(), grant.epoch());
    tracing::debug!(%partition, %epoch, "acquiring a partition");
    match callbacks.acquire(grant).await {
        Ok(()) => {
            tracing::info!(%partition, %epoch, "acquired a partition");
            true
        }
        Err(error) => {
            tracing::warn!(%partition, %epoch, %error, "could not acquire a partition; it is dropped");
            false
        }
    }
}

async fn release<C: Callbacks>(callbacks: Arc<C>, grant: Grant, why: ReleaseCause) -> bool {
    let (partition, epoch) = (grant.partition(), grant.epoch());
    tracing::debug!(%partition, %epoch, ?why, "releasing a partition");
    callbacks.release(grant, why).await;
    tracing::info!(%partition, %epoch, ?why, "released a partition");
    true
}

fn acquired(effect: &Effect) -> Acquisition {
    let (Effect::Acquire(of) | Effect::Release(of, _) | Effect::Lost(of)) = effect;
    *of
}
