//! Options of the verbs that show or change nodes, plans and events.

use super::orders::{BarNodeArgs, MaintainArgs, UnbarNodeArgs};
use super::parse::{duration, name, refresh, weight};
use clap::Subcommand;
use std::path::PathBuf;
use std::time::Duration;

/// `archon node …`
#[derive(Subcommand, Clone, Debug)]
pub(crate) enum NodeVerb {
    /// List the nodes of the cluster.
    #[command(after_help = "Examples:\n  archon node list\n  archon node list -o json | jq -r '.[].node'")]
    List(WatchArgs),
    /// Say everything about one node and what it hosts.
    #[command(after_help = "Examples:\n  archon node describe athens")]
    Describe(DescribeArgs),
    /// Give a node nothing new: no new copies, no leadership that another can take. It keeps what it has.
    #[command(after_help = "Examples:\n  archon node cordon athens\n  archon node uncordon athens          undoes it")]
    Cordon(NodeNamesArgs),
    /// Let a cordoned node take copies again.
    #[command(after_help = "Examples:\n  archon node uncordon athens")]
    Uncordon(NodeNamesArgs),
    /// Give a node another weight, limit or zone while it runs.
    ///
    /// The change is committed; plans, first assignments and repair go by it at once. Copies that are there stay until
    /// `archon rebalance apply` moves them. It outlives restarts of the node: the flags a node is started with count when it
    /// registers for the first time, and again when they were changed since it registered last.
    #[command(after_help = "\
Examples:
  archon node set athens --weight 50
  archon node set athens --partitions-max 8 --zone east
  archon node set athens --partitions-max none --zone none    no limit, no zone")]
    Set(NodeSetArgs),
    /// Empty a node: its leaderships go to other nodes first, then every copy is replaced elsewhere.
    ///
    /// Checked beforehand: a drain that cannot end is refused (exit 4) with every reason, and nothing is begun. The node
    /// serves until it is empty, and no partition has fewer copies at any moment. The drain goes on in the cluster whether
    /// or not this command waits for it.
    ///
    /// A participant hands over its leases. It is never refused: what nobody else takes stays with it, and `archon check` says
    /// so.
    #[command(after_help = "\
Examples:
  archon node drain athens --dry-run           what would go where, or why it cannot
  archon node drain athens --wait              show progress; Ctrl-C detaches
  archon node drain athens byzantium --wait    both: the copies of neither go to the other
  archon node undrain athens                   takes it back")]
    Drain(DrainArgs),
    /// Stop emptying nodes: they keep what they still have and take copies again.
    #[command(after_help = "Examples:\n  archon node undrain athens\n  archon node undrain athens byzantium")]
    Undrain(NodeNamesArgs),
    /// Let a node or participant lead nothing for a while, to work on it: its copies stay.
    ///
    /// Its leaderships go to others and nothing new comes to it. Its copies stay where they are, and are not replaced while it
    /// is down. It ends by itself after --for; then what was wanted of it before (to serve, or a cordon) is wanted again.
    #[command(after_help = "\
Examples:
  archon node maintain athens --for 10m --why 'new kernel'
  archon node resume athens                  ends it before its time")]
    Maintain(MaintainArgs),
    /// End the maintenance of nodes.
    #[command(after_help = "Examples:\n  archon node resume athens")]
    Resume(NodeNamesArgs),
    /// Keep all partitions of a table from a node or participant.
    ///
    /// Copies that it has are replaced elsewhere first, then deleted; what it leads is handed over. Refused (exit 4) if too few
    /// nodes would be left for the copies that the table wants. Of a lease table any participant may be barred: what nobody else
    /// may own stays with its owner, and `archon check` says so.
    #[command(
        after_help = "Examples:\n  archon node bar athens --table orders --why 'slow disk'\n  archon node unbar athens --table orders"
    )]
    Bar(BarNodeArgs),
    /// Take back that a node or participant is barred from a table.
    #[command(after_help = "Examples:\n  archon node unbar athens --table orders")]
    Unbar(UnbarNodeArgs),
    /// Forget a node that has stopped and holds nothing that counts.
    ///
    /// Drain it, stop it, remove it. It is refused (exit 4) with every reason while it is alive or holds a copy that counts;
    /// copies that do not count go with it, and how many is said. A node that is forgotten and started again on an empty
    /// data directory joins as a new one.
    #[command(
        after_help = "Examples:\n  archon node drain athens --wait     and stop it; then\n  archon node remove athens --dry-run  what would go with it, or why it cannot be\n  archon node remove athens"
    )]
    Remove(RemoveArgs),
    /// Declare that the data of a failed node will not come back: its copies count no more and are made anew elsewhere.
    ///
    /// Say this if its disk is gone for good; while it may come back, wait. If partitions would lose their last copy that
    /// counts, it is refused (exit 4) and they are named, unless --accept-data-loss is given.
    #[command(
        after_help = "Examples:\n  archon node lost athens --dry-run    what would be given up\n  archon node lost athens"
    )]
    Lost(LostArgs),
}

/// Options of a verb that is about some nodes.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct NodeNamesArgs {
    /// The nodes' names, or their numbers.
    #[arg(value_name = "NAME", id = "node", value_parser = name, required = true, num_args = 1..)]
    pub(crate) names: Vec<String>,
}

