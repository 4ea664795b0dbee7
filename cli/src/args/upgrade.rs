//! Options of `archon upgrade`.

use clap::Subcommand;

/// `archon upgrade …`
#[derive(Subcommand, Debug)]
pub(crate) enum UpgradeVerb {
    /// Show the protocol that the cluster speaks, what each member speaks, and who keeps it from rising.
    #[command(after_help = "Examples:\n  archon upgrade status\n  archon upgrade status -o json | jq '.protocol'")]
    Status,
    /// Have the protocol stay as it is, so that members can go back to the version before.
    ///
    /// Say it before the first member is replaced. Refused (exit 4) while the cluster speaks protocol 1: start one of the coordinators
    /// with --protocol-max 1 instead.
    #[command(after_help = "Examples:\n  archon upgrade hold")]
    Hold,
    /// Have the protocol rise by itself again, once every member speaks the next one.
    #[command(after_help = "Examples:\n  archon upgrade release")]
    Release,
    /// Raise the protocol now, also if it was held. From then on members cannot go back to the version before.
    ///
    /// Refused (exit 4), with their names, while members do not speak it. Where no member speaks a newer one, only the hold is over.
    #[command(after_help = "Examples:\n  archon upgrade finalize")]
    Finalize,
}
