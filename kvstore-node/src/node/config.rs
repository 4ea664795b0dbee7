//! Configuration of a node.

use crate::engine::EngineKind;
use crate::node::deadlines::stop_deadline;
use crate::node::memory::MEMORY_BYTES_MIN;
use archon_security::{Role, Transport};
use archon_types::{NodeTraits, ProtocolRange, limits};
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// Allowed values of [`NodeConfig::connections_max`].
pub const CONNECTIONS: RangeInclusive<u32> = 2..=1_000_000;
/// Minimum of [`NodeConfig::copy_bytes_per_second`] with a limit: a page of a copy takes four seconds at this rate, and a
/// slower copy would be taken for ended.
pub const COPY_BYTES_PER_SECOND_MIN: u64 = 65_536;
/// Default of [`NodeConfig::slow_operation`], in milliseconds.
pub const SLOW_OPERATION_MS: u32 = 100;

/// A node's configuration. [`NodeConfig::check`] rejects invalid values before anything is touched.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// The node's name, unique in the cluster (`athens`).
    pub name: String,
    /// Listen address, `host:port`; port 0 takes a free one.
    pub listen: String,
    /// Listen address for metrics and health over HTTP; port 0 takes a free one, none disables them.
    pub metrics_listen: Option<SocketAddr>,
    /// The address announced to others, `host:port`; by default the bound one.
    pub advertise: Option<String>,
    /// The listener for clients that speak the Redis Cluster protocol, if any.
    pub redis: Option<RedisConfig>,
    /// The coordinators, `host:port` each; any of them is enough to find the leading one.
    pub coordinators: Vec<String>,
    /// Directory of all durable data.
    pub data_dir: PathBuf,
    /// Its failure zone, its share of partitions, and its limit.
    pub traits: NodeTraits,
    /// The storage engine; by default that of the data directory, or lsm for a new one. Another engine cannot open a
    /// directory.
    pub engine: Option<EngineKind>,
    /// Shard threads; by default half the cores, at least one.
    pub shards: Option<usize>,
    /// Most connections to this node, within [`CONNECTIONS`], half of them from one address; by default 4,096, or half
    /// of the descriptors that it may have open.
    pub connections_max: Option<u32>,
    /// The protocols that it supports: those of this version, or fewer of them.
    pub speaks: ProtocolRange,
    /// Transport to and from the node.
    pub transport: Transport,
    /// Memory that it may use, in bytes, [`MEMORY_BYTES_MIN`] or more; by default a quarter of the machine's, or of its
    /// control group's.
    pub memory_bytes: Option<u64>,
    /// Rate at which this node pulls a copy, in bytes per second, [`COPY_BYTES_PER_SECOND_MIN`] or more; 0 is no limit. By default, on a node in use by
    /// clients, copies rest three times as long as they work.
    pub copy_bytes_per_second: Option<u64>,
    /// Size of a segment of the write-ahead log, in bytes, `1 MiB..=1 GiB`.
    pub wal_segment_bytes: u64,
    /// Operations slower than this are logged, with their stages; zero disables that.
    pub slow_operation: Duration,
    /// Time in which a stopping node may hand over its leaderships.
    pub hand_over_timeout: Duration,
}

impl NodeConfig {
    /// Creates a configuration with default values for everything that has one.
    pub fn new(
        name: impl Into<String>,
        listen: impl Into<String>,
        coordinators: Vec<String>,
        data_dir: PathBuf,
    ) -> Self {
        Self {
            name: name.into(),
            listen: listen.into(),
            metrics_listen: None,
            advertise: None,
            redis: None,
            coordinators,
            data_dir,
            traits: NodeTraits::default(),
            engine: None,
            shards: None,
            connections_max: None,
            speaks: ProtocolRange::SPOKEN,
            transport: Transport::default(),
            memory_bytes: None,
            copy_bytes_per_second: None,
            wal_segment_bytes: 16 * 1024 * 1024,
            slow_operation: Duration::from_millis(SLOW_OPERATION_MS as u64),
            hand_over_timeout: Duration::from_secs(10),
        }
    }

