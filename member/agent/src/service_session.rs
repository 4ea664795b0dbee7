//! State machine of one session with a service. Pure: time and events come in as arguments, and effects go out.
//!
//! The service acts by *permissions*: each answer to a heartbeat permits it to act for a while, counted from the moment
//! when it sent the heartbeat. This state machine knows the end of the last permission (`permitted_until`), and gives
//! partitions up on the service's behalf only after that end.

mod answers;

use crate::event_queue::EventQueue;
use crate::protocol::{
    Acquire, EndOfSession, ErrorBody, ErrorKind, Event, Ownership, PartitionLoss, Permission, Release, ReleaseReason,
    SessionState,
};
use archon_client::PartitionId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// A partition offered by the cluster.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) partition: PartitionId,
    pub(crate) table: Arc<str>,
    pub(crate) epoch: u64,
    pub(crate) lease_left_ms: u64,
}

/// Request to the shell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// The service has acquired the partition of this event.
    Acquired { sequence: u64 },
    /// The service cannot acquire the partition of this event.
    Refused { sequence: u64, partition: PartitionId, reason: String },
    /// The service has finished with the partition of this event.
    Released { sequence: u64, partition: PartitionId },
    /// The service does not want the partition.
    Drop(PartitionId),
    /// Load of the service.
    Load { bytes_stored: u64, operations_per_second: u64 },
    /// The service stops.
    Stop,
}

/// Result of a look for further events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum EventPoll {
    /// Events in order, and the position after them.
    Events(Vec<Arc<Event>>, u64),
    /// There are none yet.
    Wait,
    /// There will be none on this connection.
    Close,
}

/// Facts about a session that its stream and its start wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Progress {
    /// Connection that receives the events.
    pub(crate) connection: Option<u64>,
    /// Number of the newest event.
    newest: u64,
    is_heard: bool,
    is_over: bool,
}

/// Facts about a session for metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SessionReading {
    pub(crate) state: SessionState,
    /// Partitions that the service has acquired.
    pub(crate) owned: u64,
    /// Number of the newest event.
    pub(crate) events: u64,
    pub(crate) events_unconfirmed: u64,
    /// Time until the last permission ends.
    pub(crate) permission_left_ms: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Acquiring,
    Owned,
    Releasing { sequence: u64 },
}

/// A partition that the service knows.
#[derive(Clone, Debug)]
struct Work {
    table: Arc<str>,
    epoch: u64,
    /// Number of its `acquire`.
    acquire: u64,
    stage: Stage,
}

/// The session. Every input first applies the time.
#[derive(Debug)]
pub(crate) struct ServiceSession {
    service_lease_ms: u64,
    /// Events that the service has not received.
    events: EventQueue,
    /// Number that the answer to the previous heartbeat named.
    named: u64,
    works: BTreeMap<PartitionId, Work>,
    by_name: BTreeMap<(Arc<str>, u32), PartitionId>,
    /// Events that await an answer or were answered by `acquired`.
    by_sequence: BTreeMap<u64, PartitionId>,
    finished: BTreeSet<u64>,
    connection: Option<u64>,
    /// End of the last permission.
    permitted_until: u64,
    /// End of the accepted silence.
    alive_until: u64,
    /// A heartbeat has been accepted.
    heard: bool,
    /// Reason to end once the last permission has ended.
    doomed: Option<String>,
    stopping: bool,
    over: bool,
    effects: VecDeque<Effect>,
}

impl ServiceSession {
    /// Starts with a connected service. Times are milliseconds of a monotonic clock.
    pub(crate) fn new(service_lease_ms: u64, connection: u64, now: u64) -> Self {
        Self {
            service_lease_ms,
            events: EventQueue::default(),
            named: 0,
            works: BTreeMap::new(),
            by_name: BTreeMap::new(),
            by_sequence: BTreeMap::new(),
            finished: BTreeSet::new(),
            connection: Some(connection),
            permitted_until: 0,
            alive_until: now.saturating_add(service_lease_ms).saturating_add(1),
            heard: false,
            doomed: None,
            stopping: false,
            over: false,
            effects: VecDeque::new(),
        }
    }

