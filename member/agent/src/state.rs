//! State shared by sessions and connections: the session of now, and the owners of partitions.

use crate::agent_metrics::{AgentReadings, Counters};
use crate::config::AgentConfig;
use crate::library_metrics::LibraryMetrics;
use crate::live_session::{Command, LiveSession, Settings, millis};
use crate::map_file::{self, MapFile};
use crate::protocol::{ErrorBody, ErrorKind, Hello, SessionState, Status, VERSION};
use crate::routes::Routes;
use archon_client::{Participant, ParticipantBuilder};
use archon_telemetry::Family;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The session of now.
#[derive(Default)]
enum CurrentSession {
    #[default]
    Waiting,
    Live(Arc<LiveSession>),
    Stopping,
}

/// State shared by sessions and connections.
pub(crate) struct AgentState {
    pub(crate) config: AgentConfig,
    current: Mutex<CurrentSession>,
    begun: mpsc::Sender<StartedSession>,
    pub(crate) routes: Routes,
    pub(crate) counters: Counters,
    library: &'static Arc<LibraryMetrics>,
}

/// A session that has begun.
pub(crate) struct StartedSession {
    pub(crate) live: Arc<LiveSession>,
    pub(crate) commands: mpsc::Receiver<Command>,
}

impl AgentState {
    /// Starts without a session. Sessions that begin are sent to `begun`.
    pub(crate) fn new(config: AgentConfig, begun: mpsc::Sender<StartedSession>) -> Self {
        // Before the first client and participant, which look for a recorder once.
        let library = LibraryMetrics::installed();
        let routes = Routes::new(config.coordinators.clone(), config.transport.clone(), &config.tables);
        Self { config, current: Mutex::default(), begun, routes, counters: Counters::default(), library }
    }

    /// Starts to keep the files with owners up to date, until the result is dropped.
    pub(crate) fn keep_maps(self: &Arc<Self>) -> JoinSet<()> {
        let keep = |file: MapFile| {
            let shared = Arc::clone(self);
            async move { map_file::keep(&shared.routes, &file).await }
        };
        self.config.maps.iter().cloned().map(keep).collect()
    }

    /// Ends the session of now. The agent takes another one unless it stops.
    pub(crate) fn set_ended(&self, stops: bool) {
        let mut current = self.current.lock();
        if let CurrentSession::Live(live) = &*current {
            self.counters.past_events.add(live.reading().events);
        }
        *current = if stops { CurrentSession::Stopping } else { CurrentSession::Waiting };
    }

    /// Begins a session for a new service, with its connection.
    ///
    /// # Errors
    /// Another session has not ended.
    pub(crate) fn begin(&self, cut: CancellationToken) -> Result<Arc<LiveSession>, ErrorBody> {
        let busy = |message: &str| Err(ErrorBody::new(ErrorKind::Busy, message));
        let mut current = self.current.lock();
        match &*current {
            CurrentSession::Waiting => {}
            CurrentSession::Stopping => return busy("the agent stops"),
            CurrentSession::Live(live) => {
                return match live.supersede() {
                    SessionState::Connected => busy(
                        "another process of the service is connected; end it first, or start an agent of its own for \
                         this one",
                    ),
                    _ => busy("the partitions of the previous session are being handed over; try again"),
                };
            }
        }
        let name = format!("{:016x}", rand::random::<u64>());
        let (live, commands) = LiveSession::new(name, self.settings(), cut);
        let live = Arc::new(live);
        let begun = StartedSession { live: Arc::clone(&live), commands };
        if self.begun.try_send(begun).is_err() {
            return busy("the agent stops");
        }
        self.counters.sessions.add(1);
        *current = CurrentSession::Live(Arc::clone(&live));
        Ok(live)
    }

    /// Returns the session of this name.
    ///
    /// # Errors
    /// It has ended.
    pub(crate) fn session(&self, name: &str) -> Result<Arc<LiveSession>, ErrorBody> {
        match &*self.current.lock() {
            CurrentSession::Live(live) if live.name() == name => Ok(Arc::clone(live)),
            _ => {
                let message = format!(
                    "session {name:?} has ended; begin another one with `GET /v1/events` and the header \
                     `archon-session: new`"
                );
                Err(ErrorBody::new(ErrorKind::Ended, message))
            }
        }
    }