    /// Returns the longest duration of a graceful stop. Do not end the process before.
    pub const fn stop_deadline(&self) -> Duration {
        stop_deadline(self.hand_over_timeout)
    }

    /// Checks every value and resolves the address to listen on.
    ///
    /// # Errors
    /// [`ConfigError`], naming the field, the value found and valid ones.
    pub fn check(&self) -> Result<SocketAddr, ConfigError> {
        let wrong = |field: &'static str, why: String| ConfigError { field, why };
        limits::check_member_name("node", &self.name).map_err(|detail| wrong("name", detail.message))?;
        self.traits.check().map_err(|detail| wrong("traits", detail.message))?;
        if self.coordinators.is_empty() {
            return Err(wrong("coordinators", "the list is empty; name at least one host:port".into()));
        }
        for address in self.coordinators.iter().chain(&self.advertise) {
            limits::check_address(address).map_err(|detail| wrong("coordinators or advertise", detail.message))?;
        }
        if self.connections_max.is_some_and(|most| !CONNECTIONS.contains(&most)) {
            return Err(wrong(
                "connections_max",
                format!("must be {} to {}; leave it out for the default", CONNECTIONS.start(), CONNECTIONS.end()),
            ));
        }
        if self.shards.is_some_and(|shards| !(1..=256).contains(&shards)) {
            return Err(wrong("shards", "must be 1 to 256; leave it out for half the cores".into()));
        }
        if let Some(bytes) = self.memory_bytes.filter(|bytes| *bytes < MEMORY_BYTES_MIN) {
            return Err(wrong(
                "memory",
                format!("{bytes} bytes are fewer than {MEMORY_BYTES_MIN}; leave it out for a quarter of the machine"),
            ));
        }
        if let Some(rate) = self.copy_bytes_per_second.filter(|rate| (1..COPY_BYTES_PER_SECOND_MIN).contains(rate)) {
            return Err(wrong(
                "copy_bytes_per_second",
                format!("{rate} is less than {COPY_BYTES_PER_SECOND_MIN}; use 0 for no limit"),
            ));
        }
        if !(1 << 20..=1 << 30).contains(&self.wal_segment_bytes) {
            return Err(wrong(
                "wal_segment_bytes",
                format!("must be 1 MiB to 1 GiB; {} bytes are given", self.wal_segment_bytes),
            ));
        }
        let listen = self
            .listen
            .to_socket_addrs()
            .map_err(|error| wrong("listen", format!("{:?} cannot be resolved: {error}", self.listen)))?
            .next()
            .ok_or_else(|| wrong("listen", format!("{:?} resolves to no address", self.listen)))?;
        self.transport.check(&listen.to_string()).map_err(|detail| wrong("listen", detail.message))?;
        if let Some(address) = self.metrics_listen {
            // It reveals no keys and accepts no commands: probes have no certificates.
            self.transport.check(&address.to_string()).map_err(|detail| wrong("metrics_listen", detail.message))?;
        }
        if let Some(address) = &self.advertise {
            self.transport.check(address).map_err(|detail| wrong("advertise", detail.message))?;
        }
        if let Some(redis) = &self.redis {
            redis.check(&self.transport)?;
        }
        if listen.ip().is_unspecified() && self.advertise.is_none() {
            let remedy = "give the address that they should use, as in --advertise 10.0.0.7:7201";
            return Err(wrong("advertise", format!("others cannot call {listen}; {remedy}")));
        }
        // Each names two settings, either of which may be the wrong one.
        self.transport.check_own(Role::Node, &self.name).map_err(|detail| wrong("", detail.message))?;
        let told = self.advertise.clone().unwrap_or_else(|| listen.to_string());
        let reached = self.transport.check_reached(&told, |other| format!("give --advertise {other}"));
        reached.map_err(|detail| wrong("", detail.message))?;
        if let Some(redis) = &self.redis {
            let reached = redis.advertise.clone().unwrap_or_else(|| redis.listen.to_string());
            let reached = self.transport.check_reached(&reached, |other| format!("give --redis-advertise {other}"));
            reached.map_err(|detail| wrong("", detail.message))?;
        }
        Ok(listen)
    }

