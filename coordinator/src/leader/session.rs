//! Leader session: the memory that a coordinator has only while it leads.

use crate::beats::BeatQueue;
use crate::leader::load::Loads;
use crate::leader::polls::Polls;
use crate::push::{AccessVersions, UpdateCache};
use crate::quorum::other_histories::OtherHistories;
use crate::raft::{Proposal, Quorum};
use crate::service::operator::rebalance::NamedPlan;
use crate::single_flight::SingleFlight;
use archon_coordinator_core::term::KnownRelays;
use archon_coordinator_core::{Actor, Command, Response, Term};
use archon_types::{ErrorDetail, Incarnation, Millis, NodeId, PushKey, RelayAddress, RequestId, Version};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Content of a node's last heartbeat, for the pusher and for node descriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastHeartbeat {
    /// The incarnation that sent it.
    pub(crate) incarnation: Incarnation,
    /// Time of arrival, on the boot clock.
    pub(crate) at: Millis,
    /// The table version that the node holds.
    pub(crate) table_version: Version,
    /// The key that pushes to the node must contain.
    pub(crate) key: PushKey,
    /// The node that relayed the heartbeat; `None` if it came directly, or is a relay's own.
    pub(crate) via: Option<NodeId>,
    /// True if it came in a relay's batch, as a relay's own do.
    pub(crate) carried: bool,
}

/// Plans, each for one version of the tables and of the moves, and for one set of spared nodes: those that clients
/// cannot reach, or could not until recently.
pub(crate) type Plans = SingleFlight<((Version, Version), BTreeSet<NodeId>), NamedPlan>;

/// A session in which this coordinator leads. It loses all of its memory at the end, except the [`Term`], which the
/// next session of the same Raft term takes over.
pub(crate) struct Session {
    quorum: Quorum,
    number: u64,
    stop: CancellationToken,
    term: Arc<Mutex<Term>>,
    heartbeats: Mutex<BTreeMap<NodeId, LastHeartbeat>>,
    /// Pushers that cannot push before the first heartbeat of their node. Locked after `heartbeats`, never before.
    awaited: Mutex<BTreeMap<NodeId, Arc<Notify>>>,
    loads: Mutex<Loads>,
    plans: Plans,
    polls: Polls,
    /// The relaying nodes, announced to participants.
    relays: Mutex<KnownRelays>,
    /// Versions of client rights that nodes apply.
    pub(crate) access_known: AccessVersions,
    /// Refused members that belong to another history.
    pub(crate) other_histories: OtherHistories,
    /// Updates in the answers to heartbeats.
    pub(crate) news: UpdateCache,
    /// Queue of heartbeats from streams.
    pub(crate) beats: BeatQueue,
    /// Notified when the control loop has work before its timer.
    pub(crate) work: Notify,
    /// Notified when pushers should check again.
    pub(crate) pushes: Notify,
    granting: AtomicBool,
    turned_at: AtomicU64,
}

impl Session {
    /// Begins to lead in `term` at `now`. Streams put heartbeats into `beats`.
    pub(crate) fn new(
        quorum: Quorum,
        term: Arc<Mutex<Term>>,
        stop: CancellationToken,
        beats: BeatQueue,
        now: Millis,
    ) -> Arc<Self> {
        let number = term.lock().number();
        Arc::new(Self {
            quorum,
            number,
            stop,
            term,
            heartbeats: Mutex::default(),
            awaited: Mutex::default(),
            loads: Mutex::default(),
            plans: Plans::default(),
            polls: Polls::default(),
            relays: Mutex::default(),
            access_known: AccessVersions::default(),
            other_histories: OtherHistories::default(),
            news: UpdateCache::default(),
            beats,
            work: Notify::new(),
            pushes: Notify::new(),
            granting: AtomicBool::new(true),
            turned_at: AtomicU64::new(now.get()),
        })
    }

    /// Returns the term's number.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Returns the token that is cancelled when this coordinator no longer leads in this term.
    pub(crate) const fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Returns the Raft handle.
    pub(crate) const fn quorum(&self) -> &Quorum {
        &self.quorum
    }

    /// Returns the state of this term, which decides. Locked for one synchronous step at a time; lock it before the
    /// state, never after.
    pub(crate) fn term(&self) -> &Mutex<Term> {
        &self.term
    }

    /// Returns the reported loads of nodes.
    pub(crate) const fn loads(&self) -> &Mutex<Loads> {
        &self.loads
    }

    /// Returns the computation of plans: the running one, or the last.
    pub(crate) const fn plans(&self) -> &Plans {
        &self.plans
    }

    /// Returns the polls of participants.
    pub(crate) const fn polls(&self) -> &Polls {
        &self.polls
    }

    /// Returns the nodes that relay a participant's heartbeats.
    pub(crate) fn relays_of(&self, participant: NodeId) -> Vec<RelayAddress> {
        let mut relays = self.relays.lock();
        self.quorum.replicated().read(|state| relays.of(state, participant))
    }