/// Options of `archon node set`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct NodeSetArgs {
    /// The node's name, or its number.
    #[arg(value_name = "NAME", id = "node", value_parser = name)]
    pub(crate) name: String,
    /// Its share of partitions relative to other nodes; 100 is ordinary.
    #[arg(long = "weight", id = "new_weight", value_name = "W", value_parser = weight)]
    pub(crate) weight: Option<u32>,
    /// Most copies of partitions that it takes, or `none`.
    #[arg(long = "partitions-max", id = "new_partitions_max", value_name = "N|none", value_parser = limit)]
    pub(crate) partitions_max: Option<OrNone<u32>>,
    /// The failure zone it stands in, or `none`.
    #[arg(long = "zone", id = "new_zone", value_name = "ZONE|none", value_parser = zone)]
    pub(crate) zone: Option<OrNone<String>>,
}

/// A value, or the word for its absence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct OrNone<T>(pub(crate) Option<T>);

fn limit(text: &str) -> Result<OrNone<u32>, String> {
    match text.parse() {
        _ if text == "none" => Ok(OrNone(None)),
        Ok(most) if most > 0 => Ok(OrNone(Some(most))),
        _ => Err(format!("{text:?} is no limit; write a number from 1, or `none`")),
    }
}

fn zone(text: &str) -> Result<OrNone<String>, String> {
    if text == "none" { Ok(OrNone(None)) } else { name(text).map(|zone| OrNone(Some(zone))) }
}

/// Options of `archon node remove`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct RemoveArgs {
    /// The node's name, or its number.
    #[arg(value_name = "NAME", id = "node", value_parser = name)]
    pub(crate) name: String,
    /// Only say what would go with it, or what stands in the way (exit 4).
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Options of `archon node drain`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct DrainArgs {
    /// The nodes.
    #[command(flatten)]
    pub(crate) nodes: NodeNamesArgs,
    /// Only say what would be done, or what stands in the way (exit 4).
    #[arg(long, conflicts_with = "wait")]
    pub(crate) dry_run: bool,
    /// Wait until the node is empty, showing progress. Ctrl-C detaches: the drain goes on.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Give up waiting after this time (exit 6); the drain goes on.
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "wait")]
    pub(crate) wait_timeout: Option<Duration>,
}

/// Options of `archon node lost`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct LostArgs {
    /// The node's name, or its number.
    #[arg(value_name = "NAME", id = "node", value_parser = name)]
    pub(crate) name: String,
    /// Go on although partitions lose their last copy that counts, and acknowledged writes with it.
    #[arg(long)]
    pub(crate) accept_data_loss: bool,
    /// Only say what would be given up, or what stands in the way (exit 4).
    #[arg(long, conflicts_with = "accept_data_loss")]
    pub(crate) dry_run: bool,
}

/// Options of a verb whose answer may be watched.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct WatchArgs {
    /// Show it again whenever it has changed, until Ctrl-C; with `-o json` one object per line.
    #[arg(short, long)]
    pub(crate) watch: bool,
}

/// Options of `archon node describe`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct DescribeArgs {
    /// The node's name, or its number.
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// Whether to go on.
    #[command(flatten)]
    pub(crate) watch: WatchArgs,
}

/// `archon rebalance …`
#[derive(Subcommand, Debug)]
pub(crate) enum RebalanceVerb {
    /// Show what would be moved and why, and what cannot be met. Changes nothing.
    #[command(after_help = "\
Examples:
  archon rebalance plan
  archon rebalance plan --out plan.json && archon rebalance apply plan.json
  archon rebalance plan --detailed-exitcode    ends with 10 if there is something to move, 0 if not")]
    Plan(PlanArgs),
    /// Carry out a plan: exactly the one in the file, or (without a file) one made now.
    ///
    /// A plan holds for one version of the table. If the table moved on since, the plan is refused (exit 4) and
    /// nothing is begun. The moves go on in the cluster whether or not this command waits for them.
    #[command(after_help = "\
Examples:
  archon rebalance apply plan.json
  archon rebalance apply plan.json --dry-run   is it a plan for this cluster, and of now
  archon rebalance apply --wait                plan now, apply, show progress; Ctrl-C detaches")]
    Apply(ApplyArgs),
    /// Show what is being moved, split and merged, how far it is, and what it waits for.
    #[command(
        after_help = "Examples:\n  archon rebalance status --watch\n  archon rebalance status -o json | jq .running"
    )]
    Status(WatchArgs),
    /// Stop the rebalance: moves that have not handed over yet are undone.
    #[command(after_help = "Examples:\n  archon rebalance cancel")]
    Cancel,
}

/// Options of `archon rebalance plan`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct PlanArgs {
    /// Also write the plan to this file, for `archon rebalance apply FILE`.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// End with 10 instead of 0 if the plan has moves.
    #[arg(long)]
    pub(crate) detailed_exitcode: bool,
}

/// Options of `archon rebalance apply`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ApplyArgs {
    /// A plan written by `archon rebalance plan --out FILE`; without it a plan is made now.
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Only say what would be moved; a plan in a file is checked as if it were carried out.
    #[arg(long, conflicts_with = "wait")]
    pub(crate) dry_run: bool,
    /// Wait until every move is done, showing progress. Ctrl-C detaches: the moves go on.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Give up waiting after this time (exit 6); the moves go on.
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "wait")]
    pub(crate) wait_timeout: Option<Duration>,
}

/// Options of `archon top`.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct TopArgs {
    /// Time from one look at the cluster to the next: 200ms to 10m.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = refresh)]
    pub(crate) every: Duration,
}

/// Options of `archon events`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct EventsArgs {
    /// Show at most this many, the newest.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
    /// Go on showing what happens, until Ctrl-C; with `-o json` one list per line.
    #[arg(short, long)]
    pub(crate) follow: bool,
}
