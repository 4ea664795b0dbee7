//! The task that runs a service's callbacks: of each partition one at a time, in the order of the decisions.

use super::callbacks::Callbacks;
use super::grant::Grant;
use super::shared::Shared;
use archon_member::{Acquired, Effect, Why};
use archon_types::PartitionId;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};

/// A callback that runs.
struct Running {
    effect: Effect,
    handle: AbortHandle,
}

/// What is done for one partition.
#[derive(Default)]
struct Work {
    running: Option<Running>,
    /// What is to be done next. Empty where nothing runs.
    waiting: VecDeque<Effect>,
}

/// The callbacks of one participant.
pub(super) struct Worker<C> {
    shared: Arc<Shared>,
    callbacks: Arc<C>,
    work: BTreeMap<PartitionId, Work>,
    /// Each that runs gives whether it went well.
    tasks: JoinSet<bool>,
    by_task: BTreeMap<Id, PartitionId>,
}

impl<C: Callbacks> Worker<C> {
    pub(super) fn new(shared: Arc<Shared>, callbacks: C) -> Self {
        let callbacks = Arc::new(callbacks);
        Self { shared, callbacks, work: BTreeMap::new(), tasks: JoinSet::new(), by_task: BTreeMap::new() }
    }

    /// Runs until the session is over, and everything that was decided until then is done.
    pub(super) async fn run(mut self, mut effects: mpsc::UnboundedReceiver<Effect>) {
        let session_over = self.shared.session_over.clone();
        loop {
            tokio::select! {
                biased;
                Some(ended) = self.tasks.join_next_with_id() => self.ended(ended),
                Some(effect) = effects.recv() => self.take(effect),
                () = session_over.cancelled() => break,
            }
        }
        while let Ok(effect) = effects.try_recv() {
            self.take(effect);
        }
        while let Some(ended) = self.tasks.join_next_with_id().await {
            self.ended(ended);
        }
    }

    fn take(&mut self, effect: Effect) {
        let (Effect::Acquire(of) | Effect::Release(of, _) | Effect::Lost(of)) = effect;
        let work = self.work.entry(of.partition).or_default();
        if matches!(effect, Effect::Lost(_)) {
            let waited = work.waiting.len();
            // What did not begin is not begun any more; if the service never heard of it, it need not hear that it is lost.
            let unheard = work.waiting.contains(&Effect::Acquire(of));
            work.waiting.retain(|waiting| acquired(waiting) != of);
            debug_assert!(waited <= work.waiting.len() + 2, "an acquisition and its release at most");
            if unheard {
                return;
            }
            if let Some(running) = work.running.as_ref().filter(|running| acquired(&running.effect) == of) {
                running.handle.abort();
            }
        }
        work.waiting.push_back(effect);
        self.proceed(of.partition);
    }

    /// Begins what is next, unless something runs.
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
            let handle = match effect {
                Effect::Lost(_) => {
                    self.shared.counters.losses.count();
                    tracing::warn!(partition = %of.partition, epoch = %of.epoch, "lost a partition");
                    callbacks.lost(of.partition, of.epoch);
                    continue;
                }
                Effect::Acquire(_) => {
                    self.shared.counters.acquisitions.count();
                    self.tasks.spawn(acquire(callbacks, grant))
                }
                Effect::Release(_, why) => self.tasks.spawn(release(callbacks, grant, why)),
            };
            self.by_task.insert(handle.id(), partition);
            if let Some(work) = self.work.get_mut(&partition) {
                work.running = Some(Running { effect, handle });
            }
            return;
        }
    }

    fn ended(&mut self, ended: Result<(Id, bool), JoinError>) {
        let (id, well, broken_off) = match ended {
            Ok((id, well)) => (id, well, false),
            Err(error) => (error.id(), false, error.is_cancelled()),
        };
        let Some(partition) = self.by_task.remove(&id) else { return };
        let running = self.work.get_mut(&partition).and_then(|work| work.running.take());
        match running.map(|running| running.effect) {
            Some(Effect::Acquire(of)) if !broken_off => {
                self.shared.decide(|decides, now| decides.acquired(of, well, now));
            }
            Some(Effect::Release(of, _)) if !broken_off => {
                if !well {
                    tracing::error!(partition = %of.partition, epoch = %of.epoch, "the release of a partition panicked");
                }
                self.shared.counters.releases.count();
                self.shared.decide(|decides, now| decides.released(of, now));
            }
            _ => {}
        }
        self.proceed(partition);
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

async fn release<C: Callbacks>(callbacks: Arc<C>, grant: Grant, why: Why) -> bool {
    let (partition, epoch) = (grant.partition(), grant.epoch());
    tracing::debug!(%partition, %epoch, ?why, "releasing a partition");
    callbacks.release(grant, why).await;
    tracing::info!(%partition, %epoch, ?why, "released a partition");
    true
}

fn acquired(effect: &Effect) -> Acquired {
    let (Effect::Acquire(of) | Effect::Release(of, _) | Effect::Lost(of)) = effect;
    *of
}
