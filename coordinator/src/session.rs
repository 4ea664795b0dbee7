//! One term of leading: what this coordinator remembers while, and only while, it leads.

use crate::load::Loads;
use crate::raft::{Proposal, Quorum};
use crate::service::rebalance::Planned;
use crate::shared::Shared;
use archon_coordinator_core::{Actor, Command, Liveness, Response};
use archon_types::{ErrorDetail, Incarnation, Millis, NodeId, PushKey, RequestId, Version};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Most activations that wait for the next control turn.
const ACTIVATIONS_MAX: usize = 20_000;

/// What one node's heartbeats told, for the pusher and for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    /// The life that was heard.
    pub(crate) incarnation: Incarnation,
    /// When, on the boot clock.
    pub(crate) at: Millis,
    /// The table version that the node holds.
    pub(crate) table_version: Version,
    /// What pushes to it must show.
    pub(crate) key: PushKey,
}

/// Plans by the versions of tables and moves that they are made for.
pub(crate) type Plans = Shared<(Version, Version), Planned>;

/// A term in which this coordinator leads. Everything in it dies with it.
pub(crate) struct Session {
    quorum: Quorum,
    term: u64,
    stop: CancellationToken,
    liveness: Mutex<Liveness>,
    heard: Mutex<BTreeMap<NodeId, Heard>>,
    /// Pushers that cannot push before their node was heard. Locked after `heard`, never before.
    awaited: Mutex<BTreeMap<NodeId, Arc<Notify>>>,
    activations: Mutex<BTreeMap<NodeId, Incarnation>>,
    loads: Mutex<Loads>,
    plans: Plans,
    /// Rung when the control loop has something to do before its timer.
    pub(crate) work: Notify,
    /// Rung when pushers should look again.
    pub(crate) pushes: Notify,
    granting: AtomicBool,
    turned_at: AtomicU64,
}

impl Session {
    /// Begins to lead in `term` at `now`, with every timer at zero.
    pub(crate) fn new(quorum: Quorum, term: u64, stop: CancellationToken, now: Millis) -> Arc<Self> {
        Arc::new(Self {
            quorum,
            term,
            stop,
            liveness: Mutex::new(Liveness::new(now)),
            heard: Mutex::default(),
            awaited: Mutex::default(),
            activations: Mutex::default(),
            loads: Mutex::default(),
            plans: Plans::default(),
            work: Notify::new(),
            pushes: Notify::new(),
            granting: AtomicBool::new(true),
            turned_at: AtomicU64::new(now.get()),
        })
    }

    /// The term.
    pub(crate) const fn term(&self) -> u64 {
        self.term
    }

    /// Cancelled when this coordinator does not lead in this term any more.
    pub(crate) const fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Raft.
    pub(crate) const fn quorum(&self) -> &Quorum {
        &self.quorum
    }

    /// The leader's memory of leases. Locked for one synchronous step at a time; lock it before the state, never after.
    pub(crate) const fn liveness(&self) -> &Mutex<Liveness> {
        &self.liveness
    }

    /// What nodes carry.
    pub(crate) const fn loads(&self) -> &Mutex<Loads> {
        &self.loads
    }

    /// Plans being made, or made last.
    pub(crate) const fn plans(&self) -> &Plans {
        &self.plans
    }

    /// Takes note of a heartbeat that was accepted. Returns the table version that the node held before.
    pub(crate) fn note_heard(&self, node: NodeId, heard: Heard) {
        let behind = {
            let mut all = self.heard.lock();
            let before = all.insert(node, heard);
            if let Some(pusher) = self.awaited.lock().remove(&node) {
                pusher.notify_one();
            }
            before.is_none_or(|before| before.table_version != heard.table_version)
        };
        if behind {
            self.pushes.notify_one();
        }
    }

    /// What was heard of a node last.
    pub(crate) fn heard(&self, node: NodeId) -> Option<Heard> {
        self.heard.lock().get(&node).copied()
    }

    /// What a push to this life of a node must show. Unless it was heard by now, `wake` is notified when it is.
    pub(crate) fn push_key(&self, node: NodeId, incarnation: Incarnation, wake: &Arc<Notify>) -> Option<PushKey> {
        let heard = self.heard.lock();
        let known = heard.get(&node).filter(|heard| heard.incarnation == incarnation);
        if known.is_none() {
            self.awaited.lock().insert(node, Arc::clone(wake));
        }
        known.map(|heard| heard.key)
    }

    /// A node said that it acts in this life: the next control turn commits it.
    pub(crate) fn activate(&self, node: NodeId, incarnation: Incarnation) {
        let mut waiting = self.activations.lock();
        if waiting.len() < ACTIVATIONS_MAX && waiting.insert(node, incarnation) != Some(incarnation) {
            self.work.notify_one();
        }
    }

    /// The activations to commit now.
    pub(crate) fn take_activations(&self) -> Vec<Command> {
        let waiting = std::mem::take(&mut *self.activations.lock());
        waiting.into_iter().map(|(node, incarnation)| Command::Activate { node, incarnation }).collect()
    }

    /// Forgets loads and heartbeats of nodes that the state does not know as live any more.
    pub(crate) fn forget_nodes(&self, keep: impl Fn(NodeId) -> bool) {
        self.heard.lock().retain(|node, _| keep(*node));
        self.awaited.lock().retain(|node, _| keep(*node));
        self.loads.lock().retain(keep);
    }

    /// Whether heartbeats are answered; not while this coordinator itself stalls.
    pub(crate) fn is_granting(&self) -> bool {
        self.granting.load(Ordering::Relaxed) && !self.stop.is_cancelled()
    }

    /// Stops or resumes answering heartbeats.
    pub(crate) fn set_granting(&self, granting: bool) {
        self.granting.store(granting, Ordering::Relaxed);
    }

    /// When the control loop turned last, on the boot clock.
    pub(crate) fn turned_at(&self) -> Millis {
        Millis::new(self.turned_at.load(Ordering::Relaxed))
    }

    /// The control loop turned.
    pub(crate) fn note_turn(&self, now: Millis) {
        self.turned_at.store(now.get(), Ordering::Relaxed);
    }

    /// Commits commands that were decided in this term.
    ///
    /// # Errors
    /// As [`Quorum::propose`].
    pub(crate) async fn propose(
        &self,
        request: Option<RequestId>,
        who: Actor,
        commands: Vec<Command>,
        within: Duration,
    ) -> Result<Vec<Response>, ErrorDetail> {
        let proposal = Proposal { term: self.term, request, who, commands };
        self.quorum.propose(proposal, within).await
    }

    /// Confirms that this session leads now; the state then holds every change answered before.
    ///
    /// # Errors
    /// As [`Quorum::confirm`]; `NotCoordinatorLeader` also when another term leads.
    pub(crate) async fn confirm(&self, within: Duration) -> Result<(), ErrorDetail> {
        let term = self.quorum.confirm(within).await?;
        if term == self.term && !self.stop.is_cancelled() { Ok(()) } else { Err(self.quorum.not_leading()) }
    }
}

/// The session under way, if this coordinator leads; shared by services and the control supervisor.
#[derive(Clone, Default)]
pub(crate) struct Leading {
    session: Arc<Mutex<Option<Arc<Session>>>>,
}

impl Leading {
    /// The session under way.
    pub(crate) fn session(&self) -> Option<Arc<Session>> {
        self.session.lock().clone()
    }

    /// Begins or ends leading.
    pub(crate) fn set(&self, session: Option<Arc<Session>>) {
        *self.session.lock() = session;
    }
}
