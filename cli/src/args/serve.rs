//! Options of the commands that run a process: `coordinator`, `node`, `demo`.

use super::admin::NodeVerb;
use super::bootstrap::BootstrapArgs;
use super::bounds::{Bounded, number};
use super::parse::{address, copy_rate, engine, listen, memory, name, peer};
use archon_coordinator::QuorumTiming;
use archon_kvstore_node::{CONNECTIONS, COPY_BYTES_PER_SECOND_MIN, EngineKind, MEMORY_BYTES_MIN, SLOW_OPERATION_MS};
use archon_security::connection_limit::NODE_CONNECTIONS_MAX;
use archon_types::limits::{WEIGHT_ORDINARY, WEIGHTS};
use archon_types::{DEFAULT_TABLE, ProtocolRange};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Logging options of a server process.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Logging (to standard error)")]
pub(crate) struct LogArgs {
    /// Log level (error, warn, info, debug, trace) or filter such as info,archon_coordinator=debug.
    #[arg(long = "log", env = "ARCHON_LOG", value_name = "FILTER", default_value = "info", hide_env_values = true)]
    pub(crate) filter: String,
    /// Format of log lines: `text` or `json`.
    #[arg(long = "log-format", env = "ARCHON_LOG_FORMAT", value_enum, default_value_t, hide_env_values = true)]
    pub(crate) format: LogFormat,
}

/// Format of log lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Parses the heartbeat interval of a quorum.
fn quorum_heartbeat(text: &str) -> Result<QuorumTiming, String> {
    let range = QuorumTiming::HEARTBEATS_MS;
    let heartbeat_ms = number(range.clone())(text).map_err(|why| format!("{why} milliseconds"))?;
    QuorumTiming::new(heartbeat_ms).ok_or_else(|| format!("{heartbeat_ms} is not in {range:?}"))
}

