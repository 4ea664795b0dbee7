//! Options of the verbs that show or change nodes, plans and events.

use super::bounds::Bounded as _;
use super::orders::{BarNodeArgs, MaintainArgs, UnbarNodeArgs};
use super::parse::{duration, name, refresh};
use archon_types::limits::WEIGHTS;
use clap::Subcommand;
use std::path::PathBuf;
use std::time::Duration;

/// `archon node …`
#[derive(Subcommand, Clone, Debug)]
pub(crate) enum NodeVerb {
    /// List the nodes of the cluster.
    #[command(after_help = "Examples:\n  archon node list\n  archon node list -o json | jq -r '.[].node'")]
    List(WatchArgs),
    /// Show all details of one node and of the replicas it hosts.
    #[command(after_help = "Examples:\n  archon node describe athens")]
    Describe(DescribeArgs),
    /// Cordon nodes: they receive no new replicas, and leadership only if no other node can take it. Existing replicas
    /// stay.
    #[command(after_help = "Examples:\n  archon node cordon athens\n  archon node uncordon athens          reverts it")]
    Cordon(NodeNamesArgs),
    /// Uncordon nodes: they may receive replicas again.
    #[command(after_help = "Examples:\n  archon node uncordon athens")]
    Uncordon(NodeNamesArgs),
    /// Change the weight, limit or zone of a node while it runs.
    ///
    /// Plans, first assignments and repair use the new values as soon as they are committed. Existing replicas stay
    /// until `archon rebalance apply` moves them. The values survive restarts of the node: its flags apply at its first
    /// registration, and later only if they differ from those at the last registration.
    #[command(after_help = "\
Examples:
  archon node set athens --weight 50
  archon node set athens --partitions-max 8 --zone east
  archon node set athens --partitions-max none --zone none    no limit, no zone")]
    Set(NodeSetArgs),
    /// Drain nodes: hand over their leaderships, then replace their replicas on other nodes.
    ///
    /// A drain that cannot finish is refused (exit 4) with all reasons, and nothing starts. The node serves until it is
    /// empty, and no partition has fewer replicas at any moment. The drain continues in the cluster even if this
    /// command does not wait.
    ///
    /// A participant hands over its leases. This is never refused: leases that no other participant can take stay, and
    /// `archon check` reports them.
    #[command(after_help = "\
Examples:
  archon node drain athens --dry-run           show the moves, or why the drain is refused
  archon node drain athens --wait              show progress; Ctrl-C detaches
  archon node drain athens byzantium --wait    both; neither receives replicas of the other
  archon node undrain athens                   cancels it")]
    Drain(DrainArgs),
    /// Cancel the drain of nodes: they keep their remaining replicas and may receive replicas again.
    #[command(after_help = "Examples:\n  archon node undrain athens\n  archon node undrain athens byzantium")]
    Undrain(NodeNamesArgs),
    /// Put nodes or participants into maintenance: they lead nothing for a while and keep their replicas.
    ///
    /// Other nodes take over the leaderships, and no new replica is placed on the node. Existing replicas stay and are
    /// not replaced while the node is down. Maintenance ends after --for; then the previous state (serving or cordoned)
    /// is restored.
    #[command(after_help = "\
Examples:
  archon node maintain athens --for 10m --why 'new kernel'
  archon node resume athens                  ends it early")]
    Maintain(MaintainArgs),
    /// End the maintenance of nodes or participants.
    #[command(after_help = "Examples:\n  archon node resume athens")]
    Resume(NodeNamesArgs),
    /// Exclude a node or participant from all partitions of a table.
    ///
    /// Its replicas are replaced on other nodes first, then deleted; its leaderships are handed over. Refused (exit 4)
    /// if too few nodes remain for the replication of the table. For a lease table any participant may be excluded: a
    /// partition that no other participant may own stays with its owner, and `archon check` reports it.
    #[command(
        after_help = "Examples:\n  archon node bar athens --table orders --why 'slow disk'\n  archon node unbar athens --table orders"
    )]
    Bar(BarNodeArgs),
    /// Revert `archon node bar`: the node or participant may have partitions of the table again.
    #[command(after_help = "Examples:\n  archon node unbar athens --table orders")]
    Unbar(UnbarNodeArgs),
    /// Remove a stopped node that holds no in-sync replica from the cluster.
    ///
    /// Drain it, stop it, then remove it. Refused (exit 4) with all reasons while the node is alive or holds an in-sync
    /// replica. Replicas that are not in sync are discarded; the output shows their number. A removed node that starts
    /// again with an empty data directory joins as a new node.
    #[command(
        after_help = "Examples:\n  archon node drain athens --wait      then stop its process\n  archon node remove athens --dry-run  show what would be discarded, or why it is refused\n  archon node remove athens"
    )]
    Remove(RemoveArgs),
    /// Declare the data of a failed node lost: its replicas are discarded and rebuilt on other nodes.
    ///
    /// Use this only if the disk is gone for good; wait if the node may return. If partitions would lose their last
    /// in-sync replica, the command names them and refuses (exit 4), unless --accept-data-loss is given.
    #[command(
        after_help = "Examples:\n  archon node lost athens --dry-run    show what would be lost\n  archon node lost athens"
    )]
    Lost(LostArgs),
}

/// Options of a command for one or more nodes.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct NodeNamesArgs {
    /// Names or numbers of the nodes or participants.
    #[arg(value_name = "NAME", id = "node", value_parser = name, required = true, num_args = 1..)]
    pub(crate) names: Vec<String>,
}

