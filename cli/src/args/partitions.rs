//! Options of the verbs that show partitions, give orders about one, or force a leader.

use super::admin::WatchArgs;
use super::orders::{BarPartitionArgs, OrderPartitionArgs, PartitionArgs, UnbarPartitionArgs};
use super::parse::name;
use clap::Subcommand;

/// `archon partition …`
#[derive(Subcommand, Debug)]
pub(crate) enum PartitionVerb {
    /// List the partitions of a table with their leaders and replicas.
    #[command(after_help = "Examples:\n  archon partition list\n  archon partition list --table orders -o json")]
    List(PartitionListArgs),
    /// Show the partition of a key, and its leader.
    #[command(after_help = "Examples:\n  archon partition locate city/1\n  archon partition locate '{user7}/cart'")]
    Locate(LocateArgs),
    /// Show all details of one partition: replicas, blockers, and possible actions.
    #[command(
        after_help = "Examples:\n  archon partition describe 3\n  archon partition describe 0 --table orders -o json"
    )]
    Describe(DescribePartitionArgs),
    /// Restart the leadership of a partition, or the ownership of a lease, in a new epoch.
    ///
    /// The leader stops, acknowledges, and leads again in the next epoch. Its state in memory for this partition is
    /// rebuilt, and all replicas refuse writes of the former epoch. The partition pauses for some milliseconds.
    ///
    /// The owner of a lease has 8 failure time-outs to release it (10 s, unless the owner has its own timing). After
    /// that the lease is revoked.
    #[command(
        after_help = "Examples:\n  archon partition bump 3\n  archon partition bump 3 --table jobs --why 'stuck worker'"
    )]
    Bump(OrderPartitionArgs),
    /// Take a partition offline: its leader stops, its replicas stay.
    ///
    /// The owner of a lease has 8 failure time-outs to release it. After that the lease is revoked.
    #[command(
        after_help = "Examples:\n  archon partition offline 3 --why 'poisoned message'\n  archon partition online 3"
    )]
    Offline(OrderPartitionArgs),
    /// Bring a partition back online.
    #[command(after_help = "Examples:\n  archon partition online 3")]
    Online(PartitionArgs),
    /// Exclude a node or participant from a partition: it gets no replica and does not lead.
    ///
    /// An existing replica is replaced on another node first, then deleted; leadership is handed over. Refused (exit 4)
    /// if too few nodes remain for the replication of the table. For a lease any participant may be excluded: if no
    /// other participant may own it, its owner stays, and `archon check` reports it.
    #[command(
        after_help = "Examples:\n  archon partition bar 3 --node athens --why 'bad blocks'\n  archon partition unbar 3 --node athens"
    )]
    Bar(BarPartitionArgs),
    /// Revert `archon partition bar`: the node or participant may have the partition again.
    #[command(after_help = "Examples:\n  archon partition unbar 3 --node athens")]
    Unbar(UnbarPartitionArgs),
    /// Split a partition of a range table in two: keys from --at on move to a new partition.
    ///
    /// Without --at, the leader scans its rows for the key that halves their bytes, and the new partition gets the
    /// upper half. The scan is throttled so that the leader keeps serving; it takes some seconds per GiB. With
    /// --dry-run, the command only shows that key.
    ///
    /// Each node with a replica of the old partition builds a replica of the new one from its own data, without network
    /// traffic. If a node dies or lags meanwhile, the split continues without its replica as long as enough replicas
    /// for writes exist (`archon partition describe` shows the number); missing replicas are loaded later.
    ///
    /// Every key is served while the replicas are built, for half an hour at most. Then requests for keys from --at on
    /// wait for some milliseconds, 5 s at most. A split that exceeds a limit is abandoned, and the partition keeps its
    /// keys. `archon partition describe` shows progress, `archon events` the result. --wait waits for the result;
    /// Ctrl-C detaches, and the split continues.
    ///
    /// Exclusions from the partition also apply to the new one. If the table has --merge-below, the two are merged
    /// again once their combined size has stayed at or below it for a minute.
    ///
    /// Refused (exit 4) while the partition is being moved or split, while a replica is not in sync, while a node with
    /// a replica is down, or while more than a third of the nodes are down.
    #[command(after_help = "\
