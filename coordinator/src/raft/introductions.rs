//! Peer lookup: coordinators trusted beyond the own log. A coordinator that was away for long may not know members that
//! joined since, and would refuse an unknown leader; so it asks the members that it knows. They also report its
//! removal, which it may not receive by an entry.

use super::hello::{Asked, ask_all};
use super::later_generations::Majority;
use super::machine::Replicated;
use super::membership::members_to_ask;
use super::types::Raft;
use super::wire::LocalVoter;
use crate::clock::boot_now;
use archon_coordinator_core::Acquaintances;
use archon_proto::v1::{Standing, hello_request};
use archon_security::Transport;
use archon_types::{Millis, StorageId};
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

/// Maximum number of strangers asked about at once: without TLS they are not authenticated.
const STRANGERS_MAX: usize = 16;
/// Pause between two rounds of questions about strangers.
const ROUND_INTERVAL: Duration = Duration::from_millis(200);
/// A former coordinator counts as working for this long after it asked, in milliseconds: it asks every 5 s.
const FORMER_HEARD_MS: u64 = 6_000;
/// Time without a leader after which this coordinator asks for its own membership.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// Answers of members about others. Clones share them.
#[derive(Clone)]
pub(crate) struct Introductions(Arc<Inner>);

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
    /// A generation that began without this coordinator and continues its own; zero if none is known.
    later_generation: AtomicU64,
    /// The coordinators that answered last in a generation that does not continue this one's, each with its generation.
    other_generations: Mutex<BTreeMap<u64, u64>>,
    /// The coordinators of later generations that answered last and wait for this one, each with its generation.
    waiting_generations: Mutex<BTreeMap<u64, u64>>,
    /// The majority in which this coordinator takes part.
    majority: Mutex<Majority>,
    /// The coordinator of a generation before that asked last: its number, its generation, and when it asked.
    former_runs: Mutex<Option<(u64, u64, Millis)>>,
    /// The same of the last one that works.
    former_works: Mutex<Option<(u64, u64, Millis)>>,
    /// This leader's wait for coordinators of other generations.
    standby: Mutex<Option<Standby>>,
    /// The reason for which no lease is granted after the last round of questions.
    blocked: Mutex<Option<String>>,
}

/// A leader's wait for coordinators of other generations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Standby {
    /// The reason.
    pub(crate) text: String,
    /// No former coordinator worked in the last rounds of questions.
    pub(crate) is_quiet: bool,
    /// One of them worked before: the recovery takes over by an operator's order only.
    pub(crate) needs_order: bool,
}

impl Standby {
    /// A wait that no order ends.
    pub(crate) const fn new(text: String) -> Self {
        Self { text, is_quiet: false, needs_order: false }
    }
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
            waiting_generations: Mutex::default(),
            majority: Mutex::default(),
            former_runs: Mutex::default(),
            former_works: Mutex::default(),
            standby: Mutex::default(),
            blocked: Mutex::default(),
        };
        Self(Arc::new(inner))
    }
}

impl Introductions {
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
    pub(super) fn hears_leader(&self, within: Duration) -> bool {
        self.0.leader_heard.lock().is_some_and(|at| at.elapsed() <= within)
    }

    /// Returns true if this coordinator is no longer a member, according to the log or another member.
    pub(crate) fn is_removed(&self) -> bool {
        self.0.removed.load(Ordering::Relaxed)
    }

    /// Returns the generation that began without this coordinator, as reported by another one.
    pub(crate) fn later_generation(&self) -> Option<u64> {
        Some(self.0.later_generation.load(Ordering::Relaxed)).filter(|later| *later > 0)
    }

    /// Returns the coordinators at members' addresses that live in a generation that does not continue this one's, each
    /// with its generation.
    pub(crate) fn other_generations(&self) -> BTreeMap<u64, u64> {
        self.0.other_generations.lock().clone()
    }

    /// Returns the coordinators at members' addresses that live in a later generation and wait for this one, each with
    /// its generation.
    pub(crate) fn waiting_generations(&self) -> BTreeMap<u64, u64> {
        self.0.waiting_generations.lock().clone()
    }

    /// Notes that this coordinator takes part in a majority of its quorum, as leader or follower.
    pub(super) fn note_majority(&self) {
        self.0.majority.lock().note(boot_now());
    }

    /// Returns true if this coordinator works with a majority of its quorum.
    pub(super) fn works(&self) -> bool {
        self.0.majority.lock().works(boot_now())
    }

    /// Returns the period in which this coordinator works with a majority.
    pub(super) fn period(&self) -> Option<u64> {
        self.0.majority.lock().period(boot_now())
    }

    /// Notes that a round of questions begun in this period found no later generation in place of this one.
    pub(super) fn clear(&self, period: u64) {
        self.0.majority.lock().clear(period);
        *self.0.blocked.lock() = None;
    }