    /// Accepts silence for this time until the first heartbeat, instead of the service's lease.
    pub(crate) fn allow_start(&mut self, limit_ms: u64, now: u64) {
        self.alive_until = now.saturating_add(limit_ms).saturating_add(1);
    }

    /// Returns whether the service has sent a heartbeat.
    pub(crate) const fn is_heard(&self) -> bool {
        self.heard
    }

    /// Offers a partition to the service. Returns the number of the event, or `None` if the service takes nothing.
    pub(crate) fn acquire(&mut self, offer: Offer, now: u64) -> Option<u64> {
        self.tick(now);
        if self.over || self.stopping || self.doomed.is_some() {
            return None;
        }
        let Offer { partition, table, epoch, lease_left_ms } = offer;
        let sequence = self.events.next_number();
        self.push(Event::Acquire(Acquire {
            sequence,
            table: table.to_string(),
            table_id: partition.table.get(),
            partition: partition.index,
            epoch,
            lease_left_for_ms: lease_left_ms,
        }));
        self.by_name.insert((Arc::clone(&table), partition.index), partition);
        self.by_sequence.insert(sequence, partition);
        self.works.insert(partition, Work { table, epoch, acquire: sequence, stage: Stage::Acquiring });
        Some(sequence)
    }

    /// Asks the service to give a partition up. Returns the number of the event, or `None` if the service has nothing
    /// to give up.
    pub(crate) fn release(
        &mut self,
        partition: PartitionId,
        reason: ReleaseReason,
        deadline_ms: Option<u64>,
        lease_left_ms: u64,
        now: u64,
    ) -> Option<u64> {
        self.tick(now);
        let sequence = self.events.next_number();
        let work = self.works.get_mut(&partition)?;
        work.stage = Stage::Releasing { sequence };
        let event = Release {
            sequence,
            table: work.table.to_string(),
            table_id: partition.table.get(),
            partition: partition.index,
            epoch: work.epoch,
            reason,
            deadline_for_ms: deadline_ms,
            lease_left_for_ms: lease_left_ms,
        };
        self.by_sequence.insert(sequence, partition);
        self.push(Event::Release(event));
        Some(sequence)
    }

    /// Handles a loss in this epoch. Returns the number of the event that needs no answer after it.
    pub(crate) fn lost(&mut self, partition: PartitionId, epoch: u64, now: u64) -> Option<u64> {
        self.tick(now);
        self.works.get(&partition).filter(|work| work.epoch == epoch)?;
        let work = self.remove(partition)?;
        self.push(Event::Lost(PartitionLoss {
            sequence: self.events.next_number(),
            table: work.table.to_string(),
            table_id: partition.table.get(),
            partition: partition.index,
            epoch: work.epoch,
        }));
        match work.stage {
            Stage::Acquiring => Some(work.acquire),
            Stage::Owned => None,
            Stage::Releasing { sequence } => Some(sequence),
        }
    }

    /// Continues the session on another connection, which replaces the present one. `seen` is the newest event that
    /// the service has received.
    ///
    /// # Errors
    /// The session has ended, or never had such an event.
    pub(crate) fn attach(&mut self, connection: u64, seen: u64, now: u64) -> Result<(), ErrorBody> {
        self.tick(now);
        self.check_running()?;
        self.events.confirm(seen)?;
        let received = self.events.seen();
        if seen < received {
            let message = format!("event {received} was received before, so the stream cannot continue after {seen}");
            return Err(ErrorBody::new(ErrorKind::Invalid, message));
        }
        self.connection = Some(connection);
        self.alive_until = self.alive_until.max(now.saturating_add(self.service_lease_ms).saturating_add(1));
        Ok(())
    }

    /// Handles the end of a connection.
    pub(crate) fn detach(&mut self, connection: u64, now: u64) {
        self.tick(now);
        if self.connection == Some(connection) {
            self.connection = None;
        }
        self.tick(now);
    }