/// Options of `archon node set`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct NodeSetArgs {
    /// Name or number of the node.
    #[arg(value_name = "NAME", id = "node", value_parser = name)]
    pub(crate) name: String,
    /// Share of partitions relative to other nodes.
    #[arg(long = "weight", id = "new_weight", value_name = "W", within = WEIGHTS)]
    pub(crate) weight: Option<u32>,
    /// Maximum number of replicas on the node, or `none` for no limit.
    #[arg(long = "partitions-max", id = "new_partitions_max", value_name = "N|none", value_parser = limit)]
    pub(crate) partitions_max: Option<OrNone<u32>>,
    /// Failure zone of the node, or `none`.
    #[arg(long = "zone", id = "new_zone", value_name = "ZONE|none", value_parser = zone)]
    pub(crate) zone: Option<OrNone<String>>,
}

/// A value, or `none`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct OrNone<T>(pub(crate) Option<T>);

fn limit(text: &str) -> Result<OrNone<u32>, String> {
    match text.parse() {
        _ if text == "none" => Ok(OrNone(None)),
        Ok(most) if most > 0 => Ok(OrNone(Some(most))),
        _ => Err(format!("{text:?} is not a limit; use a number from 1, or `none`")),
    }
}

fn zone(text: &str) -> Result<OrNone<String>, String> {
    if text == "none" { Ok(OrNone(None)) } else { name(text).map(|zone| OrNone(Some(zone))) }
}

/// Options of `archon node remove`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct RemoveArgs {
    /// Name or number of the node.
    #[arg(value_name = "NAME", id = "node", value_parser = name)]
    pub(crate) name: String,
    /// Show what would be discarded, or why the removal is refused (exit 4); change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Options of `archon node drain`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct DrainArgs {
    /// The nodes.
    #[command(flatten)]
    pub(crate) nodes: NodeNamesArgs,
    /// Show the moves, or why the drain is refused (exit 4); change nothing.
    #[arg(long, conflicts_with = "wait")]
    pub(crate) dry_run: bool,
    /// Wait until the nodes are empty, showing progress. Ctrl-C detaches; the drain continues.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Stop waiting after this time (exit 6); the drain continues.
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "wait")]
    pub(crate) wait_timeout: Option<Duration>,
}

/// Options of `archon node lost`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct LostArgs {
    /// Name or number of the node.
    #[arg(value_name = "NAME", id = "node", value_parser = name)]
    pub(crate) name: String,
    /// Proceed even if partitions lose their last in-sync replica, and acknowledged writes with it.
    #[arg(long)]
    pub(crate) accept_data_loss: bool,
    /// Show what would be lost, or why the command is refused (exit 4); change nothing.
    #[arg(long, conflicts_with = "accept_data_loss")]
    pub(crate) dry_run: bool,
}

/// Options of a command with a repeated report.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct WatchArgs {
    /// Print the report again after each change, until Ctrl-C; with `-o json`, one object per line.
    #[arg(short, long)]
    pub(crate) watch: bool,
}

/// Options of `archon node describe`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct DescribeArgs {
    /// Name or number of the node.
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// Watch options.
    #[command(flatten)]
    pub(crate) watch: WatchArgs,
}

/// `archon rebalance …`
#[derive(Subcommand, Debug)]
pub(crate) enum RebalanceVerb {
    /// Compute and show a plan: its moves with reasons, and constraints it cannot meet. Changes nothing.
    #[command(after_help = "\
Examples:
  archon rebalance plan
  archon rebalance plan --out plan.json && archon rebalance apply plan.json
  archon rebalance plan --detailed-exitcode    exit 10 if the plan has moves, 0 if not")]
    Plan(PlanArgs),
    /// Apply the plan in a file, or without a file a plan computed now.
    ///
    /// A plan is valid for one version of the partition table. If the table has changed since, the plan is refused
    /// (exit 4) and nothing starts. The moves continue in the cluster even if this command does not wait.
    #[command(after_help = "\
Examples:
  archon rebalance apply plan.json
  archon rebalance apply plan.json --dry-run   check that the plan fits this cluster and is current
  archon rebalance apply --wait                plan, apply, show progress; Ctrl-C detaches")]
    Apply(ApplyArgs),
    /// Show running moves, splits and merges, with their progress and what blocks them.
    #[command(
        after_help = "Examples:\n  archon rebalance status --watch\n  archon rebalance status -o json | jq .running"
    )]
    Status(WatchArgs),
    /// Cancel the rebalance: moves that have not handed over yet are undone.
    #[command(after_help = "Examples:\n  archon rebalance cancel")]
    Cancel,
}

/// Options of `archon rebalance plan`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct PlanArgs {
    /// Write the plan to this file as well, for `archon rebalance apply FILE`.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Exit with 10 instead of 0 if the plan has moves.
    #[arg(long)]
    pub(crate) detailed_exitcode: bool,
}

/// Options of `archon rebalance apply`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ApplyArgs {
    /// Plan file written by `archon rebalance plan --out FILE`; without it, a plan is computed now.
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Show the moves and change nothing; a plan in a file is validated as if it were applied.
    #[arg(long, conflicts_with = "wait")]
    pub(crate) dry_run: bool,
    /// Wait until every move is finished, showing progress. Ctrl-C detaches; the moves continue.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Stop waiting after this time (exit 6); the moves continue.
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "wait")]
    pub(crate) wait_timeout: Option<Duration>,
}

/// Options of `archon top`.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct TopArgs {
    /// Refresh interval, 200ms to 10m.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = refresh)]
    pub(crate) every: Duration,
}

/// Options of `archon events`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct EventsArgs {
    /// Maximum number of events to show, 1 to 10000; older events are omitted.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
    /// Print new events as they occur, until Ctrl-C; with `-o json`, one list per line.
    #[arg(short, long)]
    pub(crate) follow: bool,
}
