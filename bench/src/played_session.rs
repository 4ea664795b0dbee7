//! A session of a node that is played: it registers, heartbeats, and registers again when its life is over.

use crate::played_node;
use crate::played_relays::{self, PlayedRelays};
use anyhow::Context;
use archon_load::BeatStream;
use archon_proto::convert::beats::Beat;
use archon_proto::convert::load::Load;
use archon_proto::convert::session::Registered;
use archon_proto::v1::RegisterRequest;
use archon_proto::v1::session_client::SessionClient;
use archon_types::ErrorKind;
use std::time::{Duration, Instant};
use tonic::transport::{Channel, Endpoint};

/// How often a node tries to register before it is given up.
const REGISTER_TRIES: u32 = 50;
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// One node's session with the leading coordinator.
#[derive(Debug)]
pub struct PlayedSession {
    leader: String,
    /// Where its heartbeats go: the leading coordinator, or a relay.
    beats_to: String,
    client: SessionClient<Channel>,
    registration: RegisterRequest,
    registered: Option<(Registered, BeatStream)>,
    interval: Duration,
    number: u64,
}

impl PlayedSession {
    /// Registers a node, which heartbeats every `interval` from then on: straight, or by its relay if there are any.
    ///
    /// # Errors
    /// If it is not let in.
    pub async fn begin(
        leader: &str,
        number: usize,
        address: String,
        interval: Duration,
        relays: &PlayedRelays,
    ) -> anyhow::Result<Self> {
        let channel = Endpoint::from_shared(format!("http://{leader}"))?.connect().await?;
        let registration = played_node::registration(number, address);
        let (leader, client) = (leader.to_owned(), SessionClient::new(channel));
        let beats_to = relays.address(number).unwrap_or(&leader).to_owned();
        let mut session = Self { leader, beats_to, client, registration, registered: None, interval, number: 0 };
        // All knock at once, so some connections are turned away: a real node tries again too.
        for _ in 0..REGISTER_TRIES {
            if session.register().await.is_ok() {
                break;
            }
            tokio::time::sleep(TRY_AGAIN).await;
        }
        if session.registered.is_none() {
            session.register().await?;
        }
        let Some((registered, _)) = &session.registered else { anyhow::bail!("it is not registered") };
        relays.begin(number, &session.leader, registered);
        Ok(session)
    }

    /// Registers once more: its life is over.
    ///
    /// # Errors
    /// If it is not let in.
    pub async fn register(&mut self) -> anyhow::Result<()> {
        let answer = self.client.register(self.registration.clone()).await.context("register")?.into_inner();
        self.registration.cluster.clone_from(&answer.cluster);
        self.registration.last_incarnation = answer.incarnation;
        self.registration.expects = answer.incarnation;
        self.registration.boot_id = played_node::random_id();
        let registered = Registered::try_from(answer)?;
        let stream = BeatStream::connect(&self.beats_to, registered.cluster).await?;
        self.registered = Some((registered, stream));
        Ok(())
    }

    /// A stream in place of one that broke, if there is one to be had now.
    pub async fn connect(&mut self) {
        if let Some((registered, stream)) = &mut self.registered
            && let Ok(anew) = BeatStream::connect(&self.beats_to, registered.cluster).await
        {
            *stream = anew;
        }
    }

    /// How long after a heartbeat that left at `began` the next one does.
    pub fn after(&self, began: Instant) -> Duration {
        let departure = self.registered.as_ref().and_then(|(_, stream)| stream.next_departure_ms());
        departure.map_or(self.interval, |departure_ms| played_relays::next(began, departure_ms, self.interval))
    }

    /// The lease that a heartbeat is answered with, in milliseconds. It says what the node carries, if that is given.
    ///
    /// # Errors
    /// Why nothing is granted within `deadline`.
    pub async fn heartbeat(&mut self, deadline: Duration, load: Option<Load>) -> Result<u64, ErrorKind> {
        let Some((registered, stream)) = &mut self.registered else { return Err(ErrorKind::Unreachable) };
        self.number += 1;
        let beat = Beat { load, ..played_node::beat(registered, self.number) };
        let granted = stream.beat(beat, deadline).await;
        granted.map(|granted| granted.lease_ms).map_err(|detail| detail.kind)
    }
}
