//! Options of `archon quorum`.

use super::parse::{address, duration};
use clap::Subcommand;
use std::path::PathBuf;
use std::time::Duration;

/// `archon quorum …`
#[derive(Subcommand, Debug)]
pub(crate) enum QuorumVerb {
    /// List the coordinators: leader, voters, lag, and the running change.
    ///
    /// Without a leader, queries every coordinator and exits with 5.
    #[command(after_help = "Examples:\n  archon quorum list\n  archon quorum list -o json | jq '.spare_voters'")]
    List,
    /// Promote a learner to voter once it has caught up with the log.
    #[command(after_help = "Examples:\n  archon quorum promote 4 --wait")]
    Promote(QuorumMemberArgs),
    /// Demote a voter to learner: it keeps copying the log without a vote.
    ///
    /// Refused (exit 4) under the same conditions as `remove`.
    #[command(after_help = "Examples:\n  archon quorum demote 4 --wait")]
    Demote(QuorumVoterArgs),
    /// Remove a coordinator for good: its process exits, and its number and data directory cannot be used again.
    ///
    /// Refused (exit 4) if the remaining voters would have no majority. Without --force, also refused if afterwards no
    /// voter may fail although one could before, or if only one answering voter would remain. A leader transfers
    /// leadership first.
    #[command(
        after_help = "Examples:\n  archon quorum remove 3 --wait\n\nTo replace a coordinator: archon quorum replace 3 4"
    )]
    Remove(QuorumVoterArgs),
    /// Replace a coordinator with a learner in one step; the old coordinator leaves for good.
    ///
    /// Start the new one first: `archon coordinator --id 4 --join H:P --learner …`. The number of voters never drops in
    /// between, even if the old coordinator is already gone. Refused (exit 4) if the new one does not answer.
    #[command(after_help = "Examples:\n  archon quorum replace 3 4 --wait")]
    Replace(QuorumReplaceArgs),
    /// Change the address under which other members reach a coordinator.
    ///
    /// A coordinator started with --advertise announces a new address itself, if the others have a majority and a
    /// leader. Use this command if it cannot.
    #[command(after_help = "Examples:\n  archon quorum set-address 3 c3.example:7101 --wait")]
    SetAddress(QuorumAddressArgs),
    /// Transfer leadership to the given coordinator, or to the follower with the least lag.
    #[command(after_help = "Examples:\n  archon quorum transfer-leader\n  archon quorum transfer-leader 2")]
    TransferLeader(TransferLeaderArgs),
    /// Recover from the permanent loss of a majority, using the directory of one stopped coordinator.
    ///
    /// Contacts no member. Reads the directory without changing it, and creates another one; a coordinator started with
    /// the new directory begins a new generation alone. Start it: all nodes register with it, set their replicas aside
    /// and report their contents, and then partitions resume.
    ///
    /// The last decisions of the lost majority may be missing. If nodes know of decisions that are missing, the
    /// recovery waits for `archon quorum settle`. The old coordinators must never run again: they would still act as
    /// the quorum.
    ///
    /// Without --accept-data-loss the command only reports the contents of the directory (exit 4).
    #[command(after_help = "Examples:\n  archon quorum recover --from /var/lib/archon/c2\n  \
        archon quorum recover --from /backups/quorum-monday\n  \
        archon quorum recover --from /var/lib/archon/c2 --into /var/lib/archon/c2-new --id 2 --address 10.0.0.2:7101 --accept-data-loss\n  \
        archon coordinator --id 2 --listen 10.0.0.2:7101 --data-dir /var/lib/archon/c2-new")]
    Recover(QuorumRecoverArgs),
    /// Save the state of the coordinators to a file while they run, or verify such a file.
    #[command(
        subcommand,
        after_help = "Examples:\n  archon quorum snapshot save --to /backups/quorum-monday\n  archon quorum snapshot verify /backups/quorum-monday"
    )]
    Snapshot(QuorumSnapshotVerb),
    /// Finish a recovery with the data that the nodes reported.
    ///
    /// A recovery finishes by itself once every node has reported, unless changes known to nodes were lost: see `archon
    /// quorum list`. Refused (exit 4) while a node that is not declared lost has not reported, and without
    /// --accept-data-loss if writes may be lost.
    #[command(after_help = "Examples:\n  archon quorum list\n  archon quorum settle --accept-data-loss")]
    Settle(QuorumSettleArgs),
    /// Cancel the running change. A new coordinator that already copies the log stays a learner.
    #[command(after_help = "Examples:\n  archon quorum cancel")]
    Cancel,
}

