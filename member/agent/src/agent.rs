//! Sessions one after the other, each with a participant: the participant is a member of the cluster while its service
//! is connected.

use crate::agent_metrics::EndReason;
use crate::config::{AgentConfig, AgentError};
use crate::http::{self, Listener};
use crate::live_session::{Command, LiveSession, ServiceCallbacks};
use crate::state::{AgentState, StartedSession};
use archon_client::Error;
use futures::stream::{FuturesUnordered, StreamExt as _};
use std::collections::BTreeSet;
use std::fmt;
use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Time for the service to read its last events.
const LAST_EVENTS: Duration = Duration::from_secs(1);
/// Maximum duration of a stop beyond [`AgentConfig::stop_limit`]: 2 s for leaving the cluster, then 1 s for the last
/// events or 2 s for the exit of a program, and 2 s of slack.
pub const FAREWELL: Duration = Duration::from_secs(6);

/// Reason for the end of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SessionEnd {
    /// The service sent no heartbeats, or was not connected.
    ServiceGone,
    ServiceStops,
    AgentStops,
}

impl fmt::Display for SessionEnd {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::ServiceGone => "the service is gone",
            Self::ServiceStops => "the service has stopped",
            Self::AgentStops => "the agent stops",
        })
    }
}

impl From<SessionEnd> for EndReason {
    fn from(end: SessionEnd) -> Self {
        match end {
            SessionEnd::ServiceGone => Self::ServiceGone,
            SessionEnd::ServiceStops => Self::ServiceStops,
            SessionEnd::AgentStops => Self::AgentStops,
        }
    }
}

/// An agent that listens for its service.
pub struct Agent {
    shared: Arc<AgentState>,
    listener: Listener,
    begun: mpsc::Receiver<StartedSession>,
}

impl Agent {
    /// Listens for the service. Must be called on a tokio runtime.
    ///
    /// # Errors
    /// The address is beyond this machine without TLS, or not available.
    pub async fn listen(config: AgentConfig) -> Result<Self, AgentError> {
        let listener = Listener::open(&config.listen, &config.transport).await?;
        let (sender, begun) = mpsc::channel(1);
        Ok(Self { shared: Arc::new(AgentState::new(config, sender)), listener, begun })
    }

    /// Returns the address, with the actual port if port 0 was requested.
    pub fn address(&self) -> String {
        self.listener.address()
    }

    /// Returns a check whether the service is connected and the participant registered; it returns the obstacle.
    pub fn readiness(&self) -> impl Fn() -> Result<(), String> + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.ready()
    }

    /// Serves until `stop` is cancelled: then the service releases its partitions, within the limit of a stop.
    ///
    /// # Errors
    /// The cluster has refused the participant permanently.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), AgentError> {
        let end = CancellationToken::new();
        let _guard = end.clone().drop_guard();
        let serving = tokio::spawn(http::serve(self.listener, Arc::clone(&self.shared), end.clone()));
        let _maps = self.shared.keep_maps();
        let outcome = loop {
            let begun = tokio::select! {
                biased;
                () = stop.cancelled() => break Ok(()),
                begun = self.begun.recv() => begun,
            };
            let Some(StartedSession { live, commands }) = begun else { break Ok(()) };
            tracing::info!(session = live.name(), "the service has connected");
            let outcome = run_session(&self.shared, &live, commands, &stop).await;
            let reason = match &outcome {
                Ok(end) => end.to_string(),
                Err(error) => format!("the cluster has refused the participant: {error}"),
            };
            tracing::info!(session = live.name(), reason, "the session has ended");
            live.end(&reason);
            // A next service may begin at once; the old one still reads its last events.
            let stops = outcome.is_err() || stop.is_cancelled();
            self.shared.counters.session_ended(outcome.as_ref().map_or(EndReason::ClusterRefuses, |end| (*end).into()));
            self.shared.set_ended(stops);
            let cut = async move {
                sleep(LAST_EVENTS).await;
                live.cut();
            };
            if stops {
                cut.await;
            } else {
                tokio::spawn(cut);
            }
            if let Err(error) = outcome {
                break Err(error.into());
            }
        };
        self.shared.set_ended(true);
        end.cancel();
        let _ = serving.await;
        outcome
    }
}

/// Runs the participant of a session until the session ends.
pub(crate) async fn run_session(
    shared: &AgentState,
    live: &Arc<LiveSession>,
    mut commands: mpsc::Receiver<Command>,
    stop: &CancellationToken,
) -> Result<SessionEnd, Error> {
    let mut clock = pin!(live.run_clock());
    let stops = live.participant_stops();
    let _guard = stops.clone().drop_guard();
    let (mut dropped, mut load) = (BTreeSet::new(), None);
    let participant = loop {
        let mut starting = pin!(shared.participant().start(ServiceCallbacks(Arc::clone(live))));
        let started = loop {
            tokio::select! {
                started = &mut starting => break started,
                () = &mut clock => return Ok(SessionEnd::ServiceGone),
                () = stop.cancelled() => return Ok(SessionEnd::AgentStops),
                () = live.service_stops() => return Ok(SessionEnd::ServiceStops),
                Some(command) = commands.recv() => match command {
                    Command::Drop(partition) => drop(dropped.insert(partition)),
                    Command::Load(newest) => load = Some(newest),
                },
            }
        };
        match started {
            Ok(participant) => {
                live.set_registered();
                break participant;
            }
            Err(error @ Error::DeadlineExceeded { .. }) => {
                tracing::warn!(%error, "the participant is not registered yet");
            }
            Err(error) => return Err(error),
        }
    };
    let mut drops: FuturesUnordered<_> =
        dropped.into_iter().map(|partition| participant.drop_partition(partition)).collect();
    if let Some(load) = load {
        participant.publish_load(load);
    }
    let mut runs = true;
    let end = loop {
        tokio::select! {
            error = participant.failed() => return Err(error),
            () = &mut clock => {
                runs = false;
                break SessionEnd::ServiceGone;
            }
            () = stop.cancelled() => break SessionEnd::AgentStops,
            () = live.service_stops() => break SessionEnd::ServiceStops,
            Some(_) = drops.next(), if !drops.is_empty() => {}
            Some(command) = commands.recv() => match command {
                Command::Drop(partition) => drops.push(participant.drop_partition(partition)),
                Command::Load(load) => participant.publish_load(load),
            }
        }
    };
    drop(drops);
    let mut stopping = pin!(participant.stop(shared.config.stop_limit));
    let released = loop {
        tokio::select! {
            biased;
            released = &mut stopping => break released,
            // The first poll has begun the stop.
            () = ready(()), if !stops.is_cancelled() => stops.cancel(),
            // A service that dies meanwhile has nothing to release.
            () = &mut clock, if runs => runs = false,
        }
    };
    if !released {
        tracing::warn!("not everything was released in time; others wait for the lease");
    }
    Ok(end)
}