    /// Returns the first message of a session.
    pub(crate) fn hello(&self, live: &LiveSession) -> Hello {
        let service_lease_for_ms = millis(self.config.service_lease);
        Hello {
            version: VERSION,
            session: live.name().to_owned(),
            participant: self.config.name.clone(),
            tables: self.config.tables.clone(),
            service_lease_for_ms,
            heartbeat_every_for_ms: (service_lease_for_ms / 4).max(1),
        }
    }

    /// Returns the state.
    pub(crate) fn status(&self) -> Status {
        let (state, owned) = match &*self.current.lock() {
            CurrentSession::Waiting => (SessionState::Waiting, 0),
            CurrentSession::Stopping => (SessionState::Ending, 0),
            CurrentSession::Live(live) => {
                let reading = live.reading();
                (reading.state, reading.owned)
            }
        };
        let participant = self.config.name.clone();
        Status { version: VERSION, participant, state, partitions_owned: owned }
    }

    /// Returns the metrics of the agent and of the client library.
    pub(crate) fn families(&self) -> Vec<Family> {
        let current = self.current.lock();
        let live = if let CurrentSession::Live(live) = &*current { Some(live) } else { None };
        let reading = live.map(|live| live.reading());
        let readings = AgentReadings {
            service_connected: reading.is_some_and(|reading| reading.state == SessionState::Connected),
            registered: live.is_some_and(|live| live.is_registered()),
            partitions: reading.map_or(0, |reading| reading.owned),
            permission_left: Duration::from_millis(reading.map_or(0, |reading| reading.permission_left_ms)),
            events: self.counters.past_events.get() + reading.map_or(0, |reading| reading.events),
            events_unconfirmed: reading.map_or(0, |reading| reading.events_unconfirmed),
            sessions: self.counters.sessions.get(),
            sessions_ended: self.counters.ends(),
            requests_refused: self.counters.refusals(),
        };
        drop(current);
        let mut families = readings.families();
        families.extend(self.library.families());
        families
    }

    /// Returns why the service cannot own partitions now: it is not connected, or the participant is not registered.
    ///
    /// # Errors
    /// The reason.
    pub(crate) fn ready(&self) -> Result<(), String> {
        match &*self.current.lock() {
            CurrentSession::Waiting => Err("no service is connected".to_owned()),
            CurrentSession::Stopping => Err("the agent stops".to_owned()),
            CurrentSession::Live(live) => match live.reading().state {
                SessionState::Connected if live.is_registered() => Ok(()),
                SessionState::Connected => Err("the participant is not registered yet".to_owned()),
                _ => Err("the service is not connected, or its session ends".to_owned()),
            },
        }
    }

    /// Returns the table that a request means.
    ///
    /// # Errors
    /// It names none, and there are several.
    pub(crate) fn table<'a>(&'a self, named: Option<&'a str>) -> Result<&'a str, ErrorBody> {
        match (named, &self.config.tables[..]) {
            (Some(named), _) => Ok(named),
            (None, [only]) => Ok(only),
            _ => Err(ErrorBody::new(ErrorKind::Invalid, "the agent serves several tables; name one: ?table=NAME")),
        }
    }

    fn settings(&self) -> Settings {
        let only_table = self.table(None).ok().map(str::to_owned);
        Settings { service_lease: self.config.service_lease, only_table, stop_limit: self.config.stop_limit }
    }

    /// Returns a builder of the participant.
    pub(crate) fn participant(&self) -> ParticipantBuilder {
        let config = &self.config;
        let mut builder = Participant::builder(config.coordinators.clone())
            .name(config.name.clone())
            .address(config.address.clone())
            .transport(config.transport.clone())
            .loss_delay(config.service_lease)
            .weight(config.weight);
        for table in &config.tables {
            builder = builder.table(table.clone());
        }
        if let Some(most) = config.partitions_max {
            builder = builder.partitions_max(most);
        }
        if let Some(zone) = &config.zone {
            builder = builder.zone(zone.clone());
        }
        if let Some((heartbeat, lease, failure_timeout)) = config.timing {
            builder = builder.timing(heartbeat, lease, failure_timeout);
        }
        builder
    }
}
