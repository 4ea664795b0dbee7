//! Options that every command accepts: connection and output.

use super::parse::{address, duration};
use crate::output::Format;
use std::path::PathBuf;
use std::time::Duration;

/// Options that every command accepts.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Connection {
    /// Addresses of coordinators or nodes, as HOST:PORT separated by commas. One reachable address is enough: the
    /// leader is found through it.
    #[arg(long, global = true, env = "ARCHON_COORDINATORS", value_name = "H:P,…", value_delimiter = ',')]
    #[arg(value_parser = address, hide_env_values = true, alias = "endpoints")]
    pub(crate) coordinators: Vec<String>,
    /// Output format: columns for people, or one JSON document for programs.
    #[arg(short, long, global = true, value_enum, default_value_t, value_name = "FORMAT", hide_possible_values = true)]
    #[arg(help = "Output format: `table` (columns for people) or `json` (one document)")]
    pub(crate) output: Format,
    /// Same as `-o json`.
    #[arg(long, global = true, hide = true, conflicts_with = "output")]
    pub(crate) json: bool,
    /// Time limit of one request, retries included: 500ms, 5s, 1m.
    #[arg(long, global = true, env = "ARCHON_TIMEOUT", value_name = "TIME", default_value = "5s")]
    #[arg(value_parser = duration, hide_env_values = true)]
    pub(crate) timeout: Duration,
    /// Allow plaintext connections to other machines. Without it, only loopback addresses are accepted.
    #[arg(long, global = true, env = "ARCHON_INSECURE", hide_env_values = true)]
    #[arg(value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) insecure: bool,
    /// Use TLS, with the credentials in this directory: ca.crt, tls.crt and tls.key, as written by `archon cert`.
    #[arg(long, global = true, env = "ARCHON_TLS_DIR", value_name = "DIR", hide_env_values = true)]
    pub(crate) tls_dir: Option<PathBuf>,
}

#[cfg(test)]
impl Connection {
    /// Creates options for these coordinators, with all other values at their defaults.
    pub(crate) fn to(coordinators: &[&str]) -> Self {
        Self {
            coordinators: coordinators.iter().map(|text| (*text).to_owned()).collect(),
            output: Format::Table,
            json: false,
            timeout: Duration::from_secs(1),
            insecure: false,
            tls_dir: None,
        }
    }
}
