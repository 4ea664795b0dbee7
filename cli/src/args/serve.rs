//! Options of the verbs that run a process: `coordinator`, `node`, `demo`.

use super::admin::NodeVerb;
use super::bootstrap::BootstrapArgs;
use super::parse::{address, engine, listen, memory, name, peer, weight};
use archon_coordinator::QuorumTiming;
use archon_kvstore_node::EngineKind;
use archon_types::ProtocolRange;
use std::net::SocketAddr;
use std::path::PathBuf;

/// How a serving process logs.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Logging (to standard error)")]
pub(crate) struct LogArgs {
    /// What to log: a level (error, warn, info, debug, trace) or a filter such as info,archon_coordinator=debug.
    #[arg(long = "log", env = "ARCHON_LOG", value_name = "FILTER", default_value = "info", hide_env_values = true)]
    pub(crate) filter: String,
    /// How a log line looks: `text` or `json`.
    #[arg(long = "log-format", env = "ARCHON_LOG_FORMAT", value_enum, default_value_t, hide_env_values = true)]
    pub(crate) format: LogFormat,
}

/// How a log line looks.
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
    let timing = text.parse().ok().and_then(QuorumTiming::new);
    timing.ok_or_else(|| {
        let (min, max) = (QuorumTiming::HEARTBEAT_MS_MIN, QuorumTiming::HEARTBEAT_MS_MAX);
        format!("write a number of milliseconds from {min} to {max}")
    })
}

/// Options of `archon coordinator`. Everything may also come from the file.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct CoordinatorArgs {
    /// This coordinator's number, from 1. None is used twice, also when its coordinator is gone.
    #[arg(long, env = "ARCHON_ID", hide_env_values = true, value_name = "ID", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) id: Option<u64>,
    /// Where to listen.
    #[arg(long, env = "ARCHON_LISTEN", hide_env_values = true, value_name = "IP:PORT", value_parser = listen)]
    pub(crate) listen: Option<SocketAddr>,
    /// Where to tell metrics and health by HTTP (/metrics, /livez, /readyz); nowhere unless said.
    #[arg(long, env = "ARCHON_METRICS_LISTEN", hide_env_values = true, value_name = "IP:PORT", value_parser = listen)]
    pub(crate) metrics_listen: Option<SocketAddr>,
    /// Where to serve the console by HTTP: a page that shows the cluster, and an interface in JSON (/api/v1/); nowhere unless said.
    #[arg(long, env = "ARCHON_HTTP_LISTEN", hide_env_values = true, value_name = "IP:PORT", value_parser = listen)]
    pub(crate) http_listen: Option<SocketAddr>,
    /// Where the others reach it, if not where it listens or where --peers says. A member that says another address than the
    /// quorum knows tells the others itself.
    #[arg(long, env = "ARCHON_ADVERTISE", hide_env_values = true, value_name = "H:P", value_parser = address)]
    pub(crate) advertise: Option<String>,
    /// To found a quorum: all who do, this one included; the same list on each. From then on the coordinators know each other, and
    /// `archon quorum` changes who they are; later starts look for one here that does not answer where the others know it.
    #[arg(long, env = "ARCHON_PEERS", hide_env_values = true, value_name = "ID=H:P,…", value_delimiter = ',', value_parser = peer)]
    pub(crate) peers: Option<Vec<(u64, String)>>,
    /// To join a quorum that is there: some of its coordinators. This one copies the log, and then becomes a voter. It counts for
    /// the first start only.
    #[arg(long, env = "ARCHON_JOIN", hide_env_values = true, value_name = "H:P,…", value_delimiter = ',', value_parser = address, conflicts_with = "peers")]
    pub(crate) join: Option<Vec<String>>,
    /// With --join: stay a learner, until `archon quorum promote` or `replace` makes it a voter.
    #[arg(long)]
    pub(crate) learner: bool,
    /// Where the log, the snapshots and this voter's identity are kept.
    #[arg(long, env = "ARCHON_DATA_DIR", hide_env_values = true, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Speak no protocol newer than this one, so that the cluster stays there and every member can go back to the version before.
    #[arg(long, env = "ARCHON_PROTOCOL_MAX", hide_env_values = true, value_name = "N", value_parser = protocol_max)]
    pub(crate) protocol_max: Option<u32>,
    /// Milliseconds between two heartbeats of the coordinators among each other, 50 to 2000; otherwise 50. Elections begin after three to
    /// six of them. The same on each coordinator: twice the longest round trip between two, which is measured before a quorum is founded.
    #[arg(long, env = "ARCHON_QUORUM_HEARTBEAT_MS", hide_env_values = true, value_name = "MS", value_parser = quorum_heartbeat)]
    pub(crate) quorum_heartbeat_ms: Option<QuorumTiming>,
    /// A TOML file with the same settings.
    #[arg(long, env = "ARCHON_CONFIG", hide_env_values = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Settings that the first leader writes into the log.
    #[command(flatten)]
    pub(crate) bootstrap: BootstrapArgs,
    /// How to log.
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// Minimum rate of copying: a page of a copy takes four seconds at this rate; a slower copy would be taken for ended.
pub(crate) const COPY_RATE_MIN: u64 = 65_536;

