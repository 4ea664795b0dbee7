//! A running session: the state machine behind a lock, with the callbacks of the participant and the streams of the
//! service.

use crate::protocol::{
    Answer, AnswerOutcomes, ErrorBody, ErrorKind, Event, Ownership, Permission, RefusedAnswer, ReleaseReason,
    SessionState,
};
use crate::service_session::{Effect, EventPoll, Offer, ServiceSession, SessionReading};
use archon_client::{AcquireError, Callbacks, Epoch, Grant, PartitionId, ReleaseCause, ServiceLoad};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Maximum number of unexecuted requests of the service to the participant.
const COMMANDS_MAX: usize = 1_024;

/// Request of the service to the participant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    Drop(PartitionId),
    Load(ServiceLoad),
}

/// Facts that the library does not pass to callbacks.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) service_lease: Duration,
    /// The only table, for answers that name none.
    pub(crate) only_table: Option<String>,
    /// Time limit of releases at a stop.
    pub(crate) stop_limit: Duration,
}

struct State {
    core: ServiceSession,
    grants: BTreeMap<PartitionId, Grant>,
    /// Callbacks that wait for an answer, by the number of their event.
    waiting: BTreeMap<u64, oneshot::Sender<Result<(), FailedAcquisition>>>,
    /// Ends the present connection.
    cut: CancellationToken,
}

/// A running session.
pub(crate) struct LiveSession {
    name: String,
    settings: Settings,
    origin: Instant,
    state: Mutex<State>,
    /// Changes with [`ServiceSession::progress`].
    progressed: watch::Sender<()>,
    /// Changes when the deadline of the session becomes earlier.
    deadline_moved: watch::Sender<()>,
    commands: mpsc::Sender<Command>,
    /// Cancelled by a `stop` of the service, which is not queued: it must not be dropped.
    service_stops: CancellationToken,
    /// Cancelled once the participant stops, or its run has ended.
    participant_stops: CancellationToken,
    connections: AtomicU64,
    /// The cluster has registered the participant.
    registered: AtomicBool,
}

impl LiveSession {
    /// Starts a session with its first connection, which has the number 1. `cut` ends that connection.
    pub(crate) fn new(name: String, settings: Settings, cut: CancellationToken) -> (Self, mpsc::Receiver<Command>) {
        let (commands, received) = mpsc::channel(COMMANDS_MAX);
        let lease_ms = millis(settings.service_lease);
        let state =
            State { core: ServiceSession::new(lease_ms, 1, 0), grants: BTreeMap::new(), waiting: BTreeMap::new(), cut };
        let live = Self {
            name,
            settings,
            origin: Instant::now(),
            state: Mutex::new(state),
            progressed: watch::Sender::new(()),
            deadline_moved: watch::Sender::new(()),
            commands,
            service_stops: CancellationToken::new(),
            participant_stops: CancellationToken::new(),
            connections: AtomicU64::new(1),
            registered: AtomicBool::new(false),
        };
        (live, received)
    }

    /// Returns the name of the session.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Changes the state, and carries out the effects. Wakes those tasks alone that have something to do: most inputs are
    /// heartbeats and answers, which concern neither the stream nor the clock.
    fn change<T>(&self, change: impl FnOnce(&mut State, u64) -> T) -> T {
        let mut state = self.state.lock();
        let (before, end_before) = (state.core.progress(), state.core.deadline());
        // Under the lock, so that time never runs backwards for the state machine.
        let now = millis(self.origin.elapsed());
        let result = change(&mut state, now);
        while let Some(effect) = state.core.next_effect() {
            self.carry_out(&mut state, effect);
        }
        let (after, end_after) = (state.core.progress(), state.core.deadline());
        if before.connection.is_some() && after.connection.is_none() {
            state.cut.cancel();
        }
        drop(state);
        if before != after {
            self.progressed.send_replace(());
        }
        if end_before.is_some_and(|before| end_after.is_none_or(|after| after < before)) {
            self.deadline_moved.send_replace(());
        }
        result
    }

    fn carry_out(&self, state: &mut State, effect: Effect) {
        let mut resolve = |sequence, result| {
            if let Some(waiting) = state.waiting.remove(&sequence) {
                // Without a receiver, the library has cancelled the callback.
                let _ = waiting.send(result);
            }
        };
        match effect {
            Effect::Acquired { sequence } => resolve(sequence, Ok(())),
            Effect::Refused { sequence, partition, reason } => {
                resolve(sequence, Err(self.failed(reason)));
                state.grants.remove(&partition);
            }
            Effect::Released { sequence, partition } => {
                resolve(sequence, Ok(()));
                state.grants.remove(&partition);
            }
            Effect::Drop(partition) => self.command(Command::Drop(partition)),
            Effect::Load { bytes_stored, operations_per_second } => {
                self.command(Command::Load(ServiceLoad { bytes_stored, operations_per_second }));
            }
            Effect::Stop => self.service_stops.cancel(),
        }
    }

    /// Queues a command; [`Self::answer`] has found room.
    fn command(&self, command: Command) {
        if self.commands.try_send(command).is_err() {
            tracing::warn!(?command, "a request of the service came too late or too fast; it is dropped");
        }
    }

