//! Peer lookup: coordinators trusted beyond the own log. A coordinator that was away for long may not know members that
//! joined since, and would refuse an unknown leader; so it asks the members that it knows. They also report its
//! removal, which it may not receive by an entry.

use super::hello::{HelloQuestions, ask_all};
use super::wire::LocalVoter;
use crate::raft::machine::ReplicatedState;
use crate::raft::machine::raft::Raft;
use crate::raft::quorum::members::members_to_ask;
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
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Maximum number of strangers asked about at once: without TLS they are not authenticated.
const STRANGERS_MAX: usize = 16;
/// Pause between two rounds of questions about strangers.
const ROUND_INTERVAL: Duration = Duration::from_millis(200);
/// Time without a leader after which this coordinator asks for its own membership.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// Answers of members about others. Clones share them.
#[derive(Clone)]
pub(crate) struct PeerLookup(Arc<Inner>);

struct Inner {
    /// Unknown coordinators that sent a request, with the directories that they named.
    strangers: Mutex<BTreeMap<u64, Uuid>>,
    /// Coordinators that a member vouches for.
    vouched: Mutex<BTreeMap<u64, StorageId>>,
    wake: Notify,
    /// Time of the last message of a leader.
    heard: Mutex<Instant>,
    /// The same, if a leader was heard at all.
    leader_heard: Mutex<Option<Instant>>,
    removed: AtomicBool,
}

impl Default for PeerLookup {
    fn default() -> Self {
        let inner = Inner {
            strangers: Mutex::default(),
            vouched: Mutex::default(),
            wake: Notify::new(),
            heard: Mutex::new(Instant::now()),
            leader_heard: Mutex::default(),
            removed: AtomicBool::new(false),
        };
        Self(Arc::new(inner))
    }
}

impl PeerLookup {
    /// Returns the members of the log and the ones vouched for, except removed ones.
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

    /// Notes a request of an unknown coordinator.
    pub(super) fn note_stranger(&self, id: u64, storage: &[u8]) {
        let Ok(storage) = Uuid::from_slice(storage) else { return };
        let mut strangers = self.0.strangers.lock();
        if strangers.len() < STRANGERS_MAX || strangers.contains_key(&id) {
            strangers.insert(id, storage);
            self.0.wake.notify_one();
        }
    }

    /// Notes a message of a leader.
    pub(super) fn note_leader(&self) {
        let now = Instant::now();
        *self.0.heard.lock() = now;
        *self.0.leader_heard.lock() = Some(now);
    }

    /// Returns true if a leader was heard since this process began, within this time. Raft itself also knows one from
    /// before a restart.
    pub(in crate::raft) fn hears_leader(&self, within: Duration) -> bool {
        self.0.leader_heard.lock().is_some_and(|at| at.elapsed() <= within)
    }

    /// Returns true if this coordinator is no longer a member, according to the log or another member.
    pub(crate) fn is_removed(&self) -> bool {
        self.0.removed.load(Ordering::Relaxed)
    }

    /// Asks until `stop`; `expected`: the coordinators known before the log named this one.
    pub(in crate::raft) async fn run(
        self,
        raft: Raft,
        replicated: Arc<ReplicatedState>,
        local_voter: LocalVoter,
        expected: Arc<BTreeMap<u64, String>>,
        transport: Transport,
        stop: CancellationToken,
    ) {
        let asks = LookupContext { raft, replicated, local_voter, expected, transport };
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
            let strangers = std::mem::take(&mut *self.0.strangers.lock());
            for (id, storage) in strangers {
                if asks.is_member(id, storage).await {
                    tracing::info!(id, "a member introduced a coordinator that this one did not know yet");
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

struct LookupContext {
    raft: Raft,
    replicated: Arc<ReplicatedState>,
    local_voter: LocalVoter,
    /// Coordinators known before the log named this one.
    expected: Arc<BTreeMap<u64, String>>,
    transport: Transport,
}

impl LookupContext {
    /// Returns the silence of leaders after which others are asked.
    fn silence(&self) -> Duration {
        self.local_voter.timing.silence(SILENCE_MAX)
    }

    /// Returns the members of the log, and, until it names this coordinator, those that it expects: the members may all
    /// be gone.
    fn members(&self) -> BTreeMap<u64, String> {
        members_to_ask(&self.raft, &self.replicated, &self.expected, self.local_voter.id)
    }

    /// Returns true if it leads, and a majority confirmed that a short time ago. A leader removed while cut off still
    /// leads by its own log.
    fn leads(&self) -> bool {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let confirmed = metrics.last_quorum_acked.is_some_and(|at| at.elapsed() < self.silence());
        metrics.current_leader == Some(self.local_voter.id) && confirmed
    }

    /// Returns true if this coordinator was removed; others are asked only after this silence of leaders.
    async fn is_removed(&self, silence: Duration) -> bool {
        let (id, storage) = (self.local_voter.id, StorageId::new(self.local_voter.storage));
        if self.replicated.read(|state| state.coordinators.has_removed(id, storage)) {
            return true;
        }
        if silence < self.silence() || self.leads() {
            return false;
        }
        let answers = ask_all(&self.transport, &self.local_voter, &self.members(), &HelloQuestions::default()).await;
        answers.values().flatten().any(|answer| answer.initialized && answer.standing() == Standing::Retired)
    }

    async fn is_member(&self, id: u64, storage: Uuid) -> bool {
        let subject = hello_request::Subject { id, storage: Bytes::copy_from_slice(storage.as_bytes()) };
        // No coordinator vouches for itself.
        let others = self.members().into_iter().filter(|(other, _)| *other != id).collect();
        let what = HelloQuestions { subject: Some(subject), ..HelloQuestions::default() };
        let answers = ask_all(&self.transport, &self.local_voter, &others, &what).await;
        answers.values().flatten().any(|answer| answer.initialized && answer.subject_standing() == Standing::Member)
    }
}
