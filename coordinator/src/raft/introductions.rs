//! Whom a coordinator believes beyond what its own log says. One that was away for long may not know who has joined since, and
//! would refuse a leader that is a stranger to it; so it asks the members that it knows. From them it also hears that it was
//! removed, which no entry may tell it any more.

use super::hello::{Asked, ask_all};
use super::machine::Replicated;
use super::membership::addresses_of;
use super::types::Raft;
use super::voter_reports::VoterReports;
use super::wire::LocalVoter;
use archon_coordinator_core::Acquaintances;
use archon_proto::v1::{Standing, hello_request};
use archon_security::Transport;
use archon_types::StorageId;
use bytes::Bytes;
use openraft::Instant as _;
use openraft::async_runtime::WatchReceiver as _;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Strangers that are asked about at once; nobody authenticates them without TLS.
const STRANGERS_MAX: usize = 16;
/// Pause between two rounds of questions about strangers.
const ROUND_INTERVAL: Duration = Duration::from_millis(200);
/// How often it is asked whether a recovery has begun without this coordinator.
const GENERATION_INTERVAL: Duration = Duration::from_secs(5);
/// How long nobody leads this coordinator before it asks whether it is a member still.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// What members said of others. Clones share it.
#[derive(Clone)]
pub(crate) struct Introductions(Arc<Inner>);

struct Inner {
    /// Coordinators that wanted something and are unknown, with the directories that they named.
    strangers: Mutex<BTreeMap<u64, Uuid>>,
    /// Those that a member vouches for.
    vouched: Mutex<BTreeMap<u64, StorageId>>,
    wake: Notify,
    /// When a leader was heard last.
    heard: Mutex<Instant>,
    /// The same, if one was heard at all.
    leader_heard: Mutex<Option<Instant>>,
    removed: AtomicBool,
    /// A generation that has begun without this coordinator and continues its own; zero if none is known.
    later_generation: AtomicU64,
    /// The coordinators that answered last in a generation that does not continue this one's, each with its generation.
    other_generations: Mutex<BTreeMap<u64, u64>>,
}

impl Default for Introductions {
    fn default() -> Self {
        let inner = Inner {
            strangers: Mutex::default(),
            vouched: Mutex::default(),
            wake: Notify::new(),
            heard: Mutex::new(Instant::now()),
            leader_heard: Mutex::default(),
            removed: AtomicBool::new(false),
            later_generation: AtomicU64::new(0),
            other_generations: Mutex::default(),
        };
        Self(Arc::new(inner))
    }
}

impl Introductions {
    /// The members of the log, and those whom one of them vouches for, but for who was removed.
    pub(super) fn with_vouched(
        &self,
        members: BTreeMap<u64, StorageId>,
        removed: impl Fn(u64) -> bool,
    ) -> Acquaintances {
        let mut vouched = self.0.vouched.lock();
        if !members.is_empty() {
            vouched.retain(|id, _| !members.contains_key(id) && !removed(*id));
        }
        Acquaintances::new(members).with_vouched(&vouched, removed)
    }

    /// Somebody unknown wants something.
    pub(super) fn note_stranger(&self, id: u64, storage: &[u8]) {
        let Ok(storage) = Uuid::from_slice(storage) else { return };
        let mut strangers = self.0.strangers.lock();
        if strangers.len() < STRANGERS_MAX || strangers.contains_key(&id) {
            strangers.insert(id, storage);
            self.0.wake.notify_one();
        }
    }

    /// A leader was heard.
    pub(super) fn note_leader(&self) {
        let now = Instant::now();
        *self.0.heard.lock() = now;
        *self.0.leader_heard.lock() = Some(now);
    }

    /// Whether a leader was heard since this process began, and not longer ago than this. Raft itself knows one from before a restart, too.
    pub(super) fn hears_leader(&self, within: Duration) -> bool {
        self.0.leader_heard.lock().is_some_and(|at| at.elapsed() <= within)
    }

    /// Whether this coordinator is no member of the quorum any more, as the log or another member says.
    pub(crate) fn is_removed(&self) -> bool {
        self.0.removed.load(Ordering::Relaxed)
    }

    /// The generation that has begun without this coordinator, as another one says.
    pub(crate) fn later_generation(&self) -> Option<u64> {
        Some(self.0.later_generation.load(Ordering::Relaxed)).filter(|later| *later > 0)
    }

    /// The coordinators at members' addresses that live in a generation that does not continue this one's, each with its generation.
    pub(crate) fn other_generations(&self) -> BTreeMap<u64, u64> {
        self.0.other_generations.lock().clone()
    }

    fn note_other_generations(&self, others: BTreeMap<u64, u64>) {
        let mut known = self.0.other_generations.lock();
        for (id, generation) in others.iter().filter(|(id, generation)| known.get(*id) != Some(*generation)) {
            tracing::warn!(
                id,
                generation,
                "a coordinator of another history of this cluster answers at a member's address; people have to say which one is kept"
            );
        }
        *known = others;
    }

