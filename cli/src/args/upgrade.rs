//! Options of `archon upgrade`.

use clap::Subcommand;

/// `archon upgrade …`
#[derive(Subcommand, Debug)]
pub(crate) enum UpgradeVerb {
    /// Show the protocol of the cluster, the protocols that each member supports, and members that block the next one.
    #[command(after_help = "Examples:\n  archon upgrade status\n  archon upgrade status -o json | jq '.protocol'")]
    Status,
    /// Hold the protocol at its present version, so that members can be rolled back.
    ///
    /// Run this before the first member is replaced. Refused (exit 4) while the cluster uses protocol 1: start one of
    /// the coordinators with --protocol-max 1 instead.
    #[command(after_help = "Examples:\n  archon upgrade hold")]
    Hold,
    /// Release the hold: the protocol rises again once every member supports the next one.
    #[command(after_help = "Examples:\n  archon upgrade release")]
    Release,
    /// Raise the protocol now, even if it is held. Members can then no longer be rolled back.
    ///
    /// Refused (exit 4) while members do not support it; the error names them. If no member supports a newer protocol,
    /// the command only ends the hold.
    #[command(after_help = "Examples:\n  archon upgrade finalize")]
    Finalize,
}
