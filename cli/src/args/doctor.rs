//! Options of `archon doctor`.

use super::parse::listen;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Options of `archon doctor`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct DoctorArgs {
    /// Configuration file of the coordinator or node that runs, or will run, on this machine. Flags of this command
    /// override it.
    #[arg(long, env = "ARCHON_CONFIG", hide_env_values = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Data directory of the process, existing or planned.
    #[arg(long, env = "ARCHON_DATA_DIR", hide_env_values = true, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Listen address of the process, existing or planned.
    #[arg(long, env = "ARCHON_LISTEN", hide_env_values = true, value_name = "H:P", value_parser = listen)]
    pub(crate) listen: Option<SocketAddr>,
}
