//! Building a participant.

use super::Participant;
use super::callbacks::Callbacks;
use crate::error::Error;
use crate::link::{beyond, check_endpoints};
use archon_security::{Role, Tls, Transport};
use archon_types::limits::{check_address, check_member_name};
use archon_types::{LeaseTiming, Participant as Served};
use std::sync::Arc;
use std::time::Duration;

/// What was said of a participant.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) endpoints: Vec<String>,
    pub(super) transport: Transport,
    pub(super) name: String,
    pub(super) address: String,
    pub(super) zone: Option<String>,
    pub(super) weight: u32,
    pub(super) partitions_max: Option<u32>,
    pub(super) served: Served,
    /// How long the first registration may take.
    pub(super) timeout: Duration,
}

/// How a [`Participant`] is to be; made by [`Participant::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `start` is called"]
pub struct ParticipantBuilder {
    config: Config,
}

impl ParticipantBuilder {
    pub(super) fn new(endpoints: Vec<String>) -> Self {
        let config = Config {
            transport: Transport::plaintext(beyond(&endpoints)),
            endpoints,
            name: String::new(),
            address: String::new(),
            zone: None,
            weight: 100,
            partitions_max: None,
            served: Served { tables: Vec::new(), timing: None },
            timeout: Duration::from_secs(30),
        };
        Self { config }
    }

    /// A lease table whose partitions it takes. Said once for each; the table may be created later.
    pub fn table(mut self, name: impl Into<String>) -> Self {
        self.config.served.tables.push(name.into());
        self
    }

    /// Its name, by which operators call it. No two members of a cluster have the same.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.config.name = name.into();
        self
    }

    /// Where the service is reached (`host:port`), for those who look for the owner of a partition.
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.config.address = address.into();
        self
    }

    /// The failure zone it stands in.
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.config.zone = Some(zone.into());
        self
    }

    /// Its share of partitions relative to others; 100 unless said otherwise.
    pub fn weight(mut self, weight: u32) -> Self {
        self.config.weight = weight;
        self
    }

    /// Most partitions it takes.
    pub fn partitions_max(mut self, most: u32) -> Self {
        self.config.partitions_max = Some(most);
        self
    }

    /// Its own timing, in place of the cluster's: how often it says that it lives, for how long a partition is its own after that,
    /// and after how much silence others take its partitions over.
    ///
    /// | heartbeat, lease, failure time-out | after a crash nobody owns it for | heartbeats in a row that may be lost | heartbeats a second of 1,000 participants |
    /// |---|---|---|---|
    /// | 200 ms, 1 s, 1.25 s: the cluster's, unless it was set up otherwise | 1.0 to 1.3 s | 3 | 5,700 |
    /// | 3 s, 10 s, 15 s | 12 to 15 s | 2 | 380 |
    /// | 8 s, 30 s, 45 s | 37 to 45 s | 2 | 140 |
    ///
    /// It must be `heartbeat < lease`, and `1.01 × lease + 100 ms < failure_timeout`: the rate of clocks may differ, and the 100 ms are
    /// the margin that errors speak of. A third of the lease is sturdy for the heartbeat: less often, and one lost answer may end it.
    pub fn timing(mut self, heartbeat: Duration, lease: Duration, failure_timeout: Duration) -> Self {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.config.served.timing = Some(LeaseTiming {
            heartbeat_ms: millis(heartbeat),
            lease_ms: millis(lease),
            failure_timeout_ms: millis(failure_timeout),
            ..LeaseTiming::default()
        });
        self
    }

    /// Talks to the cluster by TLS, with the credentials of a directory ([`Tls::open`]); plaintext goes nowhere then.
    pub fn tls(mut self, tls: Arc<Tls>) -> Self {
        self.config.transport = Transport::Tls(tls);
        self
    }

    /// By TLS, or in plaintext, as somebody has decided already; instead of [`Self::tls`] or [`Self::insecure`].
    pub fn transport(mut self, transport: Transport) -> Self {
        self.config.transport = transport;
        self
    }

    /// Without [`Self::tls`]: whether plaintext may go beyond this machine, to addresses that the cluster tells. Unless it is said, it
    /// may where an endpoint that was given is beyond it.
    pub fn insecure(mut self, insecure: bool) -> Self {
        if self.config.transport.tls().is_none() {
            self.config.transport = Transport::plaintext(insecure);
        }
        self
    }

    /// How long [`Self::start`] may take; 30 s unless said otherwise.
    pub fn start_within(mut self, timeout: Duration) -> Self {
        self.config.timeout = timeout;
        self
    }

    /// Registers, and from then on acquires partitions as they are given. To be called on a runtime of tokio, which runs the
    /// callbacks.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for input that is wrong, the timing with its arithmetic; a refusal that no later attempt can
    /// change; [`Error::DeadlineExceeded`] with what stood in the way last.
    pub async fn start<C: Callbacks>(self, callbacks: C) -> Result<Participant, Error> {
        self.check()?;
        Participant::start(self.config, callbacks).await
    }

    fn check(&self) -> Result<(), Error> {
        let config = &self.config;
        check_endpoints(&config.endpoints)?;
        check_member_name("participant", &config.name)?;
        check_address(&config.address)?;
        config.served.check()?;
        config.transport.check_own(Role::Participant, &config.name)?;
        Ok(())
    }
}
