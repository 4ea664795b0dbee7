//! Options of `archon lock`.

use super::parse::{duration, name};
use archon_client::LockOptions;
use std::ffi::OsString;
use std::time::Duration;

/// Options of `archon lock`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct LockArgs {
    /// Name of the lock: the key of its row.
    pub(crate) name: String,
    /// Table with the rows of locks.
    #[arg(long, value_name = "TABLE", default_value = "locks", value_parser = name)]
    pub(crate) table: String,
    /// Longest wait for the lock; default: no limit.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) wait: Option<Duration>,
    /// Exit with 122 as soon as the holder renews the lock, within a quarter of its lease. The lock of a dead holder is
    /// taken after its lease.
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Lease: time for which the command may run without a renewal of the lock, and after which others take the lock of
    /// a dead holder; 1s to 1h.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = lease)]
    pub(crate) lease: Duration,
    /// Command with its arguments, after `--`.
    #[arg(value_name = "COMMAND", last = true, required = true, num_args = 1..)]
    pub(crate) command: Vec<OsString>,
}

/// Parses a lease: as any time, a second to an hour.
fn lease(text: &str) -> Result<Duration, String> {
    let lease = duration(text)?;
    if (LockOptions::LEASE_MIN..=LockOptions::LEASE_MAX).contains(&lease) {
        Ok(lease)
    } else {
        Err("a lease must be 1s to 1h; the default is 10s".to_owned())
    }
}
