//! Options of the verbs that show partitions, give orders about one, or force a leader.

use super::WatchArgs;
use super::orders::{BarPartitionArgs, OrderPartitionArgs, PartitionArgs, UnbarPartitionArgs};
use super::parse::name;
use clap::Subcommand;

/// `archon partition …`
#[derive(Subcommand, Debug)]
pub(crate) enum PartitionVerb {
    /// List the partitions of a table and who holds them.
    #[command(after_help = "Examples:\n  archon partition list\n  archon partition list --table orders -o json")]
    List(PartitionListArgs),
    /// Say which partition a key belongs to and who leads it.
    #[command(after_help = "Examples:\n  archon partition locate city/1\n  archon partition locate '{user7}/cart'")]
    Locate(LocateArgs),
    /// Say everything about one partition: its copies, what it waits for, and what could be done.
    #[command(
        after_help = "Examples:\n  archon partition describe 3\n  archon partition describe 0 --table orders -o json"
    )]
    Describe(DescribePartitionArgs),
    /// Let the leader of a partition, or the owner of a lease, begin anew in the next epoch.
    ///
    /// It is told to stop, says that it has, and leads again; whatever it held in memory for this partition begins afresh, and
    /// writes of the former epoch are refused everywhere. The partition pauses for some milliseconds.
    ///
    /// The owner of a lease is asked to release it first, and may take 8 failure time-outs for that (10 s, unless it has a timing of
    /// its own). Then it loses it.
    #[command(
        after_help = "Examples:\n  archon partition bump 3\n  archon partition bump 3 --table jobs --why 'stuck worker'"
    )]
    Bump(OrderPartitionArgs),
    /// Let nobody lead a partition: its leader stops, its copies stay.
    ///
    /// The owner of a lease is asked to release it first, and loses it after 8 failure time-outs.
    #[command(
        after_help = "Examples:\n  archon partition offline 3 --why 'poisoned message'\n  archon partition online 3"
    )]
    Offline(OrderPartitionArgs),
    /// Let a partition be led again.
    #[command(after_help = "Examples:\n  archon partition online 3")]
    Online(PartitionArgs),
    /// Keep a partition from a node or participant: it gets no copy of it and does not lead it.
    ///
    /// A copy that it has is replaced elsewhere first, then deleted; what it leads is handed over. Refused (exit 4) if too few
    /// nodes would be left for the copies that the table wants. Of a lease any participant may be barred: if nobody else may own
    /// it, its owner stays, and `archon check` says so.
    #[command(
        after_help = "Examples:\n  archon partition bar 3 --node athens --why 'bad blocks'\n  archon partition unbar 3 --node athens"
    )]
    Bar(BarPartitionArgs),
    /// Take back that a node or participant is barred from a partition.
    #[command(after_help = "Examples:\n  archon partition unbar 3 --node athens")]
    Unbar(UnbarPartitionArgs),
    /// Split a partition of a table by ranges in two: from --at on its keys become a new partition's.
    ///
    /// Without --at the new partition gets the upper half of its bytes: its leader walks over its rows for the middle, slowly, so that
    /// it serves all the while; some seconds for each GiB. With --dry-run it is only said where that is.
    ///
    /// The new partition gets a copy beside each copy of the old one, made by each node from its own: nothing crosses the network. If a
    /// node dies or lags meanwhile, the split goes on without its copy as long as as many are made as writes need (`archon partition
    /// describe` says how many); the others are loaded later. Every key is served while the copies are made, which takes half an hour at
    /// most; then those from --at on wait for some milliseconds, 5 s at most. What is not done by then is given up, and the partition
    /// keeps its keys. `archon partition describe` says how far it is, `archon events` how it ended. With --wait that is waited for;
    /// Ctrl-C leaves it to go on.
    ///
    /// Who is barred from the partition is barred from the new one, too. If the table has --merge-below, the two are merged again once
    /// they have held that or less together for a minute.
    ///
    /// Refused (exit 4) while the partition is being moved or split, a copy of it does not count, a node that has one is down, or more
    /// than a third of the nodes are.
    #[command(after_help = "\