    /// Continues the session on another connection, and returns its number. `cut` ends it.
    ///
    /// # Errors
    /// As [`ServiceSession::attach`].
    pub(crate) fn attach(&self, seen: u64, cut: CancellationToken) -> Result<u64, ErrorBody> {
        let connection = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        self.change(|state, now| {
            state.core.attach(connection, seen, now)?;
            std::mem::replace(&mut state.cut, cut).cancel();
            Ok(connection)
        })
    }

    /// Handles the end of a connection.
    pub(crate) fn detach(&self, connection: u64) {
        self.change(|state, now| state.core.detach(connection, now));
    }

    /// Waits until the service stops.
    pub(crate) async fn service_stops(&self) {
        self.service_stops.cancelled().await;
    }

    /// Returns the token to cancel once the participant stops, or its run has ended.
    pub(crate) const fn participant_stops(&self) -> &CancellationToken {
        &self.participant_stops
    }

    /// Returns a failure of an acquisition that happens now.
    fn failed(&self, reason: String) -> FailedAcquisition {
        FailedAcquisition { reason, after_stop: self.service_stops.is_cancelled() }
    }

    /// Accepts silence for this time until the first heartbeat.
    pub(crate) fn allow_start(&self, limit: Duration) {
        self.change(|state, now| state.core.allow_start(millis(limit), now));
    }

    /// Returns whether the service has sent a heartbeat.
    pub(crate) fn is_heard(&self) -> bool {
        self.state.lock().core.is_heard()
    }

    /// Waits for the first heartbeat.
    pub(crate) async fn first_heartbeat(&self) {
        let mut progressed = self.progressed.subscribe();
        while !self.is_heard() {
            // `self` holds the sender.
            let _ = progressed.changed().await;
        }
    }

    /// Ends the session once the last permission has ended. Returns whether the session ends by it.
    pub(crate) fn retire(&self, reason: &str) -> bool {
        self.change(|state, now| state.core.retire(reason, now))
    }

    /// Handles the certain end of the service. Returns whether the session ends by it.
    pub(crate) fn gone(&self, reason: &str) -> bool {
        self.change(|state, now| state.core.gone(reason, now))
    }

    /// Gives the session up if its service is not connected.
    pub(crate) fn supersede(&self) -> SessionState {
        self.change(|state, now| state.core.supersede(now))
    }

    /// Answers a heartbeat.
    ///
    /// # Errors
    /// As [`ServiceSession::heartbeat`].
    pub(crate) fn heartbeat(&self, seen: u64) -> Result<Permission, ErrorBody> {
        self.change(|state, now| {
            // The lease is one of the participant; every grant knows it. It is zero until `lost` has named every loss.
            let left = state.grants.values().next().map_or(0, |grant| millis(grant.lease_left()));
            state.core.heartbeat(seen, left, now)
        })
    }

    /// Answers whether the service may act for a partition.
    ///
    /// # Errors
    /// As [`ServiceSession::owned`].
    pub(crate) fn owned(&self, table: &str, index: u32) -> Result<Ownership, ErrorBody> {
        self.change(|state, now| {
            let grants = &state.grants;
            // Of this partition alone: it is owned, even while the loss of another one is on its way.
            let left = |partition| grants.get(&partition).map_or(0, |grant: &Grant| millis(grant.valid_for()));
            state.core.owned(table, index, left, now)
        })
    }

    /// Takes an answer of the service.
    ///
    /// # Errors
    /// As [`ServiceSession::answer`]; too many requests wait for the participant.
    pub(crate) fn answer(&self, answer: Answer) -> Result<(), ErrorBody> {
        match self.answers(vec![Ok(answer)]).refused.pop() {
            Some(refused) => Err(refused.error),
            None => Ok(()),
        }
    }

    /// Takes answers of the service in their order, as one change: the participant reports their effects together. Malformed
    /// answers are refused with their errors, and do not concern the others.
    pub(crate) fn answers(&self, answers: Vec<Result<Answer, ErrorBody>>) -> AnswerOutcomes {
        self.change(|state, now| {
            // Commands are queued under this lock alone.
            let mut room = self.commands.capacity();
            let mut take = |answer| {
                if matches!(answer, Answer::Drop { .. } | Answer::Load { .. }) {
                    room = room.checked_sub(1).ok_or_else(|| {
                        let message = format!("{COMMANDS_MAX} requests of the service wait; send them more slowly");
                        ErrorBody::new(ErrorKind::Overloaded, message)
                    })?;
                }
                state.core.answer(answer, self.settings.only_table.as_deref(), now)
            };
            let outcomes = answers.into_iter().map(|answer| answer.and_then(&mut take)).enumerate();
            let refused = outcomes.filter_map(|(index, outcome)| Some(RefusedAnswer { index, error: outcome.err()? }));
            AnswerOutcomes { refused: refused.collect() }
        })
    }