    /// Blocks leases, for this reason, until another round of questions finds that it no longer holds.
    pub(super) fn unclear(&self, why: String) {
        self.0.majority.lock().unclear();
        *self.0.blocked.lock() = Some(why);
    }

    /// Returns the reason for which no lease is granted after the last round of questions.
    pub(super) fn blocked(&self) -> Option<String> {
        self.0.blocked.lock().clone()
    }

    /// Notes that this process runs. A pause of more than `pause_max_ms` milliseconds requires another round of
    /// questions.
    pub(super) fn tick(&self, pause_max_ms: u64) {
        self.0.majority.lock().tick(boot_now(), pause_max_ms);
    }

    /// Returns true if leases wait for a round of questions.
    pub(super) fn waits_for_answers(&self) -> bool {
        self.0.majority.lock().waits(boot_now())
    }

    /// Returns true if no later generation can have taken the place of this one before it would hear of it.
    pub(super) fn may_grant(&self) -> bool {
        self.later_generation().is_none() && self.0.majority.lock().may_grant(boot_now())
    }

    /// Notes that a later generation has taken the place of this one.
    pub(super) fn note_later_generation(&self, generation: u64) {
        self.0.later_generation.store(generation, Ordering::Relaxed);
    }

    /// Notes a question of a coordinator of an earlier generation.
    pub(super) fn note_former(&self, id: u64, generation: u64, works: bool) {
        let heard = Some((id, generation, boot_now()));
        *self.0.former_runs.lock() = heard;
        if works {
            *self.0.former_works.lock() = heard;
        }
    }

    /// Returns the former coordinator that asked a short time before `now`, its generation, and whether it works. One
    /// that works is preferred.
    pub(super) fn former(&self, now: Millis) -> Option<(u64, u64, bool)> {
        let [works, runs] = [&self.0.former_works, &self.0.former_runs].map(|heard| *heard.lock());
        let recent = |heard: Option<(u64, u64, Millis)>| heard.filter(|(_, _, at)| now.since(*at) <= FORMER_HEARD_MS);
        let heard = recent(works).map(|(id, generation, _)| (id, generation, true));
        heard.or_else(|| recent(runs).map(|(id, generation, _)| (id, generation, false)))
    }

    /// Sets or ends the wait for coordinators of other generations.
    pub(super) fn set_standby(&self, standby: Option<Standby>) {
        *self.0.standby.lock() = standby;
    }

    /// Returns the wait of this coordinator, which leads, for those of other generations.
    pub(super) fn standby(&self) -> Option<Standby> {
        self.0.standby.lock().clone()
    }

    /// Returns true if this coordinator leads and waits for the former ones.
    pub(super) fn stands_by(&self) -> bool {
        self.0.standby.lock().is_some()
    }

    /// Notes the coordinators of other generations that answered: those that wait, and those that do not continue this one.
    pub(super) fn note_generations(&self, waiting: BTreeMap<u64, u64>, others: BTreeMap<u64, u64>) {
        let mut known = self.0.waiting_generations.lock();
        for (id, generation) in waiting.iter().filter(|(id, generation)| known.get(*id) != Some(*generation)) {
            tracing::warn!(
                id,
                generation,
                "a recovery answers at a member's address; it waits while a majority of these coordinators works"
            );
        }
        *known = waiting;
        drop(known);
        self.note_other_generations(others);
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

    /// Asks until `stop`; `expected`: the coordinators known before the log named this one.
    pub(super) async fn run(
        self,
        raft: Raft,
        replicated: Arc<Replicated>,
        local_voter: LocalVoter,
        expected: Arc<BTreeMap<u64, String>>,
        transport: Transport,
        stop: CancellationToken,
    ) {
        let asks = Asks { raft, replicated, local_voter, expected, transport };
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
    /// Coordinators known before the log named this one.
    expected: Arc<BTreeMap<u64, String>>,
    transport: Transport,
}

impl Asks {
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
        let answers = ask_all(&self.transport, &self.local_voter, &self.members(), &Asked::default()).await;
        answers.values().flatten().any(|answer| answer.initialized && answer.standing() == Standing::Retired)
    }

    async fn is_member(&self, id: u64, storage: Uuid) -> bool {
        let subject = hello_request::Subject { id, storage: Bytes::copy_from_slice(storage.as_bytes()) };
        // No coordinator vouches for itself.
        let others = self.members().into_iter().filter(|(other, _)| *other != id).collect();
        let what = Asked { subject: Some(subject), ..Asked::default() };
        let answers = ask_all(&self.transport, &self.local_voter, &others, &what).await;
        answers.values().flatten().any(|answer| answer.initialized && answer.subject_standing() == Standing::Member)
    }
}
