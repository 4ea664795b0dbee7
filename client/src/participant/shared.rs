//! What the parts of a participant share.

use super::builder::Config;
use super::load::ServiceLoad;
use super::stats::Counters;
use crate::measure::ParticipantMeasures;
use arc_swap::ArcSwap;
use archon_member::{Acquired, Broken, Effect, Heartbeat, Holdings, Participation};
use archon_session::{BootClock, Clock, Facts};
use archon_types::{ErrorDetail, ErrorKind, Millis, PartitionId, Report, TABLES_SERVED_MAX, TableId};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

/// Table names that are kept: those of the tables served now, and as many of dropped ones.
const TABLES_KNOWN_MAX: usize = 2 * TABLES_SERVED_MAX;

/// How far a participant has come with its session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// It asks to be registered; what stood in the way last.
    Registering(Option<ErrorDetail>),
    /// It is, or was and asks to be again.
    Registered,
    /// It is over, and why if it was not stopped.
    Ended(Option<ErrorDetail>),
}

/// The common ground of a participant's session, its callbacks and its handles.
pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) clock: BootClock,
    decides: Mutex<Participation>,
    /// What is owned and until when, as of the last decision: looked at without the lock.
    holdings: ArcSwap<Holdings>,
    /// To the callbacks, in the order of the decisions.
    effects: mpsc::UnboundedSender<Effect>,
    /// Rung when facts wait to be told.
    facts: Notify,
    /// Changes with each decision.
    decided: watch::Sender<()>,
    pub(super) phase: watch::Sender<Phase>,
    /// Coordinators that answers named.
    pub(super) learned: ArcSwap<Vec<String>>,
    /// Names of lease tables by their numbers, the newest last.
    tables: ArcSwap<Vec<(TableId, Arc<str>)>>,
    /// What the service said last that it carries.
    pub(super) load: ArcSwap<ServiceLoad>,
    /// It is about to stop and says so with its heartbeats.
    pub(super) stopping: CancellationToken,
    /// A coordinator has heard that.
    pub(super) stopping_heard: CancellationToken,
    /// Ends everything that works for it.
    pub(super) end: CancellationToken,
    pub(super) counters: Counters,
    pub(super) measures: ParticipantMeasures,
}

impl Shared {
    pub(super) fn new(config: Config, effects: mpsc::UnboundedSender<Effect>) -> Self {
        Self {
            config,
            clock: BootClock,
            decides: Mutex::new(Participation::new(Broken::default())),
            holdings: ArcSwap::default(),
            effects,
            facts: Notify::new(),
            decided: watch::Sender::new(()),
            phase: watch::Sender::new(Phase::Registering(None)),
            learned: ArcSwap::default(),
            tables: ArcSwap::default(),
            load: ArcSwap::default(),
            stopping: CancellationToken::new(),
            stopping_heard: CancellationToken::new(),
            end: CancellationToken::new(),
            counters: Counters::default(),
            measures: ParticipantMeasures::default(),
        }
    }

    /// Has something decided, publishes what is owned after it, and has done what follows, in this order.
    pub(super) fn decide<T>(&self, change: impl FnOnce(&mut Participation, Millis) -> T) -> T {
        let mut decides = self.decides.lock();
        let result = change(&mut decides, self.clock.now());
        self.holdings.store(Arc::new(decides.holdings().clone()));
        self.measures.decided(decides.holdings(), || self.clock.now());
        while let Some(effect) = decides.next_effect() {
            // They end after the session, so nothing is lost; and after them nothing is done.
            let _ = self.effects.send(effect);
        }
        if !decides.reports(1).is_empty() {
            self.facts.notify_one();
        }
        drop(decides);
        self.decided.send_replace(());
        result
    }

    /// Takes note of the tables that a coordinator names. Those that were dropped are kept for a while: their partitions are lost later.
    pub(super) fn learn_tables(&self, named: Vec<(TableId, String)>) {
        let known = self.tables.load();
        let new = named.into_iter().filter(|(id, _)| !known.iter().any(|(other, _)| other == id));
        let new: Vec<(TableId, Arc<str>)> = new.map(|(id, name)| (id, name.into())).collect();
        if new.is_empty() {
            return;
        }
        let mut all = known.to_vec();
        all.extend(new);
        all.drain(..all.len().saturating_sub(TABLES_KNOWN_MAX));
        self.tables.store(Arc::new(all));
    }

    /// Returns the name of a table. A coordinator of an older version names none: then it is the only one that is served, or the number.
    pub(super) fn table_name(&self, id: TableId) -> Arc<str> {
        let known = self.tables.load();
        let name = known.iter().rev().find(|(other, _)| *other == id).map(|(_, name)| Arc::clone(name));
        name.unwrap_or_else(|| match &self.config.served.tables[..] {
            [only] => only.as_str().into(),
            _ => id.to_string().into(),
        })
    }

    /// Looks at what was decided.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Participation) -> T) -> T {
        look(&self.decides.lock())
    }

    /// A heartbeat is about to be sent.
    pub(super) fn send(&self) -> Heartbeat {
        let mut decides = self.decides.lock();
        decides.send(self.clock.now())
    }

    /// Waits until what was decided makes this true.
    pub(super) async fn until(&self, reached: impl Fn(&Participation) -> bool) {
        let mut decided = self.decided.subscribe();
        while !self.look(&reached) {
            // The sender is ours.
            let _ = decided.changed().await;
        }
    }

    /// Waits until the session is over, and nothing is decided any more.
    pub(super) async fn over(&self) {
        // The sender is ours.
        let _ = self.phase.subscribe().wait_for(|phase| matches!(phase, Phase::Ended(_))).await;
    }

    /// The next change of what was decided.
    pub(super) fn decisions(&self) -> watch::Receiver<()> {
        self.decided.subscribe()
    }

    // What was published is looked at first and the clock after: it may only be later.

    /// Whether new work may be taken for a partition, now.
    pub(super) fn have(&self, partition: PartitionId) -> Option<Acquired> {
        let holdings = self.holdings.load();
        holdings.have(partition, self.clock.now())
    }

    /// Whether what was acquired is owned, now.
    pub(super) fn check(&self, acquired: Acquired) -> bool {
        let holdings = self.holdings.load();
        holdings.check(acquired, self.clock.now())
    }

    /// All for which new work may be taken, now.
    pub(super) fn owned(&self) -> Vec<Acquired> {
        let holdings = self.holdings.load();
        holdings.owned(self.clock.now()).collect()
    }

    /// When the lease ends.
    pub(super) fn lease_until(&self) -> Option<Millis> {
        self.holdings.load().until()
    }
}

impl Facts for Shared {
    fn peek(&self, count: usize) -> Vec<Report> {
        self.look(|decides| decides.reports(count))
    }

    fn answered(&self, report: &Report, refused: Option<ErrorKind>) -> bool {
        self.decide(|decides, _| decides.reported(report, refused))
    }

    async fn filled(&self) {
        self.facts.notified().await;
    }
}