    /// Asks until `stop`; `expected`: whom it knew before its log named it.
    pub(super) async fn run(
        self,
        (raft, voter_reports): (Raft, VoterReports),
        replicated: Arc<Replicated>,
        local_voter: LocalVoter,
        expected: Arc<BTreeMap<u64, String>>,
        transport: Transport,
        stop: CancellationToken,
    ) {
        let asks = Asks { raft, replicated, local_voter, expected, transport, voter_reports };
        let mut generation_asked = None::<Instant>;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.0.wake.notified() => {}
                () = tokio::time::sleep(SILENCE_MAX / 2) => {}
            }
            let silence = self.0.heard.lock().elapsed();
            if !self.is_removed() && asks.is_removed(silence).await {
                self.0.removed.store(true, Ordering::Relaxed);
            }
            // Also by whoever leads: two that come back after a recovery are a majority of what was.
            if generation_asked.is_none_or(|at| at.elapsed() >= GENERATION_INTERVAL) {
                generation_asked = Some(Instant::now());
                let (later, others) = asks.generations().await;
                if let Some(later) = later {
                    self.0.later_generation.store(later, Ordering::Relaxed);
                }
                self.note_other_generations(others);
            }
            let strangers = std::mem::take(&mut *self.0.strangers.lock());
            for (id, storage) in strangers {
                if asks.is_member(id, storage).await {
                    tracing::info!(id, "a member vouches for a coordinator that this one does not know yet");
                    self.0.vouched.lock().insert(id, StorageId::new(storage));
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(ROUND_INTERVAL) => {}
            }
        }
    }
}

struct Asks {
    raft: Raft,
    replicated: Arc<Replicated>,
    local_voter: LocalVoter,
    /// Whom it knew before the log named it.
    expected: Arc<BTreeMap<u64, String>>,
    transport: Transport,
    voter_reports: VoterReports,
}

impl Asks {
    /// Silence of leaders after which others are asked.
    fn silence(&self) -> Duration {
        self.local_voter.timing.silence(SILENCE_MAX)
    }

    /// The members of the log, and, until that names this coordinator, those that it was told of: the others may all be gone.
    fn members(&self) -> BTreeMap<u64, String> {
        let mut members = addresses_of(self.raft.server_metrics().borrow_watched().membership_config.membership());
        if !members.contains_key(&self.local_voter.id) {
            for (id, address) in self.expected.iter() {
                members.entry(*id).or_insert_with(|| address.clone());
            }
        }
        self.replicated.addresses().reached_at(members)
    }

    /// Whether it leads, and a majority has confirmed that not long ago. One that was removed while it was cut off leads on by its own log.
    fn leads(&self) -> bool {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let confirmed = metrics.last_quorum_acked.is_some_and(|at| at.elapsed() < self.silence());
        metrics.current_leader == Some(self.local_voter.id) && confirmed
    }

    /// Whether this coordinator was removed; others are asked only if no leader was heard for so long.
    async fn is_removed(&self, silence: Duration) -> bool {
        let (id, storage) = (self.local_voter.id, StorageId::new(self.local_voter.storage));
        if self.replicated.read(|state| state.coordinators.has_removed(id, storage)) {
            return true;
        }
        if silence < self.silence() || self.leads() {
            return false;
        }
        let answers = ask_all(&self.transport, &self.local_voter, &self.members(), &Asked::default()).await;
        answers.values().flatten().any(|answer| answer.initialized && answer.standing() == Standing::Retired)
    }

    /// The latest generation at a member's address that continues the one in which this coordinator lives, and those who live in one
    /// that does not.
    async fn generations(&self) -> (Option<u64>, BTreeMap<u64, u64>) {
        let own = self.replicated.read(|state| {
            let lived = (state.cluster, state.generation, state.generation_key(state.generation));
            state.is_bootstrapped().then_some(lived)
        });
        let Some((_, generation, _)) = own else { return Default::default() };
        let what = Asked { lived: own, ..Asked::default() };
        let answers = ask_all(&self.transport, &self.local_voter, &self.members(), &what).await;
        self.voter_reports.note_answers(&answers);
        let later =
            answers.values().flatten().map(|answer| answer.later_generation).filter(|later| *later > generation);
        let others = answers.iter().filter_map(|(id, answer)| Some((*id, answer.as_ref().ok()?.other_generation)));
        (later.max(), others.filter(|(_, other)| *other > 0).collect())
    }

    async fn is_member(&self, id: u64, storage: Uuid) -> bool {
        let subject = hello_request::Subject { id, storage: Bytes::copy_from_slice(storage.as_bytes()) };
        // Nobody vouches for itself.
        let others = self.members().into_iter().filter(|(other, _)| *other != id).collect();
        let what = Asked { subject: Some(subject), ..Asked::default() };
        let answers = ask_all(&self.transport, &self.local_voter, &others, &what).await;
        answers.values().flatten().any(|answer| answer.initialized && answer.subject_standing() == Standing::Member)
    }
}
