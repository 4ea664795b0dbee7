//! Builder of participants.

use super::Participant;
use super::callbacks::Callbacks;
use super::config::Config;
use crate::error::Error;
use crate::net::link::{beyond, check_endpoints};
use archon_security::{Role, Tls, Transport};
use archon_types::limits::{check_address, check_member_name};
use archon_types::{LeaseTiming, NodeTraits, Participant as Served};
use std::sync::Arc;
use std::time::Duration;

/// Configuration of a [`Participant`], created by [`Participant::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `start` is called"]
pub struct ParticipantBuilder {
    pub(super) config: Config,
}

impl ParticipantBuilder {
    pub(super) fn new(endpoints: Vec<String>) -> Self {
        let config = Config {
            transport: Transport::plaintext(beyond(&endpoints)),
            endpoints,
            name: String::new(),
            address: String::new(),
            traits: NodeTraits::default(),
            served: Served { tables: Vec::new(), timing: None },
            timeout: Duration::from_secs(30),
            loss_delay: Duration::ZERO,
        };
        Self { config }
    }

    /// Adds a lease table to serve. Called once per table; the table may be created later.
    pub fn table(mut self, name: impl Into<String>) -> Self {
        self.config.served.tables.push(name.into());
        self
    }

    /// Sets the name, as shown to operators and unique among the members of a cluster.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.config.name = name.into();
        self
    }

    /// Sets the address of the service (`host:port`), for callers that look up the owner of a partition.
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.config.address = address.into();
        self
    }

    /// Sets the failure zone.
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.config.traits.zone = Some(zone.into());
        self
    }

    /// Sets the share of partitions relative to others, 1 to 10,000; default 100.
    pub fn weight(mut self, weight: u32) -> Self {
        self.config.traits.weight = weight;
        self
    }

    /// Sets the maximum number of partitions, at least 1. A participant owns at most 32,768 in any case.
    pub fn partitions_max(mut self, most: u32) -> Self {
        self.config.traits.partitions_max = Some(most);
        self
    }

    /// Sets the participant's own timing instead of the cluster's: interval of heartbeats, duration of the lease
    /// after a heartbeat, and silence after which others take its partitions over.
    ///
    /// | heartbeat, lease, failure time-out | time without an owner after a crash | tolerated losses of heartbeats in a row | heartbeats per second of 1,000 participants |
    /// |---|---|---|---|
    /// | 200 ms, 1 s, 1.25 s: the cluster's default | 1.0 to 1.3 s | 3 | 5,700 |
    /// | 3 s, 10 s, 15 s | 12 to 15 s | 2 | 380 |
    /// | 8 s, 30 s, 45 s | 37 to 45 s | 2 | 140 |
    ///
    /// Required: `heartbeat < lease`, and `1.01 × lease + 100 ms < failure_timeout`: rates of clocks may differ, and
    /// the 100 ms are the margin named in errors. A third of the lease is a robust heartbeat interval: with a longer
    /// one, a single lost answer may end the lease.
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

    /// Uses TLS with the credentials of a directory ([`Tls::open`]); plaintext connections are disabled then.
    pub fn tls(mut self, tls: Arc<Tls>) -> Self {
        self.config.transport = Transport::Tls(tls);
        self
    }

    /// Sets the transport; instead of [`Self::tls`] or [`Self::insecure`].
    pub fn transport(mut self, transport: Transport) -> Self {
        self.config.transport = transport;
        self
    }

    /// Without [`Self::tls`]: sets whether plaintext connections may leave this machine, to addresses reported by the
    /// cluster. By default, they may if a given endpoint is on another machine.
    pub fn insecure(mut self, insecure: bool) -> Self {
        if self.config.transport.tls().is_none() {
            self.config.transport = Transport::plaintext(insecure);
        }
        self
    }

    /// Sets the time-out of [`Self::start`]; default 30 s.
    pub fn start_within(mut self, timeout: Duration) -> Self {
        self.config.timeout = timeout;
        self
    }

    /// Sets the longest time after [`Callbacks::lost`] for which the service may still act for the partition; default
    /// zero. A service in another process learns of a loss later than this one. A partition can be lost before its
    /// lease ends, for example if an operator withdraws it, and the next owner then begins once the loss is reported.
    /// After such a loss the participant sends no reports and does not leave, for this time from the return of
    /// [`Callbacks::lost`] on, but not beyond the end of the lease at the loss. The service must not be permitted to
    /// act for longer than [`Grant::lease_left`](super::Grant::lease_left).
    pub fn loss_delay(mut self, delay: Duration) -> Self {
        self.config.loss_delay = delay;
        self
    }

    /// Registers, and acquires assigned partitions from then on. Must be called on a tokio runtime, which runs the
    /// callbacks.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for invalid input, for the timing with its arithmetic, and for a weight or maximum
    /// outside its range; a permanent refusal;
    /// [`Error::DeadlineExceeded`] with the last obstacle.
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
        config.traits.check()?;
        config.transport.check_own(Role::Participant, &config.name)?;
        Ok(())
    }
}