    /// Waits for events after a position. Returns `None` when there will be none on this connection.
    pub(crate) async fn events_after(
        &self,
        connection: u64,
        position: u64,
        most: usize,
    ) -> Option<(Vec<Arc<Event>>, u64)> {
        let mut progressed = self.progressed.subscribe();
        loop {
            progressed.borrow_and_update();
            let next = self.state.lock().core.events_after(connection, position, most);
            match next {
                EventPoll::Events(events, position) => return Some((events, position)),
                EventPoll::Close => return None,
                EventPoll::Wait => {
                    // `self` holds the sender.
                    let _ = progressed.changed().await;
                    // Events of several partitions arise together, in tasks that are ready to run: they travel together.
                    yield_now().await;
                }
            }
        }
    }

    /// Returns the state and numbers of the session.
    pub(crate) fn reading(&self) -> SessionReading {
        self.change(|state, now| {
            state.core.tick(now);
            state.core.reading(now)
        })
    }

    /// Records the registration of the participant.
    pub(crate) fn set_registered(&self) {
        self.registered.store(true, Ordering::Relaxed);
    }

    /// Returns whether the participant is registered.
    pub(crate) fn is_registered(&self) -> bool {
        self.registered.load(Ordering::Relaxed)
    }

    /// Applies the time until the session has ended.
    pub(crate) async fn run_clock(&self) {
        let mut deadline_moved = self.deadline_moved.subscribe();
        loop {
            deadline_moved.borrow_and_update();
            let deadline = self.state.lock().core.deadline();
            let Some(deadline) = deadline else { return };
            tokio::select! {
                // Permissions may have moved the deadline meanwhile.
                () = sleep_until(self.origin + Duration::from_millis(deadline)) => {
                    self.change(|state, now| state.core.tick(now));
                }
                _ = deadline_moved.changed() => {}
            }
        }
    }

    /// Ends the session. The participant has left the cluster, so nothing is owned.
    pub(crate) fn end(&self, reason: &str) {
        self.change(|state, _| state.core.end(reason));
    }

    /// Closes the connection of the service.
    pub(crate) fn cut(&self) {
        self.state.lock().cut.cancel();
    }

    fn limit_of(&self, grant: &Grant, why: ReleaseCause) -> Option<u64> {
        match why {
            ReleaseCause::HandedOver => Some(millis(grant.hand_over_limit())),
            ReleaseCause::Stopped => Some(millis(self.settings.stop_limit)),
            ReleaseCause::Declined => None,
        }
    }
}

/// A partition that the service does not acquire.
struct FailedAcquisition {
    reason: String,
    /// The service had asked to stop before.
    after_stop: bool,
}

/// Callbacks of the participant. A cancelled callback leaves its entry in `waiting` to `lost`, which follows.
pub(crate) struct ServiceCallbacks(pub(crate) Arc<LiveSession>);

impl Callbacks for ServiceCallbacks {
    async fn acquire(&self, grant: Grant) -> Result<(), AcquireError> {
        let (answered, answer) = oneshot::channel();
        let sequence = self.0.change(|state, now| {
            let offer = Offer {
                partition: grant.partition(),
                table: grant.table().into(),
                epoch: grant.epoch().get(),
                lease_left_ms: millis(grant.lease_left()),
            };
            let sequence = state.core.acquire(offer, now)?;
            state.waiting.insert(sequence, answered);
            state.grants.insert(grant.partition(), grant.clone());
            Some(sequence)
        });
        let outcome = match sequence {
            Some(_) => {
                answer.await.unwrap_or_else(|_| Err(self.0.failed("the session with the service has ended".into())))
            }
            None => Err(self.0.failed("no service is connected, or it stops".into())),
        };
        if outcome.as_ref().is_err_and(|failed| failed.after_stop) {
            // A refusal by a stopping participant is a release, and keeps no partition away from the next process.
            self.0.participant_stops.cancelled().await;
        }
        outcome.map_err(|failed| AcquireError::from(failed.reason))
    }

    async fn release(&self, grant: Grant, why: ReleaseCause) {
        let reason = match why {
            ReleaseCause::HandedOver => ReleaseReason::HandedOver,
            ReleaseCause::Declined => ReleaseReason::Dropped,
            ReleaseCause::Stopped => ReleaseReason::Stopped,
        };
        let (answered, answer) = oneshot::channel();
        let (limit_ms, left_ms) = (self.0.limit_of(&grant, why), millis(grant.lease_left()));
        let sequence = self.0.change(|state, now| {
            let sequence = state.core.release(grant.partition(), reason, limit_ms, left_ms, now)?;
            state.waiting.insert(sequence, answered);
            Some(sequence)
        });
        if sequence.is_some() {
            // An error means that the session has ended, and with it every permission.
            let _ = answer.await;
        }
    }

    fn lost(&self, partition: PartitionId, epoch: Epoch) {
        self.0.change(|state, now| {
            if state.grants.get(&partition).is_some_and(|grant| grant.epoch() == epoch) {
                state.grants.remove(&partition);
            }
            if let Some(sequence) = state.core.lost(partition, epoch.get(), now) {
                state.waiting.remove(&sequence);
            }
        });
    }
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
