//! State shared by the parts of a participant.

use super::config::Config;
use super::held_reports::HeldReports;
use super::load::ServiceLoad;
use super::stats::Counters;
use crate::measure::ParticipantMeasures;
use arc_swap::ArcSwap;
use archon_member::{Acquisition, DisabledRule, Effect, Heartbeat, Holdings, Participation};
use archon_session::{BootClock, Clock, Facts, LearnedCoordinators};
use archon_types::{ErrorDetail, ErrorKind, Millis, PartitionId, Report, TABLES_SERVED_MAX, TableId};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Maximum number of cached table names: those served now, and as many dropped ones.
const TABLES_KNOWN_MAX: usize = 2 * TABLES_SERVED_MAX;

/// Maximum time for which the first releases of a stop wait for the others, to be reported in one request.
const GATHER_WITHIN: Duration = Duration::from_millis(5);

/// Failure time-outs that coordinators wait for a release.
const RELEASE_TIMEOUTS: u64 = 8;

/// Phase of a participant's session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Not registered yet, with the last obstacle.
    Registering(Option<ErrorDetail>),
    /// Registered, or registering again.
    Registered,
    /// Ended, with the reason unless it was stopped.
    Ended(Option<ErrorDetail>),
}

/// State shared by a participant's session, callbacks and handles.
pub(super) struct ParticipantState {
    pub(super) config: Config,
    pub(super) clock: BootClock,
    decides: Mutex<Participation>,
    /// Owned partitions and lease as of the last decision; read without the lock.
    holdings: ArcSwap<Holdings>,
    /// Requests to the callbacks, in the order of the decisions.
    effects: mpsc::UnboundedSender<Effect>,
    /// Notified when reports are queued.
    facts: Notify,
    held_reports: Mutex<HeldReports>,
    failure_timeout_ms: AtomicU64,
    /// Changes with each decision.
    decided: watch::Sender<()>,
    pub(super) phase: watch::Sender<Phase>,
    /// Coordinators named in answers.
    pub(super) learned: LearnedCoordinators,
    /// Names of lease tables by number, the newest last.
    tables: ArcSwap<Vec<(TableId, Arc<str>)>>,
    /// Load reported by the service.
    pub(super) load: ArcSwap<ServiceLoad>,
    /// Cancelled when it is about to stop; heartbeats report that.
    pub(super) stopping: CancellationToken,
    /// Cancelled once a coordinator knows of the stop, or was not reached in time. Reports wait for it.
    pub(super) stopping_heard: CancellationToken,
    /// Cancelled once reports of a stop wait no longer for further releases.
    releases_gathered: CancellationToken,
    /// Cancelled to end all tasks.
    pub(super) end: CancellationToken,
    pub(super) counters: Counters,
    pub(super) measures: ParticipantMeasures,
}

impl ParticipantState {
    pub(super) fn new(config: Config, effects: mpsc::UnboundedSender<Effect>) -> Self {
        Self {
            held_reports: Mutex::new(HeldReports::new(config.loss_delay)),
            failure_timeout_ms: AtomicU64::new(0),
            config,
            clock: BootClock,
            decides: Mutex::new(Participation::new(DisabledRule::default())),
            holdings: ArcSwap::default(),
            effects,
            facts: Notify::new(),
            decided: watch::Sender::new(()),
            phase: watch::Sender::new(Phase::Registering(None)),
            learned: LearnedCoordinators::default(),
            tables: ArcSwap::default(),
            load: ArcSwap::default(),
            stopping: CancellationToken::new(),
            stopping_heard: CancellationToken::new(),
            releases_gathered: CancellationToken::new(),
            end: CancellationToken::new(),
            counters: Counters::default(),
            measures: ParticipantMeasures::default(),
        }
    }

