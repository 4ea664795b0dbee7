//! Options of `archon doctor`.

use super::parse::listen;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Options of `archon doctor`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct DoctorArgs {
    /// The file of settings of the coordinator or node that runs on this machine, or is to; the flags here outweigh it.
    #[arg(long, env = "ARCHON_CONFIG", hide_env_values = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where it keeps its data, or is to.
    #[arg(long, env = "ARCHON_DATA_DIR", hide_env_values = true, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Where it listens, or is to.
    #[arg(long, env = "ARCHON_LISTEN", hide_env_values = true, value_name = "H:P", value_parser = listen)]
    pub(crate) listen: Option<SocketAddr>,
}