    /// Ends the session once the last permission has ended: the service has ended, but a part of it may act until
    /// then. Returns whether the session ends by it.
    pub(crate) fn retire(&mut self, reason: &str, now: u64) -> bool {
        self.tick(now);
        if self.over {
            return false;
        }
        self.doom(reason);
        self.tick(now);
        true
    }

    /// Handles the certain end of the service: nothing acts by its permissions. Returns whether the session ends by it.
    pub(crate) fn gone(&mut self, reason: &str, now: u64) -> bool {
        self.tick(now);
        if self.over {
            return false;
        }
        self.permitted_until = self.permitted_until.min(now);
        self.doom(reason);
        self.tick(now);
        true
    }

    /// Gives up a service that is not connected in favour of a new one, once its permission has ended.
    pub(crate) fn supersede(&mut self, now: u64) -> SessionState {
        self.tick(now);
        if self.state() == SessionState::Interrupted {
            self.doom("another process of the service has connected");
            self.tick(now);
        }
        self.state()
    }

    /// Answers a heartbeat. `lease_left_ms` is the remaining time of the participant's lease.
    ///
    /// # Errors
    /// The session has ended, or never had such an event.
    pub(crate) fn heartbeat(&mut self, seen: u64, lease_left_ms: u64, now: u64) -> Result<Permission, ErrorBody> {
        self.tick(now);
        self.check_running()?;
        self.events.confirm(seen)?;
        self.heard = true;
        // A service that receives no events must not go on: a loss may be among them.
        let counts = self.connection.is_some() && self.events.seen() >= self.named;
        self.named = self.events.newest();
        let mut valid_for_ms = 0;
        if counts {
            self.alive_until = now.saturating_add(self.service_lease_ms).saturating_add(1);
            valid_for_ms = self.permit(lease_left_ms, now);
        }
        Ok(Permission { valid_for_ms, sequence: self.events.newest() })
    }

    /// Answers whether the service may act for a partition. `lease_left_ms` is zero if the participant does not own
    /// it now.
    ///
    /// # Errors
    /// The session has ended.
    pub(crate) fn owned(
        &mut self,
        table: &str,
        index: u32,
        lease_left_ms: impl FnOnce(PartitionId) -> u64,
        now: u64,
    ) -> Result<Ownership, ErrorBody> {
        self.tick(now);
        self.check_running()?;
        let mut answer = Ownership {
            table: table.to_owned(),
            partition: index,
            owned: false,
            releasing: false,
            epoch: 0,
            valid_for_ms: 0,
        };
        let partition = self.by_name.get(&(Arc::from(table), index)).copied();
        let Some((partition, work)) = partition.and_then(|id| Some((id, self.works.get(&id)?.clone()))) else {
            return Ok(answer);
        };
        if work.stage == Stage::Acquiring || self.connection.is_none() {
            return Ok(answer);
        }
        let valid_for_ms = self.permit(lease_left_ms(partition), now);
        if valid_for_ms > 0 {
            answer.owned = true;
            answer.releasing = work.stage != Stage::Owned;
            (answer.epoch, answer.valid_for_ms) = (work.epoch, valid_for_ms);
        }
        Ok(answer)
    }

    /// Returns events after a position, for one connection.
    pub(crate) fn events_after(&self, connection: u64, position: u64, most: usize) -> EventPoll {
        if self.connection != Some(connection) {
            return EventPoll::Close;
        }
        match self.events.after(position, most) {
            (events, _) if events.is_empty() && self.over => EventPoll::Close,
            (events, _) if events.is_empty() => EventPoll::Wait,
            (events, end) => EventPoll::Events(events, end),
        }
    }

    /// Returns the time of the next change that comes without an input.
    pub(crate) fn deadline(&self) -> Option<u64> {
        if self.over {
            return None;
        }
        if self.doomed.is_some() {
            return Some(self.permitted_until);
        }
        // A service that owns nothing has the whole silence to come back.
        let gone = self.connection.is_none() && !self.works.is_empty();
        Some(if gone { self.permitted_until } else { self.alive_until })
    }

