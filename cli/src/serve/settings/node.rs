//! Settings of a node process.

use super::{MemberKind, MemberLine, allowed, required, transport};
use crate::args::{self, NodeArgs};
use crate::exit::Failure;
use archon_kvstore_node::{NodeConfig, RedisConfig};
use archon_security::Transport;
use archon_types::{DEFAULT_TABLE, NodeTraits};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

/// Combines the command line of a node with its file.
///
/// # Errors
/// A missing or impossible setting, with its origin and a remedy.
pub(crate) fn node_config(words: &[OsString]) -> Result<NodeConfig, Failure> {
    let MemberLine::<NodeArgs> { connection, args, .. } = MemberLine::read(MemberKind::Node, words)?;
    let name = required(args.name, "name", "--name athens")?;
    let listen = required(args.listen, "listen", "--listen 127.0.0.1:7201")?;
    let coordinators = required(
        Some(connection.coordinators).filter(|list| !list.is_empty()),
        "coordinators",
        "--coordinators 127.0.0.1:7101,127.0.0.1:7102,127.0.0.1:7103",
    )?;
    let data_dir = required(args.data_dir, "data_dir", "--data-dir /var/lib/archon/athens")?;
    let transport = transport(connection.insecure, connection.tls_dir.as_deref())?;
    allowed("listen", &listen.to_string(), &transport)?;
    for address in &coordinators {
        allowed("coordinators", address, &transport)?;
    }
    if let Some(address) = args.metrics_listen {
        allowed("metrics-listen", &address.to_string(), &transport)?;
    }
    if let Some(address) = &args.advertise {
        allowed("advertise", address, &transport)?;
    }
    let redis = redis(args.redis_listen, args.redis_advertise, args.redis_table, &transport)?;
    let plain = NodeConfig::new(name, listen.to_string(), coordinators, data_dir);
    Ok(NodeConfig {
        metrics_listen: args.metrics_listen,
        advertise: args.advertise,
        redis,
        traits: NodeTraits { zone: args.zone, weight: args.weight, partitions_max: args.partitions_max },
        connections_max: args.connections_max,
        engine: args.engine,
        memory_bytes: args.memory,
        copy_bytes_per_second: args.copy_bytes_per_second,
        slow_operation: Duration::from_millis(args.slow_operation_ms.into()),
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
    Ok(Some(RedisConfig { listen, advertise, table: table.unwrap_or_else(|| DEFAULT_TABLE.to_owned()) }))
}
