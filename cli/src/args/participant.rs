//! Options of `archon participant`.

use super::bounds::{Bounded, number};
use super::parse::{address, duration, duration_within, name, time};
use super::serve::LogArgs;
use crate::exit::Failure;
use archon_agent::{ListenAddress, MapFile, MapFormat, SERVICE_LEASE, SERVICE_LEASES, STOP_LIMIT};
use archon_types::limits::{WEIGHT_ORDINARY, WEIGHTS};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Options of `archon participant`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ParticipantArgs {
    /// Lease table that the service serves; repeat the flag for further ones, or separate them by commas. The table may be created later.
    #[arg(long = "table", env = "ARCHON_TABLES", hide_env_values = true, value_delimiter = ',')]
    #[arg(value_name = "TABLE", value_parser = name, required = true)]
    pub(crate) tables: Vec<String>,
    /// Name of the participant, unique in the cluster. A second process with this name ends the first one.
    #[arg(long, env = "ARCHON_NAME", hide_env_values = true, value_name = "NAME", value_parser = name)]
    pub(crate) name: String,
    /// Address where callers reach the service.
    #[arg(long, env = "ARCHON_ADDRESS", hide_env_values = true, value_name = "H:P", value_parser = address)]
    pub(crate) address: String,
    /// Place where the agent listens for the service: an address of loopback, or `unix:` and the path of a socket, which
    /// only processes of this user can use. Other addresses need --tls-dir with a certificate that names this host, and
    /// the service needs a certificate of the same participant.
    #[arg(long, env = "ARCHON_AGENT_LISTEN", hide_env_values = true, value_name = "IP:PORT|unix:PATH")]
    #[arg(default_value_t)]
    pub(crate) listen: ListenAddress,
    /// Program of the service, with its arguments, instead of --listen: it speaks JSON lines over its standard input and
    /// output (docs/reference/agent.md). Give it last. The agent ends with the program.
    #[arg(long, value_name = "PROGRAM", num_args = 1.., allow_hyphen_values = true, conflicts_with = "listen")]
    pub(crate) exec: Vec<OsString>,
    /// File with the owners of a table, kept up to date and replaced atomically, for proxies (docs/reference/agent.md): for
    /// Envoy if its name ends with `.json`, for HAProxy with `.map`. Name the table if --table names several, or if the path
    /// contains `=`; repeat the flag for further files.
    #[arg(long = "write-map", value_name = "[TABLE=]FILE.json|FILE.map", value_parser = map_file)]
    pub(crate) maps: Vec<MapArg>,
    /// Share of partitions relative to other participants.
    #[arg(long, env = "ARCHON_WEIGHT", hide_env_values = true, value_name = "W")]
    #[arg(within = WEIGHTS, default_value_t = WEIGHT_ORDINARY)]
    pub(crate) weight: u32,
    /// Maximum number of partitions; default: no limit.
    #[arg(long, env = "ARCHON_PARTITIONS_MAX", hide_env_values = true, value_name = "N")]
    #[arg(value_parser = number(1..=u32::MAX))]
    pub(crate) partitions_max: Option<u32>,
    /// Failure zone.
    #[arg(long, env = "ARCHON_ZONE", hide_env_values = true, value_name = "ZONE", value_parser = name)]
    pub(crate) zone: Option<String>,
    /// Time for which a heartbeat permits the service to act, at most; the lease of the participant shortens it. A
    /// service that is silent for longer loses its partitions.
    #[arg(long, env = "ARCHON_SERVICE_LEASE", hide_env_values = true, value_name = "TIME")]
    #[arg(value_parser = service_lease, default_value = time(SERVICE_LEASE))]
    #[arg(noted = format!("From {} to {}", time(*SERVICE_LEASES.start()), time(*SERVICE_LEASES.end())))]
    pub(crate) service_lease: Duration,
    /// Time limit of a stop for the service to release its partitions.
    #[arg(long, env = "ARCHON_STOP_WITHIN", hide_env_values = true, value_name = "TIME")]
    #[arg(value_parser = duration, default_value = time(STOP_LIMIT))]
    pub(crate) stop_within: Duration,
    /// Logging options.
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// A file with owners, as given.
#[derive(Clone, Debug)]
pub(crate) struct MapArg {
    table: Option<String>,
    path: PathBuf,
    format: MapFormat,
}

/// Parses a file with owners.
fn map_file(text: &str) -> Result<MapArg, String> {
    let (table, path) = match text.split_once('=') {
        Some((table, path)) => (Some(name(table)?), path),
        None => (None, text),
    };
    let Some(format) = MapFormat::of(Path::new(path)) else {
        return Err(format!("{path:?} ends neither with .json, for Envoy, nor with .map, for HAProxy"));
    };
    Ok(MapArg { table, path: path.into(), format })
}

impl ParticipantArgs {
    /// Returns the files with owners.
    ///
    /// # Errors
    /// A file names no table, and there are several, or a table that the service does not serve; two have one path; a
    /// directory does not exist.
    pub(crate) fn map_files(&self) -> Result<Vec<MapFile>, Failure> {
        let mut files: Vec<MapFile> = Vec::new();
        for MapArg { table, path, format } in &self.maps {
            let shown = path.display();
            let table = match (table, &self.tables[..]) {
                (None, [only]) => only,
                (None, _) => {
                    let message = format!("--write-map {shown} names no table, and --table names several");
                    return Err(Failure::usage(message, format!("write --write-map {}={shown}", self.tables[0])));
                }
                (Some(table), tables) if tables.contains(table) => table,
                (Some(table), _) => {
                    let message = format!("--write-map names the table {table:?}, which no --table names");
                    return Err(Failure::usage(message, format!("add --table {table}, or start another agent for it")));
                }
            };
            if files.iter().any(|file| file.path == *path) {
                let message = format!("--write-map names the file {shown} twice");
                return Err(Failure::usage(message, "give each table a file of its own"));
            }
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            if let Some(directory) = directory.filter(|directory| !directory.is_dir()) {
                let directory = directory.display();
                let message = format!(
                    "--write-map names the file {shown}, but {directory} is not a directory, or does not exist"
                );
                return Err(Failure::usage(message, format!("create it: mkdir -p {directory}")));
            }
            files.push(MapFile { table: table.clone(), path: path.clone(), format: *format });
        }
        Ok(files)
    }
}

/// Parses the lease of the service.
fn service_lease(text: &str) -> Result<Duration, String> {
    duration_within(text, &SERVICE_LEASES)
}