/// Options of `archon coordinator`. Everything may also come from the file.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct CoordinatorArgs {
    /// Number of this coordinator, from 1. Numbers are never reused, even after a coordinator has left.
    #[arg(long, env = "ARCHON_ID", hide_env_values = true, value_name = "ID", value_parser = number(1..=u64::MAX))]
    pub(crate) id: Option<u64>,
    /// Address to listen on.
    #[arg(long, env = "ARCHON_LISTEN", hide_env_values = true, value_name = "IP:PORT", value_parser = listen)]
    pub(crate) listen: Option<SocketAddr>,
    /// Address of the HTTP server for metrics and health (/metrics, /livez, /readyz); none by default.
    #[arg(long, env = "ARCHON_METRICS_LISTEN", hide_env_values = true, value_name = "IP:PORT", value_parser = listen)]
    pub(crate) metrics_listen: Option<SocketAddr>,
    /// Address of the HTTP server for the console: a web page, and a JSON interface under /api/v1/; none by default.
    #[arg(long, env = "ARCHON_HTTP_LISTEN", hide_env_values = true, value_name = "IP:PORT", value_parser = listen)]
    pub(crate) http_listen: Option<SocketAddr>,
    /// Address under which other members reach this coordinator; default: its address in --peers, or --listen. If the
    /// quorum knows another address, the coordinator announces this one itself.
    #[arg(long, env = "ARCHON_ADVERTISE", hide_env_values = true, value_name = "H:P", value_parser = address)]
    pub(crate) advertise: Option<String>,
    /// Found a new quorum of these coordinators, including this one; the same list on each. Afterwards the coordinators
    /// store their membership, and `archon quorum` changes it; later starts use the list only to find coordinators that
    /// do not answer at their stored address.
    #[arg(long, env = "ARCHON_PEERS", hide_env_values = true, value_name = "ID=H:P,…", value_delimiter = ',', value_parser = peer)]
    pub(crate) peers: Option<Vec<(u64, String)>>,
    /// Join an existing quorum through these coordinators. This one copies the log and then becomes a voter. Used only
    /// at the first start.
    #[arg(long, env = "ARCHON_JOIN", hide_env_values = true, value_name = "H:P,…", value_delimiter = ',', value_parser = address, conflicts_with = "peers")]
    pub(crate) join: Option<Vec<String>>,
    /// With --join: remain a learner until `archon quorum promote` or `replace` makes it a voter.
    #[arg(long)]
    pub(crate) learner: bool,
    /// Directory for the log, the snapshots and the identity of this coordinator.
    #[arg(long, env = "ARCHON_DATA_DIR", hide_env_values = true, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Newest protocol to use. It keeps the whole cluster at this protocol, so that every member can be rolled back to
    /// the previous version.
    #[arg(long, env = "ARCHON_PROTOCOL_MAX", hide_env_values = true, value_name = "N", value_parser = protocol_max)]
    pub(crate) protocol_max: Option<u32>,
    /// Interval of heartbeats between coordinators. An election starts after three to six missed heartbeats. Use the same
    /// value on each coordinator: at least twice the longest round trip between two of them, which is measured before a
    /// quorum is founded.
    #[arg(long, env = "ARCHON_QUORUM_HEARTBEAT_MS", hide_env_values = true, value_name = "MS")]
    #[arg(ranging = QuorumTiming::HEARTBEATS_MS, value_parser = quorum_heartbeat, default_value_t)]
    pub(crate) quorum_heartbeat_ms: QuorumTiming,
    /// TOML file with the same settings.
    #[arg(long, env = "ARCHON_CONFIG", hide_env_values = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Settings that the first leader writes into the log.
    #[command(flatten)]
    pub(crate) bootstrap: BootstrapArgs,
    /// Logging options.
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// Options of `archon node`, and its commands.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct NodeArgs {
    /// Command; without one, a node is run.
    #[command(subcommand)]
    pub(crate) verb: Option<NodeVerb>,
    /// Name of this node, unique in the cluster.
    #[arg(long, env = "ARCHON_NAME", hide_env_values = true, value_name = "NAME", value_parser = name)]
    pub(crate) name: Option<String>,
    /// Address to listen on; with port 0 the system chooses a port.
    #[arg(long, env = "ARCHON_LISTEN", hide_env_values = true, value_name = "IP:PORT", value_parser = listen)]
    pub(crate) listen: Option<SocketAddr>,
    /// Address of the HTTP server for metrics and health (/metrics, /livez, /readyz); none by default.
    #[arg(long, env = "ARCHON_METRICS_LISTEN", hide_env_values = true, value_name = "IP:PORT", value_parser = listen)]
    pub(crate) metrics_listen: Option<SocketAddr>,
    /// Address under which other members and clients reach this node; default: --listen.
    #[arg(long, env = "ARCHON_ADVERTISE", hide_env_values = true, value_name = "H:P", value_parser = address)]
    pub(crate) advertise: Option<String>,
    /// Listen address for clients that speak the Redis Cluster protocol; off by default.
    #[arg(long, env = "ARCHON_REDIS_LISTEN", hide_env_values = true, value_name = "IP:PORT", value_parser = listen)]
    pub(crate) redis_listen: Option<SocketAddr>,
    /// Address under which clients reach the Redis listener; default: --redis-listen.
    #[arg(long, env = "ARCHON_REDIS_ADVERTISE", hide_env_values = true, value_name = "H:P", value_parser = address)]
    pub(crate) redis_advertise: Option<String>,
    /// Table that Redis clients use, which must be hashed.
    #[arg(long, env = "ARCHON_REDIS_TABLE", hide_env_values = true, value_name = "TABLE", value_parser = name)]
    #[arg(noted = format!("Default: `{DEFAULT_TABLE}`"))]
    pub(crate) redis_table: Option<String>,
    /// Directory for the log, the data and the identity of this node.
    #[arg(long, env = "ARCHON_DATA_DIR", hide_env_values = true, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Failure zone of the node; replicas of a partition are spread over zones. A zone, weight or limit changed by
    /// `archon node set` survives restarts, until the flag differs from its value at the last registration.
    #[arg(long, env = "ARCHON_ZONE", hide_env_values = true, value_name = "ZONE", value_parser = name)]
    pub(crate) zone: Option<String>,
    /// Share of partitions relative to other nodes. Changes at run time: see --zone.
    #[arg(long, env = "ARCHON_WEIGHT", hide_env_values = true, value_name = "W")]
    #[arg(within = WEIGHTS, default_value_t = WEIGHT_ORDINARY)]
    pub(crate) weight: u32,
    /// Maximum number of replicas on this node; default: no limit. Changes at run time: see --zone.
    #[arg(long, env = "ARCHON_PARTITIONS_MAX", hide_env_values = true, value_name = "N", value_parser = number(1..=u32::MAX))]
    pub(crate) partitions_max: Option<u32>,
    /// Maximum number of connections, of which one address may use half.
    #[arg(long, env = "ARCHON_CONNECTIONS_MAX", hide_env_values = true, value_name = "N", within = CONNECTIONS)]
    #[arg(noted = format!("Default: {NODE_CONNECTIONS_MAX}, or half of the limit of open files if that is less"))]
    pub(crate) connections_max: Option<u32>,
    /// Storage engine, `lsm` or `sled`; default: the engine of the data directory, and lsm for a new one. The engine
    /// of a data directory cannot be changed.
    #[arg(long, env = "ARCHON_ENGINE", hide_env_values = true, value_name = "ENGINE", value_parser = engine)]
    pub(crate) engine: Option<EngineKind>,
    /// Memory budget of the node, such as 4GiB; shared by rows not yet in the storage engine, caches of rows and blocks,
    /// and operations in progress. Default: a quarter of the memory of the machine or of its control group.
    #[arg(long, env = "ARCHON_MEMORY", hide_env_values = true, value_name = "SIZE", value_parser = memory)]
    #[arg(noted = format!("At least {}MiB", MEMORY_BYTES_MIN >> 20))]
    pub(crate) memory: Option<u64>,
    /// Rate limit for copying a replica from another node, in bytes per second. By default copies run at full speed while
    /// the node has no client traffic, and otherwise pause for three times as long as they work.
    #[arg(long, env = "ARCHON_COPY_BYTES_PER_SECOND", hide_env_values = true, value_name = "BYTES", value_parser = copy_rate)]
    #[arg(noted = format!("At least {COPY_BYTES_PER_SECOND_MIN}, or 0 for no limit"))]
    pub(crate) copy_bytes_per_second: Option<u64>,
    /// Log each operation that takes longer than this, in milliseconds, with the time of each stage; 0 disables it. At most
    /// ten lines per second, without keys and values.
    #[arg(long, env = "ARCHON_SLOW_OPERATION_MS", hide_env_values = true, value_name = "MS")]
    #[arg(value_parser = number(0..=u32::MAX), default_value_t = SLOW_OPERATION_MS)]
    pub(crate) slow_operation_ms: u32,
    /// Newest protocol to use. It keeps the whole cluster at this protocol, so that every member can be rolled back to
    /// the previous version.
    #[arg(long, env = "ARCHON_PROTOCOL_MAX", hide_env_values = true, value_name = "N", value_parser = protocol_max)]
    pub(crate) protocol_max: Option<u32>,
    /// TOML file with the same settings.
    #[arg(long, env = "ARCHON_CONFIG", hide_env_values = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Logging options.
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// Parses a protocol that this version supports.
pub(crate) fn protocol_max(text: &str) -> Result<u32, String> {
    let spoken = ProtocolRange::SPOKEN;
    let newest = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    spoken.contains(newest).then_some(newest).ok_or_else(|| format!("this version supports the protocols {spoken}"))
}

/// Returns the protocols of a member that is to use none newer than this.
pub(crate) fn spoken(newest: Option<u32>) -> ProtocolRange {
    newest.and_then(|newest| ProtocolRange::SPOKEN.up_to(newest)).unwrap_or(ProtocolRange::SPOKEN)
}

/// Options of `archon demo`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct DemoArgs {
    /// Stop all processes after the tour; exit 0 if every step succeeded.
    #[arg(long)]
    pub(crate) exit: bool,
    /// Number of keys to write.
    #[arg(long, value_name = "N", default_value_t = 5_000, within = 100_u32..=1_000_000)]
    pub(crate) keys: u32,
    /// Keep the temporary directory with data and logs.
    #[arg(long)]
    pub(crate) keep: bool,
    /// Use TLS between all processes, with certificates of a temporary authority.
    #[arg(long)]
    pub(crate) tls: bool,
    /// Run as a process of the service in the tour, under this name.
    #[arg(long, hide = true, value_name = "NAME")]
    pub(crate) worker: Option<String>,
}