/// `archon quorum snapshot …`
#[derive(Subcommand, Debug)]
pub(crate) enum QuorumSnapshotVerb {
    /// Save the state of the coordinators, as of one position of their log, to a file.
    ///
    /// The leading coordinator provides it and keeps serving. The snapshot contains everything that exists only at the
    /// coordinators: tables, nodes and their replicas, settings, rights of clients, orders, events. It contains no rows
    /// of tables: use `archon backup create` for these. `archon quorum recover --from FILE` restores it. The file gets
    /// its name only after it was read back and verified. With TLS this requires the role admin, and the caller is
    /// recorded in the audit file.
    #[command(
        after_help = "Examples:\n  archon quorum snapshot save --to /backups/quorum-monday\n  archon quorum snapshot verify /backups/quorum-monday"
    )]
    Save(QuorumSaveArgs),
    /// Verify a snapshot file and show which state it contains; works offline.
    ///
    /// Exits with 0 if the file is intact, with 1 if it is damaged.
    #[command(after_help = "Examples:\n  archon quorum snapshot verify /backups/quorum-monday")]
    Verify(QuorumVerifyArgs),
}

/// Options of `archon quorum snapshot save`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct QuorumSaveArgs {
    /// File to create.
    #[arg(long, value_name = "FILE")]
    pub(crate) to: PathBuf,
}

/// Options of `archon quorum snapshot verify`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct QuorumVerifyArgs {
    /// Snapshot file.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

/// Options of waiting.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct QuorumWaitArgs {
    /// Wait until the change is finished, and show what blocks it. Ctrl-C detaches; the change continues.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Stop waiting after this time (exit 6); the change continues.
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "wait")]
    pub(crate) wait_timeout: Option<Duration>,
}

/// Options of a command for one coordinator.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct QuorumMemberArgs {
    /// Number of the coordinator.
    #[arg(value_name = "ID", id = "member", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) member: u64,
    #[command(flatten)]
    pub(crate) wait: QuorumWaitArgs,
}

/// Options of a command that reduces the number of voters.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct QuorumVoterArgs {
    #[command(flatten)]
    pub(crate) of: QuorumMemberArgs,
    /// Proceed even if no coordinator may fail afterwards, or only one remains.
    #[arg(long)]
    pub(crate) force: bool,
}

/// Options of `archon quorum replace`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct QuorumReplaceArgs {
    /// Number of the coordinator to remove.
    #[arg(value_name = "OLD", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) old: u64,
    /// Number of the learner that replaces it.
    #[arg(value_name = "NEW", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) new: u64,
    #[command(flatten)]
    pub(crate) wait: QuorumWaitArgs,
}

/// Options of `archon quorum set-address`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct QuorumAddressArgs {
    /// Number of the coordinator.
    #[arg(value_name = "ID", id = "member", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) member: u64,
    /// New address, for other coordinators, nodes and clients.
    #[arg(value_name = "H:P", id = "member_address", value_parser = address)]
    pub(crate) address: String,
    /// Proceed even if the coordinator does not answer at the new address now.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) wait: QuorumWaitArgs,
}

/// Options of `archon quorum recover`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct QuorumRecoverArgs {
    /// Data directory of a stopped coordinator, preferably the one that was written last; or a file saved by `archon
    /// quorum snapshot save`, or a snapshot file of a coordinator.
    #[arg(long, value_name = "PATH")]
    pub(crate) from: PathBuf,
    /// Data directory to create; the path must not exist.
    #[arg(long, value_name = "DIR", requires = "id", requires = "recovered_address")]
    pub(crate) into: Option<PathBuf>,
    /// Number of the recovered coordinator; it may have been used before.
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) id: Option<u64>,
    /// Address under which nodes and other coordinators reach it, preferably one that they already know.
    #[arg(long, value_name = "H:P", id = "recovered_address", value_parser = address)]
    pub(crate) address: Option<String>,
    /// Number of the new generation, above every earlier one of this cluster [default: the next number].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..))]
    pub(crate) generation: Option<u64>,
    /// Accept the possible loss of the last decisions, and of acknowledged writes with them.
    #[arg(long, requires = "into")]
    pub(crate) accept_data_loss: bool,
}

/// Options of `archon quorum settle`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct QuorumSettleArgs {
    /// Accept the possible loss of acknowledged writes.
    #[arg(long)]
    pub(crate) accept_data_loss: bool,
}

/// Options of `archon quorum transfer-leader`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct TransferLeaderArgs {
    /// Number of the voter that is to lead.
    #[arg(value_name = "ID", id = "member", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) member: Option<u64>,
}