/// Options of `archon node`, and its verbs.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct NodeArgs {
    /// What to look at or to do; without it a node is run.
    #[command(subcommand)]
    pub(crate) verb: Option<NodeVerb>,
    /// This node's name, unique in the cluster.
    #[arg(long, env = "ARCHON_NAME", hide_env_values = true, value_name = "NAME", value_parser = name)]
    pub(crate) name: Option<String>,
    /// Where to listen; port 0 lets the system choose.
    #[arg(long, env = "ARCHON_LISTEN", hide_env_values = true, value_name = "IP:PORT", value_parser = listen)]
    pub(crate) listen: Option<SocketAddr>,
    /// Where to tell metrics and health by HTTP (/metrics, /livez, /readyz); nowhere unless said.
    #[arg(long, env = "ARCHON_METRICS_LISTEN", hide_env_values = true, value_name = "IP:PORT", value_parser = listen)]
    pub(crate) metrics_listen: Option<SocketAddr>,
    /// The address that others are told, if it is not the one listened on.
    #[arg(long, env = "ARCHON_ADVERTISE", hide_env_values = true, value_name = "H:P", value_parser = address)]
    pub(crate) advertise: Option<String>,
    /// Where the log, the data and this node's identity are kept.
    #[arg(long, env = "ARCHON_DATA_DIR", hide_env_values = true, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// The failure zone it stands in; copies are spread over zones. What `archon node set` says of zone, weight and limit
    /// while it runs outlives restarts, until the flag says another thing than at the last registration.
    #[arg(long, env = "ARCHON_ZONE", hide_env_values = true, value_name = "ZONE", value_parser = name)]
    pub(crate) zone: Option<String>,
    /// Its share of partitions relative to other nodes; 100 is ordinary. See --zone.
    #[arg(long, env = "ARCHON_WEIGHT", hide_env_values = true, value_name = "W", value_parser = weight)]
    pub(crate) weight: Option<u32>,
    /// Most copies of partitions that it takes. See --zone.
    #[arg(long, env = "ARCHON_PARTITIONS_MAX", hide_env_values = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) partitions_max: Option<u32>,
    /// Most connections that it takes, half of them from one address; otherwise 4,096, or half of the files that it may
    /// have open.
    #[arg(long, env = "ARCHON_CONNECTIONS_MAX", hide_env_values = true, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    pub(crate) connections_max: Option<u32>,
    /// The storage engine of this node, `sled` or `fjall`; otherwise the one that made the data directory, and sled in a new one. A directory
    /// stays with its engine.
    #[arg(long, env = "ARCHON_ENGINE", hide_env_values = true, value_name = "ENGINE", value_parser = engine)]
    pub(crate) engine: Option<EngineKind>,
    /// Memory that it may use, as in 4GiB, and 256MiB at least: divided among rows that gather before they go to the engine, rows and
    /// blocks kept for reading, and operations under way. Otherwise a quarter of what the machine has, or the control group that it runs in.
    #[arg(long, env = "ARCHON_MEMORY", hide_env_values = true, value_name = "SIZE", value_parser = memory)]
    pub(crate) memory: Option<u64>,
    /// Rate at which this node pulls a copy from another, in bytes per second, at least 65536; 0 is no limit. Otherwise copies go as fast
    /// as they can while nobody uses the node, and rest three times as long as they work while somebody does.
    #[arg(long, env = "ARCHON_COPY_BYTES_PER_SECOND", hide_env_values = true, value_name = "BYTES", value_parser = copy_rate)]
    pub(crate) copy_bytes_per_second: Option<u64>,
    /// Tells in the log of each operation that takes longer, in milliseconds, and where its time went: ten lines a second at most,
    /// without keys and values; otherwise 100. 0 tells of none.
    #[arg(long, env = "ARCHON_SLOW_OPERATION_MS", hide_env_values = true, value_name = "N", value_parser = clap::value_parser!(u32))]
    pub(crate) slow_operation_ms: Option<u32>,
    /// Speak no protocol newer than this one, so that the cluster stays there and every member can go back to the version before.
    #[arg(long, env = "ARCHON_PROTOCOL_MAX", hide_env_values = true, value_name = "N", value_parser = protocol_max)]
    pub(crate) protocol_max: Option<u32>,
    /// A TOML file with the same settings.
    #[arg(long, env = "ARCHON_CONFIG", hide_env_values = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// How to log.
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// Parses a protocol that this version supports.
pub(crate) fn protocol_max(text: &str) -> Result<u32, String> {
    let spoken = ProtocolRange::SPOKEN;
    let newest = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    spoken.contains(newest).then_some(newest).ok_or_else(|| format!("this version speaks the protocols {spoken}"))
}

/// Returns the protocols of a member that is to use none newer than this.
pub(crate) fn spoken(newest: Option<u32>) -> ProtocolRange {
    newest.and_then(|newest| ProtocolRange::SPOKEN.up_to(newest)).unwrap_or(ProtocolRange::SPOKEN)
}

/// Parses a rate of copying: none, or one at which a copy can finish.
pub(crate) fn copy_rate(text: &str) -> Result<u64, String> {
    let rate = text.parse().map_err(|_| format!("{text:?} is not a number of bytes per second"))?;
    if (1..COPY_RATE_MIN).contains(&rate) {
        return Err(format!("{rate} bytes per second is less than {COPY_RATE_MIN}; 0 is no limit"));
    }
    Ok(rate)
}

/// Options of `archon demo`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct DemoArgs {
    /// Stop everything after the story and end with status 0.
    #[arg(long)]
    pub(crate) exit: bool,
    /// How many keys to write.
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    pub(crate) keys: u32,
    /// Keep the temporary directory with data and logs.
    #[arg(long)]
    pub(crate) keep: bool,
    /// Have all processes talk by TLS, with certificates of an authority that is made for the story.
    #[arg(long)]
    pub(crate) tls: bool,
    /// Be a process of the service in the story, under this name.
    #[arg(long, hide = true, value_name = "NAME")]
    pub(crate) worker: Option<String>,
}