    /// Makes a decision, publishes the owned partitions, and then passes on the resulting requests.
    pub(super) fn decide<T>(&self, change: impl FnOnce(&mut Participation, Millis) -> T) -> T {
        let mut decides = self.decides.lock();
        let now = self.clock.now();
        let lease_until = decides.holdings().until();
        let result = change(&mut decides, now);
        let effects: Vec<Effect> = std::iter::from_fn(|| decides.next_effect()).collect();
        // Before the holdings are published: a lease extended by this decision permits nothing until the service
        // knows of the losses.
        for _ in effects.iter().filter(|effect| matches!(effect, Effect::Lost(_))) {
            self.held_reports.lock().lose(lease_until);
        }
        self.holdings.store(Arc::new(decides.holdings().clone()));
        self.measures.decided(decides.holdings(), || self.clock.now());
        for effect in effects {
            // The callback task ends after the session, so no request is lost.
            let _ = self.effects.send(effect);
        }
        if !decides.reports(1).is_empty() {
            self.facts.notify_one();
        }
        drop(decides);
        self.decided.send_replace(());
        result
    }

    /// Handles the delivery of a loss to the service.
    pub(super) fn deliver_loss(&self) {
        self.held_reports.lock().deliver(self.clock.now());
        self.facts.notify_one();
        self.decided.send_replace(());
    }

    /// Lets a stopping participant report its releases, once all are done or [`GATHER_WITHIN`] has passed.
    pub(super) fn end_wait_for_stop(&self) {
        self.stopping_heard.cancel();
        self.facts.notify_one();
    }

    /// Waits until the releases of a stop can be reported together, for at most [`GATHER_WITHIN`]. Then each is reported
    /// when it is done.
    pub(super) async fn gather_releases(&self) {
        let _ = timeout(GATHER_WITHIN, self.until(Participation::has_given_up)).await;
        self.releases_gathered.cancel();
        self.facts.notify_one();
    }

    /// Returns whether reports wait: for a coordinator to know of the stop, since partitions that are reported before would
    /// be given back; then for the other releases, since each request costs the coordinators a commit.
    fn awaits_stop(&self, decides: &Participation) -> bool {
        self.stopping.is_cancelled()
            && !(self.stopping_heard.is_cancelled()
                && (self.releases_gathered.is_cancelled() || decides.has_given_up()))
    }

    /// Remembers the tables that a coordinator names. Dropped ones are kept for a while, because their partitions are
    /// lost later.
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

    /// Returns the name of a table. Coordinators of older versions send none: then it is the only served table, or
    /// the number.
    pub(super) fn table_name(&self, id: TableId) -> Arc<str> {
        let known = self.tables.load();
        let name = known.iter().rev().find(|(other, _)| *other == id).map(|(_, name)| Arc::clone(name));
        name.unwrap_or_else(|| match &self.config.served.tables[..] {
            [only] => only.as_str().into(),
            _ => id.to_string().into(),
        })
    }