    /// Applies the time.
    pub(crate) fn tick(&mut self, now: u64) {
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            let reason = match self.doomed.take() {
                Some(reason) => reason,
                None if self.connection.is_none() => "the connection of the service has ended".to_owned(),
                None => "the service sends no heartbeats, or receives no events".to_owned(),
            };
            self.end(&reason);
        }
    }

    /// Ends the session. The caller knows that every permission has ended, or that nothing is owned.
    pub(crate) fn end(&mut self, reason: &str) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        for (partition, work) in std::mem::take(&mut self.works) {
            match work.stage {
                Stage::Acquiring => self.effects.push_back(Effect::Refused {
                    sequence: work.acquire,
                    partition,
                    reason: reason.to_owned(),
                }),
                Stage::Owned => {}
                Stage::Releasing { sequence } => self.effects.push_back(Effect::Released { sequence, partition }),
            }
        }
        self.by_name.clear();
        self.by_sequence.clear();
        let ended = EndOfSession { sequence: self.events.next_number(), reason: reason.to_owned() };
        self.events.push(Event::Ended(ended));
    }

    /// Returns the next request to the shell.
    pub(crate) fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Returns whether the session has ended.
    #[cfg(test)]
    pub(crate) const fn is_over(&self) -> bool {
        self.over
    }

    /// Returns the state for people.
    pub(crate) const fn state(&self) -> SessionState {
        match (self.over || self.stopping || self.doomed.is_some(), self.connection) {
            (true, _) => SessionState::Ending,
            (false, Some(_)) => SessionState::Connected,
            (false, None) => SessionState::Interrupted,
        }
    }

    /// Returns the number of partitions that the service has acquired.
    pub(crate) fn owned_count(&self) -> usize {
        self.works.values().filter(|work| work.stage != Stage::Acquiring).count()
    }

    /// Returns the facts for metrics at `now`.
    pub(crate) fn reading(&self, now: u64) -> SessionReading {
        SessionReading {
            state: self.state(),
            owned: self.owned_count() as u64,
            events: self.events.newest(),
            events_unconfirmed: self.events.unread() as u64,
            permission_left_ms: if self.over { 0 } else { self.permitted_until.saturating_sub(now) },
        }
    }

    /// Returns the facts that the stream and the start wait for.
    pub(crate) const fn progress(&self) -> Progress {
        Progress { connection: self.connection, newest: self.events.newest(), is_heard: self.heard, is_over: self.over }
    }

    /// Permits the service to act, and returns for how long. Every permission ends before the accepted silence does.
    fn permit(&mut self, lease_left_ms: u64, now: u64) -> u64 {
        // Both clocks are read in whole milliseconds.
        let silence = self.alive_until.saturating_sub(now).saturating_sub(1);
        let valid_for_ms = lease_left_ms.saturating_sub(1).min(self.service_lease_ms).min(silence);
        if valid_for_ms > 0 {
            self.permitted_until = self.permitted_until.max(now + valid_for_ms + 1);
        }
        valid_for_ms
    }

    fn check_running(&self) -> Result<(), ErrorBody> {
        if self.over || self.doomed.is_some() {
            let message = "the session has ended; begin another one with the header `archon-session: new`";
            return Err(ErrorBody::new(ErrorKind::Ended, message));
        }
        Ok(())
    }

    fn push(&mut self, event: Event) {
        if self.events.push(event) {
            self.doom("the service does not receive its events");
        }
    }

    fn doom(&mut self, reason: &str) {
        self.connection = None;
        self.doomed.get_or_insert_with(|| reason.to_owned());
    }

    fn remove(&mut self, partition: PartitionId) -> Option<Work> {
        let work = self.works.remove(&partition)?;
        let name = (Arc::clone(&work.table), partition.index);
        if self.by_name.get(&name) == Some(&partition) {
            self.by_name.remove(&name);
        }
        self.by_sequence.remove(&work.acquire);
        if let Stage::Releasing { sequence } = work.stage {
            self.by_sequence.remove(&sequence);
        }
        Some(work)
    }
}

#[cfg(test)]
mod model_tests;
#[cfg(test)]
#[path = "service_session_tests.rs"]
mod tests;
