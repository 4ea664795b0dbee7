//! Options of the commands that show, create, change and drop tables.

use super::admin::{OrNone, WatchArgs};
use super::bounds::Bounded as _;
use super::parse::{merge_size, name, rate, split_point, split_size};
use archon_types::HASH_PARTITIONS_MAX;
use archon_types::limits::REPLICAS_MAX;
use clap::Subcommand;

fn or_none<T>(of: impl Fn(&str) -> Result<T, String> + Clone) -> impl Fn(&str) -> Result<OrNone<T>, String> + Clone {
    move |text| if text == "none" { Ok(OrNone(None)) } else { of(text).map(|value| OrNone(Some(value))) }
}

/// `archon table …`
#[derive(Subcommand, Debug)]
pub(crate) enum TableVerb {
    /// List the tables.
    #[command(after_help = "Examples:\n  archon table list\n  archon table list -o json")]
    List(WatchArgs),
    /// Show all details of one table: partitions and replicas by state, size, limits, share of each node, problems.
    ///
    /// For a lease table, shows the participants that own its partitions. --partitions adds a line per partition:
    /// leader or owner, replicas, and the key range of a range table.
    #[command(
        after_help = "Examples:\n  archon table describe orders\n  archon table describe orders --partitions\n  archon table describe orders -o json"
    )]
    Describe(DescribeTableArgs),
    /// Create a table: with hashed keys and a fixed number of partitions, or with ordered keys in ranges.
    ///
    /// Hashed keys spread the load evenly, but an ordered listing queries every partition. In a range table, `archon kv
    /// scan` lists keys in order and reads only the listed rows.
    #[command(
        after_help = "Examples:\n  archon table create orders --partitions 64 --replication 3\n  archon table create jobs --partitions 64 --lease\n  archon table create times --range --split-at 2026-06,2026-07 --replication 3\n  archon table create times --range --split-above 1GiB --replication 3"
    )]
    Create(CreateTableArgs),
    /// Change the replication of a table, or the limits above which its partitions are split automatically.
    ///
    /// New replicas are built one after the other while the table is available; until all are in sync, a partition
    /// accepts writes with its former number of replicas. Surplus replicas are deleted, but never the last in-sync
    /// ones. A replication above the number of nodes is refused (exit 4). The number of partitions of a hash table
    /// never changes; limits for splits apply to range tables.
    #[command(
        after_help = "Examples:\n  archon table alter orders --replication 3\n  archon table alter times --split-above 512MiB\n  archon table alter times --split-above none\n  archon status                              shows how many partitions lack replicas"
    )]
    Alter(AlterTableArgs),
    /// Drop a table with all its data. This cannot be undone.
    ///
    /// Without --yes the command shows what would be deleted and refuses (exit 4). The name can be reused at once: a
    /// new table with this name starts empty. Each node deletes its replicas; a node that is down deletes them when it
    /// returns, and `archon status` shows the nodes this waits for. The table `default` can be dropped like any other.
    #[command(
        after_help = "Examples:\n  archon table drop orders             show what would be deleted\n  archon table drop orders --yes       delete it"
    )]
    Drop(DropTableArgs),
}

/// Options of `archon table describe`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct DescribeTableArgs {
    /// Name of the table.
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// Show each partition as well.
    #[arg(long)]
    pub(crate) partitions: bool,
    /// Options of watching.
    #[command(flatten)]
    pub(crate) watch: WatchArgs,
}