    /// Reads the decisions.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Participation) -> T) -> T {
        look(&self.decides.lock())
    }

    /// Creates a heartbeat that is about to be sent.
    pub(super) fn send(&self) -> Heartbeat {
        let mut decides = self.decides.lock();
        decides.send(self.clock.now())
    }

    /// Waits until the decisions satisfy a condition.
    pub(super) async fn until(&self, reached: impl Fn(&Participation) -> bool) {
        let mut decided = self.decided.subscribe();
        while !self.look(&reached) {
            // `self` holds the sender.
            let _ = decided.changed().await;
        }
    }

    /// Waits until the session has ended and no more decisions are made.
    pub(super) async fn over(&self) {
        // `self` holds the sender.
        let _ = self.phase.subscribe().wait_for(|phase| matches!(phase, Phase::Ended(_))).await;
    }

    /// Returns a receiver of changes of the decisions.
    pub(super) fn decisions(&self) -> watch::Receiver<()> {
        self.decided.subscribe()
    }

    // The published state is read first and the clock afterwards: the clock may only be later.

    /// Returns the acquisition if the partition accepts new work now.
    pub(super) fn have(&self, partition: PartitionId) -> Option<Acquisition> {
        let holdings = self.holdings.load();
        holdings.have(partition, self.clock.now())
    }

    /// Returns whether the acquisition is owned now.
    pub(super) fn check(&self, acquired: Acquisition) -> bool {
        let holdings = self.holdings.load();
        holdings.check(acquired, self.clock.now())
    }

    /// Returns all acquisitions that accept new work now.
    pub(super) fn owned(&self) -> Vec<Acquisition> {
        let holdings = self.holdings.load();
        holdings.owned(self.clock.now()).collect()
    }

    /// Returns the end of the lease.
    pub(super) fn lease_until(&self) -> Option<Millis> {
        self.holdings.load().until()
    }

    /// Returns the remaining time of the lease; zero without one, and while a loss is being delivered.
    pub(super) fn lease_left(&self) -> Duration {
        let until = self.lease_until();
        // After the lease: a lease that a decision has extended is published after its losses are counted.
        if self.held_reports.lock().is_delivering() {
            return Duration::ZERO;
        }
        self.time_until(until)
    }

    /// Returns the time for which the lease covers the acquisition without a further heartbeat; zero if it is lost.
    pub(super) fn valid_for(&self, acquired: Acquisition) -> Duration {
        let holdings = self.holdings.load();
        let left = self.time_until(holdings.until());
        if holdings.check(acquired, self.clock.now()) { left } else { Duration::ZERO }
    }

    fn time_until(&self, until: Option<Millis>) -> Duration {
        Duration::from_millis(until.map_or(0, |until| until.since(self.clock.now())))
    }

    /// Sets the failure time-out of the participant, once it is registered.
    pub(super) fn set_failure_timeout(&self, millis: u64) {
        self.failure_timeout_ms.store(millis, Ordering::Relaxed);
    }

    /// Returns the time that coordinators wait for a release at a hand-over.
    pub(super) fn hand_over_limit(&self) -> Duration {
        Duration::from_millis(self.failure_timeout_ms.load(Ordering::Relaxed).saturating_mul(RELEASE_TIMEOUTS))
    }

    /// Returns whether a service may still act for a lost partition.
    pub(super) fn holds_reports(&self) -> bool {
        self.held_reports.lock().holds(self.clock.now())
    }

    /// Waits until no service can act for a lost partition.
    pub(super) async fn losses_settled(&self) {
        let mut decided = self.decided.subscribe();
        loop {
            decided.borrow_and_update();
            let held = self.held_reports.lock().held_for(self.clock.now());
            match held {
                Some(Duration::ZERO) => return,
                Some(time) => sleep(time).await,
                // `self` holds the sender.
                None => drop(decided.changed().await),
            }
        }
    }

    /// Waits until the participant can leave: everything is released and reported, and no service can act for a lost
    /// partition.
    pub(super) async fn released(&self) {
        loop {
            self.until(Participation::is_done).await;
            self.losses_settled().await;
            if self.is_released() {
                return;
            }
        }
    }

    /// Returns whether the participant can leave.
    pub(super) fn is_released(&self) -> bool {
        self.look(|decides| decides.is_done() && !self.holds_reports())
    }
}

impl Facts for ParticipantState {
    fn peek(&self, count: usize) -> Vec<Report> {
        // In one look: a loss decided in between would be reported at once.
        self.look(
            |decides| {
                if self.holds_reports() || self.awaits_stop(decides) { Vec::new() } else { decides.reports(count) }
            },
        )
    }

    fn answered(&self, report: &Report, refused: Option<ErrorKind>) -> bool {
        self.decide(|decides, _| decides.reported(report, refused))
    }

    async fn filled(&self) {
        let held = self.held_reports.lock().held_for(self.clock.now()).filter(|time| !time.is_zero());
        tokio::select! {
            () = self.facts.notified() => {}
            () = sleep(held.unwrap_or_default()), if held.is_some() => {}
        }
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