Examples:
  archon partition split 0 --table times --at 2026-06 --dry-run    what it would do
  archon partition split 0 --table times --at 2026-06 --wait
  archon partition split 0 --table times --dry-run                 where its middle is
  archon partition split 0 --table times --wait
  archon partition split 0 --table times --cancel                  as long as it is not done")]
    Split(SplitPartitionArgs),
    /// Merge a partition of a table by ranges with its right neighbour: the one that begins where it ends, which is none any more then.
    ///
    /// The neighbour's keys go through the log of the partition that gets them, so that all of its copies have them, wherever these are.
    /// Meanwhile nobody serves them: for some milliseconds up to seconds with the amount of data, and 10 s at most. Then the merge is
    /// given up, and both keep their keys. The partition's own keys are served all the while. `archon partition describe` says
    /// that it goes on, `archon events` how it ended. With --wait that is waited for; Ctrl-C leaves it to go on.
    ///
    /// Refused (exit 4) while one of the two is being moved, split or merged, a copy does not count, a node that has one is down, or more
    /// than a third of the nodes are; and if the neighbour has more than 16 MiB.
    #[command(after_help = "\
Examples:
  archon partition merge 0 --table times --dry-run    what it would do
  archon partition merge 0 --table times --wait
  archon partition merge 0 --table times --cancel     as long as it is not done")]
    Merge(MergePartitionArgs),
    /// Make one copy lead although acknowledged writes may be lost: the last resort.
    ///
    /// For a partition that lost every copy that counts. The copy on --node, or else the best one that is whole or of an
    /// earlier time (of several the one that ceased to count last), leads with what it holds; all others are deleted. A
    /// copy of which only a part may be left leads only if --node names it; otherwise the partition begins empty. Without
    /// --accept-data-loss it is refused (exit 4) and says what would be lost. It is also refused while nothing needs to be
    /// lost.
    ///
    /// A side that is cut off from the coordinators may go on acknowledging writes until it hears of this; those writes
    /// are lost too.
    #[command(
        name = "force-leader",
        after_help = "\
Examples:
  archon partition force-leader 3                              what would be lost
  archon partition force-leader 3 --accept-data-loss
  archon partition force-leader 3 --node athens --accept-data-loss"
    )]
    ForceLeader(ForceLeaderArgs),
}

/// Options of `archon partition describe`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct DescribePartitionArgs {
    /// Which one.
    #[command(flatten)]
    pub(crate) partition: PartitionArgs,
    /// Whether to go on.
    #[command(flatten)]
    pub(crate) watch: WatchArgs,
}

/// Options of `archon partition split`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct SplitPartitionArgs {
    /// Which one.
    #[command(flatten)]
    pub(crate) partition: PartitionArgs,
    /// The first key of the new partition; if it is not given, the one in the middle of what the partition holds.
    #[arg(long, value_name = "KEY", conflicts_with = "cancel")]
    pub(crate) at: Option<String>,
    /// Only say what it would do.
    #[arg(long, conflicts_with_all = ["cancel", "wait"])]
    pub(crate) dry_run: bool,
    /// Wait until it is done or given up.
    #[arg(long, conflicts_with = "cancel")]
    pub(crate) wait: bool,
    /// Give up the split that is under way; the partition keeps its keys.
    #[arg(long)]
    pub(crate) cancel: bool,
}

/// Options of `archon partition merge`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct MergePartitionArgs {
    /// Which one gets the keys of its right neighbour.
    #[command(flatten)]
    pub(crate) partition: PartitionArgs,
    /// Only say what it would do.
    #[arg(long, conflicts_with_all = ["cancel", "wait"])]
    pub(crate) dry_run: bool,
    /// Wait until it is done or given up.
    #[arg(long, conflicts_with = "cancel")]
    pub(crate) wait: bool,
    /// Give up the merge that is under way; both partitions keep their keys.
    #[arg(long)]
    pub(crate) cancel: bool,
}

/// Options of `archon partition force-leader`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ForceLeaderArgs {
    /// Which one.
    #[command(flatten)]
    pub(crate) partition: PartitionArgs,
    /// The node whose copy is to lead; otherwise the best one that is whole or of an earlier time.
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub(crate) node: Option<String>,
    /// Accept that acknowledged writes are lost.
    #[arg(long)]
    pub(crate) accept_data_loss: bool,
}

/// Options of `archon partition list`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct PartitionListArgs {
    /// The table.
    #[arg(long, value_name = "T", default_value = "default", value_parser = name)]
    pub(crate) table: String,
    /// Whether to go on.
    #[command(flatten)]
    pub(crate) watch: WatchArgs,
}

/// Options of `archon partition locate`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct LocateArgs {
    /// The key.
    pub(crate) key: String,
    /// The table.
    #[arg(long, value_name = "T", default_value = "default", value_parser = name)]
    pub(crate) table: String,
}