Examples:
  archon partition split 0 --table times --at 2026-06 --dry-run    show the result, change nothing
  archon partition split 0 --table times --at 2026-06 --wait
  archon partition split 0 --table times --dry-run                 show the key that halves it
  archon partition split 0 --table times --wait
  archon partition split 0 --table times --cancel                  abandon the running split")]
    Split(SplitPartitionArgs),
    /// Merge a partition of a range table with its right neighbour, which is then deleted.
    ///
    /// The keys of the neighbour pass through the log of the remaining partition, so that all replicas of the latter
    /// receive them. Meanwhile these keys are unavailable: for milliseconds to seconds, depending on the amount of
    /// data, and 10 s at most. After that the merge is abandoned, and both partitions keep their keys. The keys of the
    /// remaining partition stay available.
    ///
    /// `archon partition describe` shows a running merge, `archon events` its result. --wait waits for the result;
    /// Ctrl-C detaches, and the merge continues.
    ///
    /// Refused (exit 4) while one of the two partitions is being moved, split or merged, while a replica is not in
    /// sync, while a node with a replica is down, or while more than a third of the nodes are down. Also refused if the
    /// neighbour holds more than 16 MiB.
    #[command(after_help = "\
Examples:
  archon partition merge 0 --table times --dry-run    show the result, change nothing
  archon partition merge 0 --table times --wait
  archon partition merge 0 --table times --cancel     abandon the running merge")]
    Merge(MergePartitionArgs),
    /// Force a replica to lead although acknowledged writes may be lost: the last resort.
    ///
    /// For a partition that lost all in-sync replicas. The replica on --node leads with its data; all others are
    /// deleted. Without --node, the best replica that is complete or complete as of an earlier time leads; among
    /// several, the one that left the in-sync set last. A replica that may hold only a part of the data leads only if
    /// --node names it; otherwise the partition starts empty. Without --accept-data-loss the command shows the possible
    /// loss and refuses (exit 4). It also refuses while no data needs to be lost.
    ///
    /// Replicas cut off from the coordinators may acknowledge writes until they learn of the change. Those writes are
    /// lost too.
    #[command(
        name = "force-leader",
        after_help = "\
Examples:
  archon partition force-leader 3                              show what would be lost
  archon partition force-leader 3 --accept-data-loss
  archon partition force-leader 3 --node athens --accept-data-loss"
    )]
    ForceLeader(ForceLeaderArgs),
}

/// Options of `archon partition describe`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct DescribePartitionArgs {
    /// Partition.
    #[command(flatten)]
    pub(crate) partition: PartitionArgs,
    /// Watch options.
    #[command(flatten)]
    pub(crate) watch: WatchArgs,
}

/// Options of `archon partition split`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct SplitPartitionArgs {
    /// Partition.
    #[command(flatten)]
    pub(crate) partition: PartitionArgs,
    /// First key of the new partition; default: the key that halves the bytes of the partition.
    #[arg(long, value_name = "KEY", conflicts_with = "cancel")]
    pub(crate) at: Option<String>,
    /// Read the key of --at as hexadecimal digits, two per byte: for a key that is not UTF-8.
    #[arg(long, requires = "at")]
    pub(crate) hex: bool,
    /// Show the result and change nothing.
    #[arg(long, conflicts_with_all = ["cancel", "wait"])]
    pub(crate) dry_run: bool,
    /// Wait until the operation has finished or was abandoned.
    #[arg(long, conflicts_with = "cancel")]
    pub(crate) wait: bool,
    /// Abandon the running split; the partition keeps its keys.
    #[arg(long)]
    pub(crate) cancel: bool,
}

/// Options of `archon partition merge`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct MergePartitionArgs {
    /// Partition that receives the keys of its right neighbour.
    #[command(flatten)]
    pub(crate) partition: PartitionArgs,
    /// Show the result and change nothing.
    #[arg(long, conflicts_with_all = ["cancel", "wait"])]
    pub(crate) dry_run: bool,
    /// Wait until the operation has finished or was abandoned.
    #[arg(long, conflicts_with = "cancel")]
    pub(crate) wait: bool,
    /// Abandon the running merge; both partitions keep their keys.
    #[arg(long)]
    pub(crate) cancel: bool,
}

/// Options of `archon partition force-leader`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ForceLeaderArgs {
    /// Partition.
    #[command(flatten)]
    pub(crate) partition: PartitionArgs,
    /// Node with the replica to lead; default: the best replica that is complete, or complete as of an earlier time.
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub(crate) node: Option<String>,
    /// Accept the loss of acknowledged writes.
    #[arg(long)]
    pub(crate) accept_data_loss: bool,
}

/// Options of `archon partition list`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct PartitionListArgs {
    /// Name of the table.
    #[arg(long, value_name = "T", default_value = "default", value_parser = name)]
    pub(crate) table: String,
    /// Watch options.
    #[command(flatten)]
    pub(crate) watch: WatchArgs,
}

/// Options of `archon partition locate`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct LocateArgs {
    /// Key to locate.
    pub(crate) key: String,
    /// Read the key as hexadecimal digits, two per byte: for a key that is not UTF-8.
    #[arg(long)]
    pub(crate) hex: bool,
    /// Name of the table.
    #[arg(long, value_name = "T", default_value = "default", value_parser = name)]
    pub(crate) table: String,
}