/// Options of `archon table drop`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct DropTableArgs {
    /// Name of the table.
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// Confirm the deletion.
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Options of `archon table alter`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct AlterTableArgs {
    /// Name of the table.
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// Number of replicas of each partition.
    #[arg(long, value_name = "R", within = 1..=REPLICAS_MAX)]
    pub(crate) replication: Option<u8>,
    /// Size of keys and values above which a partition of a range table is split automatically, at least 1MiB, or
    /// `none`.
    #[arg(long, value_name = "SIZE|none", value_parser = or_none(split_size))]
    pub(crate) split_above: Option<OrNone<u64>>,
    /// Operations per second above which a partition is split automatically, at least 100, or `none`.
    #[arg(long, value_name = "OPS|none", value_parser = or_none(rate))]
    pub(crate) split_above_rate: Option<OrNone<u64>>,
    /// Size of keys and values up to which two neighbours are merged automatically, if their sum stays at or below it
    /// for a minute; at most 16MiB and half of --split-above, or `none`. Applies also to partitions made by --split-at
    /// or `archon partition split`.
    #[arg(long, value_name = "SIZE|none", value_parser = or_none(merge_size))]
    pub(crate) merge_below: Option<OrNone<u64>>,
}

/// Options of `archon table create`.
#[derive(clap::Args, Clone, Debug)]
#[command(group = clap::ArgGroup::new("by").required(true), override_usage = "\
archon table create <NAME> --partitions <N> [--replication <R>]
       archon table create <NAME> --range [--replication <R>] [--split-at <K1,K2>] [--split-above <SIZE>] [--merge-below <SIZE>]
       archon table create <NAME> --lease --partitions <N>")]
pub(crate) struct CreateTableArgs {
    /// Name of the table: 1 to 64 letters, digits, `-`, `_` and `.`, not beginning with `-` or `.`.
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// Number of partitions for hashed keys; it cannot be changed later. Plan 8 to 10 or more per node or participant that
    /// you will ever have, for even shares.
    #[arg(long, value_name = "N", within = 1..=HASH_PARTITIONS_MAX, group = "by")]
    pub(crate) partitions: Option<u32>,
    /// Store keys in order: each partition has a range of them.
    #[arg(long, conflicts_with = "lease", group = "by")]
    pub(crate) range: bool,
    /// Initial split keys of a range table, separated by commas, in any order; default: one partition. May be repeated;
    /// at most 1023 keys. A key that contains a comma is given with --hex.
    #[arg(long, value_name = "K1,K2", value_delimiter = ',', value_parser = split_point, requires = "range", conflicts_with_all = ["partitions", "lease"])]
    pub(crate) split_at: Vec<String>,
    /// Read the keys of --split-at as hexadecimal digits, two per byte: for keys that are not UTF-8, or contain a comma.
    #[arg(long, requires = "split_at")]
    pub(crate) hex: bool,
    /// Size of keys and values above which a partition is split automatically, at least 1MiB, typically 1GiB; default:
    /// no limit.
    #[arg(long, value_name = "SIZE", value_parser = split_size, requires = "range", conflicts_with_all = ["partitions", "lease"])]
    pub(crate) split_above: Option<u64>,
    /// Operations per second above which a partition is split automatically, at least 100, unless a single key receives
    /// most of them; default: no limit.
    #[arg(long, value_name = "OPS", value_parser = rate, requires = "range", conflicts_with_all = ["partitions", "lease"])]
    pub(crate) split_above_rate: Option<u64>,
    /// Size of keys and values up to which two neighbours are merged automatically, if their sum stays at or below it
    /// for a minute; at most 16MiB and half of --split-above; default: never. Applies also to partitions made by
    /// --split-at or `archon partition split`.
    #[arg(long, value_name = "SIZE", value_parser = merge_size, requires = "range", conflicts_with_all = ["partitions", "lease"])]
    pub(crate) merge_below: Option<u64>,
    /// Number of replicas of each partition; default: the setting `replication` of the cluster (`archon config show`).
    #[arg(long, value_name = "R", within = 1..=REPLICAS_MAX, conflicts_with = "lease")]
    pub(crate) replication: Option<u8>,
    /// Create a lease table: its partitions hold no rows, and each is owned by one participant of your service.
    #[arg(long)]
    pub(crate) lease: bool,
}
