//! Settings of a node process.

use super::{FilePlace, allowed, listening, required, transport};
use crate::args::{self, Connection, NodeArgs};
use crate::exit::Failure;
use crate::serve::file::{ConfigFile, FileError};
use crate::serve::file_keys::{any, file_keys, list, number, text, within};
use archon_kvstore_node::{CONNECTIONS, EngineKind, NodeConfig, RedisConfig};
use archon_security::Transport;
use archon_types::limits::WEIGHTS;
use archon_types::{DEFAULT_TABLE, NodeTraits};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use toml::Spanned;

/// Combines flags, environment and file of a node. `connection` has the options of every verb.
///
/// # Errors
/// A missing or impossible setting, with its origin and a remedy.
pub(crate) fn node_config(args: &NodeArgs, connection: &Connection) -> Result<NodeConfig, Failure> {
    let file = args.config.as_deref().map(ConfigFile::read).transpose()?;
    let found = match &file {
        Some(file) => FromNodeFile::read(file)?,
        None => FromNodeFile::default(),
    };
    let name = required(args.name.clone().or(found.name), "name", "--name athens")?;
    let listen = required(args.listen.or(found.listen), "listen", "--listen 127.0.0.1:7201")?;
    let coordinators = &connection.coordinators;
    let said = if coordinators.is_empty() { found.coordinators } else { Some(coordinators.clone()) };
    let coordinators = required(
        said.filter(|list| !list.is_empty()),
        "coordinators",
        "--coordinators 127.0.0.1:7101,127.0.0.1:7102,127.0.0.1:7103",
    )?;
    let data_dir = required(args.data_dir.clone().or(found.data_dir), "data_dir", "--data-dir /var/lib/archon/athens")?;
    let tls_dir = connection.tls_dir.clone().or(found.tls_dir);
    let transport = transport(connection.insecure || found.insecure.unwrap_or(false), tls_dir.as_deref())?;
    allowed("listen", &listen.to_string(), &transport)?;
    for address in &coordinators {
        allowed("coordinators", address, &transport)?;
    }
    let metrics_listen = args.metrics_listen.or(found.metrics_listen);
    if let Some(address) = metrics_listen {
        allowed("metrics-listen", &address.to_string(), &transport)?;
    }
    let advertise = args.advertise.clone().or(found.advertise);
    if let Some(address) = &advertise {
        allowed("advertise", address, &transport)?;
    }
    let redis = redis(
        args.redis_listen.or(found.redis_listen),
        args.redis_advertise.clone().or(found.redis_advertise),
        args.redis_table.clone().or(found.redis_table),
        &transport,
    )?;
    if listen.ip().is_unspecified() && advertise.is_none() {
        return Err(Failure::usage(
            format!("others cannot call {listen}"),
            "give the address that they should use, as in --advertise 10.0.0.7:7201",
        ));
    }
    let plain = NodeConfig::new(name, listen.to_string(), coordinators, data_dir);
    Ok(NodeConfig {
        metrics_listen,
        advertise,
        redis,
        traits: NodeTraits {
            zone: args.zone.clone().or(found.zone),
            weight: args.weight.or(found.weight).unwrap_or(plain.traits.weight),
            partitions_max: args.partitions_max.or(found.partitions_max),
        },
        connections_max: args.connections_max.or(found.connections_max),
        engine: args.engine.or(found.engine),
        memory_bytes: args.memory.or(found.memory),
        copy_bytes_per_second: args.copy_bytes_per_second.or(found.copy_bytes_per_second),
        slow_operation: args
            .slow_operation_ms
            .or(found.slow_operation_ms)
            .map_or(plain.slow_operation, |millis| Duration::from_millis(millis.into())),
        speaks: args::spoken(args.protocol_max),
        transport,
        ..plain
    })
}

/// Returns the settings of the Redis listener, if there is one.
fn redis(
    listen: Option<SocketAddr>,
    advertise: Option<String>,
    table: Option<String>,
    transport: &Transport,
) -> Result<Option<RedisConfig>, Failure> {
    let Some(listen) = listen else {
        if advertise.is_some() || table.is_some() {
            return Err(Failure::usage(
                "--redis-advertise and --redis-table belong to a Redis listener, and there is none",
                "give its address, as in --redis-listen 127.0.0.1:6379",
            ));
        }
        return Ok(None);
    };
    allowed("redis-listen", &listen.to_string(), transport)?;
    if let Some(address) = &advertise {
        allowed("redis-advertise", address, transport)?;
    }
    if listen.ip().is_unspecified() && advertise.is_none() {
        return Err(Failure::usage(
            format!("clients cannot call {listen}"),
            "give the address that they should use, as in --redis-advertise 10.0.0.7:6379",
        ));
    }
    Ok(Some(RedisConfig { listen, advertise, table: table.unwrap_or_else(|| DEFAULT_TABLE.to_owned()) }))
}

file_keys! {
    /// Checked values of a node's file.
    FromNodeFile {
        name: Spanned<String> => String = text(args::name),
        listen: Spanned<String> => SocketAddr = text(args::listen),
        metrics_listen: Spanned<String> => SocketAddr = text(args::listen),
        advertise: Spanned<String> => String = text(args::address),
        coordinators: Vec<Spanned<String>> => Vec<String> = list(args::address),
        data_dir: PathBuf => PathBuf = any,
        insecure: bool => bool = any,
        tls_dir: PathBuf => PathBuf = any,
        zone: Spanned<String> => String = text(args::name),
        weight: Spanned<u64> => u32 = within(WEIGHTS),
        redis_listen: Spanned<String> => SocketAddr = text(args::listen),
        redis_advertise: Spanned<String> => String = text(args::address),
        redis_table: Spanned<String> => String = text(args::name),
        partitions_max: Spanned<u64> => u32 = within(1..=u32::MAX),
        connections_max: Spanned<u64> => u32 = within(CONNECTIONS),
        engine: Spanned<String> => EngineKind = text(args::engine),
        memory: Spanned<String> => u64 = text(args::memory),
        copy_bytes_per_second: Spanned<u64> => u64 = number(args::copy_rate),
        slow_operation_ms: Spanned<u64> => u32 = within(0..=u32::MAX),
    }
}

impl FromNodeFile {
    /// Returns the place of its node.
    pub(crate) fn place(self) -> FilePlace {
        FilePlace {
            member: self.name.map(|name| format!("node/{name}")),
            listen: listening([
                ("listen", self.listen),
                ("metrics-listen", self.metrics_listen),
                ("redis-listen", self.redis_listen),
            ]),
            data_dir: self.data_dir,
            coordinators: self.coordinators.unwrap_or_default(),
            insecure: self.insecure.unwrap_or(false),
            tls_dir: self.tls_dir,
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// The fault of the file and its position.
    pub(crate) fn read(file: &ConfigFile) -> Result<Self, FileError> {
        Self::read_known(file, Self::KEYS)
    }
}
