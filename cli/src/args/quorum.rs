//! Options of `archon quorum`.

use super::parse::{address, duration};
use clap::Subcommand;
use std::path::PathBuf;
use std::time::Duration;

/// `archon quorum …`
#[derive(Subcommand, Debug)]
pub(crate) enum QuorumVerb {
    /// List the coordinators: who leads, who votes, who lags, and what change is under way.
    ///
    /// Where nobody leads each is asked for itself, and it ends with 5.
    #[command(after_help = "Examples:\n  archon quorum list\n  archon quorum list -o json | jq '.spare_voters'")]
    List,
    /// Make a learner a voter, once it has the log.
    #[command(after_help = "Examples:\n  archon quorum promote 4 --wait")]
    Promote(QuorumMemberArgs),
    /// Make a voter a learner: it goes on copying the log, and its vote does not count.
    ///
    /// Refused (exit 4) as `remove` is.
    #[command(after_help = "Examples:\n  archon quorum demote 4 --wait")]
    Demote(QuorumVoterArgs),
    /// Have a coordinator leave, for good: its number and its data directory are of no more use, and its process ends.
    ///
    /// Refused (exit 4) if the voters that are left could decide nothing, or, without --force, if none of them could fail any more, which
    /// one could before, or if only one of those that answer were left. One that leads hands the lead over first.
    #[command(
        after_help = "Examples:\n  archon quorum remove 3 --wait\n\nTo have another one in its place: archon quorum replace 3 4"
    )]
    Remove(QuorumVoterArgs),
    /// Have a learner take the place of another coordinator, which leaves for good, in one step.
    ///
    /// Start the new one first: `archon coordinator --id 4 --join H:P --learner …`. There are as many voters at every moment as before,
    /// so nothing is lost in between, also if the old one is gone already. Refused (exit 4) if the new one does not answer.
    #[command(after_help = "Examples:\n  archon quorum replace 3 4 --wait")]
    Replace(QuorumReplaceArgs),
    /// Tell the others that a coordinator is reached at another address.
    ///
    /// One that is started with --advertise tells them itself, as long as a majority of the others leads. This is for where it cannot.
    #[command(after_help = "Examples:\n  archon quorum set-address 3 c3.example:7101 --wait")]
    SetAddress(QuorumAddressArgs),
    /// Have another coordinator lead: this one, or the one that lags least.
    #[command(after_help = "Examples:\n  archon quorum transfer-leader\n  archon quorum transfer-leader 2")]
    TransferLeader(TransferLeaderArgs),
    /// Begin anew from what is left of a quorum that lost its majority for good: one stopped coordinator's directory.
    ///
    /// This asks nobody: it reads the directory, which stays as it was, and makes another one, with which a coordinator begins a new
    /// generation alone. Start it; all nodes register with it, set their copies aside and tell what they hold, and then partitions go on.
    /// What the majority had decided last may be missing: where nodes had been told of it, the recovery waits for `archon quorum
    /// settle`. The old coordinators must never run again: they would still take themselves for the quorum.
    ///
    /// Without --accept-data-loss it only says what is there (exit 4).
    #[command(after_help = "Examples:\n  archon quorum recover --from /var/lib/archon/c2\n  \
        archon quorum recover --from /backups/quorum-monday\n  \
        archon quorum recover --from /var/lib/archon/c2 --into /var/lib/archon/c2-new --id 2 --address 10.0.0.2:7101 --accept-data-loss\n  \
        archon coordinator --id 2 --listen 10.0.0.2:7101 --data-dir /var/lib/archon/c2-new")]
    Recover(QuorumRecoverArgs),
    /// Keep all that the coordinators hold in a file, while they run, and look at such a file.
    #[command(
        subcommand,
        after_help = "Examples:\n  archon quorum snapshot save --to /backups/quorum-monday\n  archon quorum snapshot verify /backups/quorum-monday"
    )]
    Snapshot(QuorumSnapshotVerb),
    /// End a recovery, and go on from what the nodes hold.
    ///
    /// It ends by itself once every node has told, unless changes were lost that nodes had been told of: `archon quorum list` says so.
    /// Refused (exit 4) while a node that is not lost has not told, and without --accept-data-loss where writes may be lost.
    #[command(after_help = "Examples:\n  archon quorum list\n  archon quorum settle --accept-data-loss")]
    Settle(QuorumSettleArgs),
    /// Take back the change that is under way. A newcomer that copies the log already stays a learner.
    #[command(after_help = "Examples:\n  archon quorum cancel")]
    Cancel,
}