    /// Records accepted heartbeats.
    pub(crate) fn note_heartbeats(&self, beats: impl Iterator<Item = (NodeId, LastHeartbeat)>) {
        let mut table_changed = false;
        {
            let mut all = self.heartbeats.lock();
            for (node, beat) in beats {
                let before = all.insert(node, beat);
                if let Some(pusher) = self.awaited.lock().remove(&node) {
                    pusher.notify_one();
                }
                table_changed |= before.is_none_or(|before| before.table_version != beat.table_version);
            }
        }
        if table_changed {
            self.pushes.notify_one();
        }
    }

    /// Returns the last heartbeat of a node.
    pub(crate) fn last_heartbeat(&self, node: NodeId) -> Option<LastHeartbeat> {
        self.heartbeats.lock().get(&node).copied()
    }

    /// Returns the key for pushes to this incarnation of a node. Without a heartbeat so far, `wake` is notified by the
    /// first one.
    pub(crate) fn push_key(&self, node: NodeId, incarnation: Incarnation, wake: &Arc<Notify>) -> Option<PushKey> {
        let heartbeats = self.heartbeats.lock();
        let known = heartbeats.get(&node).filter(|beat| beat.incarnation == incarnation);
        if known.is_none() {
            self.awaited.lock().insert(node, Arc::clone(wake));
        }
        known.map(|beat| beat.key)
    }

    /// Forgets loads and heartbeats of nodes that are no longer alive in the state.
    pub(crate) fn forget_nodes(&self, keep: impl Fn(NodeId) -> bool) {
        self.heartbeats.lock().retain(|node, _| keep(*node));
        self.awaited.lock().retain(|node, _| keep(*node));
        self.polls.retain(&keep);
        self.access_known.retain(&keep);
        self.loads.lock().retain(keep);
    }

    /// Waits until every active node applies the present client rights, at most for `within`. Returns the nodes that do
    /// not apply them yet.
    pub(crate) async fn until_access_is_known(&self, within: Duration) -> Vec<NodeId> {
        let deadline = tokio::time::Instant::now() + within;
        let mut known = self.access_known.watch();
        loop {
            known.borrow_and_update();
            let behind = self.quorum.replicated().read(|state| self.access_known.behind(state));
            if behind.is_empty() {
                return behind;
            }
            tokio::select! {
                () = self.stop.cancelled() => return behind,
                () = tokio::time::sleep_until(deadline) => return behind,
                changed = known.changed() => if changed.is_err() { return behind },
            }
        }
    }

    /// Returns true if heartbeats are answered: not while this coordinator stalls, nor before it knows that no recovery
    /// has taken its place.
    pub(crate) fn is_granting(&self) -> bool {
        self.granting.load(Ordering::Relaxed) && !self.stop.is_cancelled() && self.quorum.may_grant()
    }

    /// Stops or resumes answering heartbeats.
    pub(crate) fn set_granting(&self, granting: bool) {
        self.granting.store(granting, Ordering::Relaxed);
    }

    /// Returns the time of the last control turn, on the boot clock.
    pub(crate) fn turned_at(&self) -> Millis {
        Millis::new(self.turned_at.load(Ordering::Relaxed))
    }

    /// Records a control turn.
    pub(crate) fn note_turn(&self, now: Millis) {
        self.turned_at.store(now.get(), Ordering::Relaxed);
    }

    /// Commits commands that were decided in this term.
    ///
    /// # Errors
    /// Like [`Quorum::propose`].
    pub(crate) async fn propose(
        &self,
        request: Option<RequestId>,
        who: Actor,
        commands: Vec<Command>,
        within: Duration,
    ) -> Result<Vec<Response>, ErrorDetail> {
        let who = who.by_protocol(self.quorum.replicated().read(|state| state.protocol));
        let proposal = Proposal { term: self.number, request, who, commands };
        self.quorum.propose(proposal, within).await
    }

    /// Confirms that this session leads now; the state then contains every change answered before.
    ///
    /// # Errors
    /// Like [`Quorum::confirm`]; `NotCoordinatorLeader` also if another term leads.
    pub(crate) async fn confirm(&self, within: Duration) -> Result<(), ErrorDetail> {
        if self.led(within).await? == self.number { Ok(()) } else { Err(self.quorum.not_leading()) }
    }

    /// Starts a quorum round, and returns the term in which a majority confirms that this coordinator leads.
    ///
    /// # Errors
    /// Like [`Quorum::confirm`]; `NotCoordinatorLeader` also if this session has ended.
    pub(crate) async fn led(&self, within: Duration) -> Result<u64, ErrorDetail> {
        let term = self.quorum.confirm(within).await?;
        if self.stop.is_cancelled() { Err(self.quorum.not_leading()) } else { Ok(term) }
    }
}

/// The present session, if this coordinator leads; shared by services and the control supervisor.
#[derive(Clone, Default)]
pub(crate) struct CurrentSession {
    session: Arc<Mutex<Option<Arc<Session>>>>,
}

impl CurrentSession {
    /// Returns the present session.
    pub(crate) fn session(&self) -> Option<Arc<Session>> {
        self.session.lock().clone()
    }

    /// Begins or ends leading.
    pub(crate) fn set(&self, session: Option<Arc<Session>>) {
        *self.session.lock() = session;
    }
}