    /// Returns the number of shard threads.
    pub fn shard_count(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.shards.unwrap_or(cores / 2).max(1)
    }
}

/// The listener for clients that speak the Redis Cluster protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedisConfig {
    /// Listen address; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The address in redirections of clients, `host:port`; by default the bound one.
    pub advertise: Option<String>,
    /// The hashed table with the keys of these clients.
    pub table: String,
}

impl RedisConfig {
    fn check(&self, transport: &Transport) -> Result<(), ConfigError> {
        let wrong = |field: &'static str, why: String| ConfigError { field, why };
        limits::check_name("table", &self.table).map_err(|detail| wrong("redis_table", detail.message))?;
        transport.check(&self.listen.to_string()).map_err(|detail| wrong("redis_listen", detail.message))?;
        let Some(address) = &self.advertise else {
            if self.listen.ip().is_unspecified() {
                let remedy = "give the address that they should use, as in --redis-advertise 10.0.0.7:6379";
                return Err(wrong("redis_advertise", format!("clients cannot call {}; {remedy}", self.listen)));
            }
            return Ok(());
        };
        limits::check_address(address).map_err(|detail| wrong("redis_advertise", detail.message))?;
        transport.check(address).map_err(|detail| wrong("redis_advertise", detail.message))
    }
}

/// An invalid value.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field}{}{why}", if .field.is_empty() { "" } else { ": " })]
pub struct ConfigError {
    /// The field; empty if it is no single one.
    pub field: &'static str,
    /// The value found, and valid ones.
    pub why: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> NodeConfig {
        NodeConfig::new("athens", "127.0.0.1:0", vec!["127.0.0.1:7001".into()], "/tmp/athens".into())
    }

    fn redis(host: [u8; 4], advertise: Option<&str>, table: &str) -> RedisConfig {
        RedisConfig { listen: (host, 6379).into(), advertise: advertise.map(Into::into), table: table.into() }
    }

    #[test]
    fn default_configuration_is_accepted() {
        assert_eq!(config().check().map(|address| address.port()), Ok(0));
        assert!(config().shard_count() >= 1);
    }

    #[test]
    fn invalid_values_name_their_field() {
        type Spoil = fn(&mut NodeConfig);
        let cases: [(&str, Spoil); 15] = [
            ("memory", |config| config.memory_bytes = Some(MEMORY_BYTES_MIN - 1)),
            ("connections_max", |config| config.connections_max = Some(CONNECTIONS.start() - 1)),
            ("connections_max", |config| config.connections_max = Some(CONNECTIONS.end() + 1)),
            ("copy_bytes_per_second", |config| {
                config.copy_bytes_per_second = Some(COPY_BYTES_PER_SECOND_MIN - 1);
            }),
            ("name", |config| config.name = "a b".into()),
            ("traits", |config| config.traits.weight = 0),
            ("coordinators", |config| config.coordinators.clear()),
            ("coordinators or advertise", |config| config.coordinators = vec!["nowhere".into()]),
            ("shards", |config| config.shards = Some(0)),
            ("listen", |config| config.listen = "0.0.0.0:0".into()),
            ("metrics_listen", |config| config.metrics_listen = Some(([10, 0, 0, 1], 9).into())),
            ("traits", |config| config.traits.partitions_max = Some(0)),
            ("redis_listen", |config| config.redis = Some(redis([10, 0, 0, 1], None, "default"))),
            ("redis_advertise", |config| config.redis = Some(redis([127, 0, 0, 1], Some("nowhere"), "default"))),
            ("redis_table", |config| config.redis = Some(redis([127, 0, 0, 1], None, "a b"))),
        ];
        for (field, spoil) in cases {
            let mut config = config();
            spoil(&mut config);
            assert_eq!(config.check().map_err(|error| error.field), Err(field));
        }
    }
}