/// `archon quorum snapshot …`
#[derive(Subcommand, Debug)]
pub(crate) enum QuorumSnapshotVerb {
    /// Write all that the coordinators hold into a file, as of one position of their log.
    ///
    /// The leading coordinator gives it, and goes on meanwhile. It has what is written nowhere else: tables, nodes and their copies, settings,
    /// rights of clients, orders, events. Rows of tables are not in it: `archon backup create` keeps these. `archon quorum recover
    /// --from FILE` begins anew with it. The file is there once it was read again and found whole. By TLS it takes an admin, and who did
    /// it is kept.
    #[command(
        after_help = "Examples:\n  archon quorum snapshot save --to /backups/quorum-monday\n  archon quorum snapshot verify /backups/quorum-monday"
    )]
    Save(QuorumSaveArgs),
    /// Read all of such a file, and say of which state it is; it takes no cluster.
    ///
    /// Ends with 0 if it is as it was written, with 1 if it is damaged.
    #[command(after_help = "Examples:\n  archon quorum snapshot verify /backups/quorum-monday")]
    Verify(QuorumVerifyArgs),
}

/// Options of `archon quorum snapshot save`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct QuorumSaveArgs {
    /// The file to make.
    #[arg(long, value_name = "FILE")]
    pub(crate) to: PathBuf,
}

/// Options of `archon quorum snapshot verify`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct QuorumVerifyArgs {
    /// The file.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

/// Whether the command waits.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct QuorumWaitArgs {
    /// Wait until it is done, and show what it waits for; Ctrl-C leaves it to go on unwatched.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Stop waiting after this time (exit 6); it goes on.
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "wait")]
    pub(crate) wait_timeout: Option<Duration>,
}

/// Options of a verb about one member.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct QuorumMemberArgs {
    /// The coordinator's number.
    #[arg(value_name = "ID", id = "member", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) member: u64,
    #[command(flatten)]
    pub(crate) wait: QuorumWaitArgs,
}

/// Options of a verb after which there is a voter less.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct QuorumVoterArgs {
    #[command(flatten)]
    pub(crate) of: QuorumMemberArgs,
    /// Do it also if no other coordinator may fail afterwards, or only one is left.
    #[arg(long)]
    pub(crate) force: bool,
}

/// Options of `archon quorum replace`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct QuorumReplaceArgs {
    /// The number of the coordinator that leaves.
    #[arg(value_name = "OLD", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) old: u64,
    /// The number of the learner that takes its place.
    #[arg(value_name = "NEW", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) new: u64,
    #[command(flatten)]
    pub(crate) wait: QuorumWaitArgs,
}

/// Options of `archon quorum set-address`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct QuorumAddressArgs {
    /// The coordinator's number.
    #[arg(value_name = "ID", id = "member", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) member: u64,
    /// Where the others reach it from now on.
    #[arg(value_name = "H:P", id = "member_address", value_parser = address)]
    pub(crate) address: String,
    /// Do it also if it does not answer there now.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) wait: QuorumWaitArgs,
}

/// Options of `archon quorum recover`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct QuorumRecoverArgs {
    /// The data directory of a coordinator that is stopped, best the one that was written to last; or a file that
    /// `archon quorum snapshot save` wrote, or a snapshot file of a coordinator.
    #[arg(long, value_name = "PATH")]
    pub(crate) from: PathBuf,
    /// The data directory to make, where nothing is yet.
    #[arg(long, value_name = "DIR", requires = "id", requires = "recovered_address")]
    pub(crate) into: Option<PathBuf>,
    /// The number of the coordinator that begins anew; it may be one that was used.
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) id: Option<u64>,
    /// Where nodes and other coordinators reach it: best an address that they know.
    #[arg(long, value_name = "H:P", id = "recovered_address", value_parser = address)]
    pub(crate) address: Option<String>,
    /// The number of the new generation: above every one that any node has lived in [default: the next one].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..))]
    pub(crate) generation: Option<u64>,
    /// Accept that what was decided last, and acknowledged writes with it, may be lost.
    #[arg(long, requires = "into")]
    pub(crate) accept_data_loss: bool,
}

/// Options of `archon quorum settle`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct QuorumSettleArgs {
    /// Accept that acknowledged writes may be lost.
    #[arg(long)]
    pub(crate) accept_data_loss: bool,
}

/// Options of `archon quorum transfer-leader`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct TransferLeaderArgs {
    /// The number of the voter that is to lead.
    #[arg(value_name = "ID", id = "member", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) member: Option<u64>,
}
