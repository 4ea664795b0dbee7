//! Options of the verbs that show, create, change and drop tables.

use super::parse::{merge_size, name, rate, split_point, split_size};
use super::{OrNone, WatchArgs};
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
    /// Show everything about one table: partitions and copies by state, size, limits, the share of each node, problems.
    ///
    /// Of a lease table, the participants that own its partitions. With --partitions also a line for each partition: its leader or
    /// owner, its copies, and where keys are in ranges the range.
    #[command(
        after_help = "Examples:\n  archon table describe orders\n  archon table describe orders --partitions\n  archon table describe orders -o json"
    )]
    Describe(DescribeTableArgs),
    /// Create a table: keys hashed among a number of partitions that never changes, or in order, in ranges.
    ///
    /// Where keys are hashed, load spreads by itself, and a listing in order asks every partition. Where they are in ranges, `archon
    /// kv scan` lists them in order at the price of what is listed.
    #[command(
        after_help = "Examples:\n  archon table create orders --partitions 64 --replication 3\n  archon table create jobs --partitions 64 --lease\n  archon table create times --range --split-at 2026-06,2026-07 --replication 3\n  archon table create times --range --split-above 1GiB --replication 3"
    )]
    Create(CreateTableArgs),
    /// Want another number of copies of each partition, or have partitions split by themselves above another size or load.
    ///
    /// More copies are made one after the other while the table is served; a partition takes writes with as few copies as before
    /// until all count. What is too many is deleted, never the last copies that count. More copies than there are nodes are
    /// refused (exit 4). The number of partitions never changes where keys are hashed; a table by ranges can have limits above
    /// which its partitions are split.
    #[command(
        after_help = "Examples:\n  archon table alter orders --replication 3\n  archon table alter times --split-above 512MiB\n  archon table alter times --split-above none\n  archon status                              how many partitions lack copies yet"
    )]
    Alter(AlterTableArgs),
    /// Drop a table with everything in it. Nothing brings it back.
    ///
    /// Without --yes it says what would be deleted and is refused (exit 4). The name is free at once: a table made under it
    /// is another one, and empty. Each node deletes its copies; one that is not alive does when it returns, and `archon
    /// status` says for which ones that waits. `default` is a table like any other.
    #[command(
        after_help = "Examples:\n  archon table drop orders             what would be deleted\n  archon table drop orders --yes       deletes it"
    )]
    Drop(DropTableArgs),
}

/// Options of `archon table describe`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct DescribeTableArgs {
    /// The table's name.
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
    /// The table's name.
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// Delete it.
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Options of `archon table alter`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct AlterTableArgs {
    /// The table's name.
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// Copies of each partition, 1 to 7.
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u8).range(1..=7))]
    pub(crate) replication: Option<u8>,
    /// The size of keys and values above which a partition of a table by ranges is split by itself, 1MiB at least, or `none`.
    #[arg(long, value_name = "SIZE|none", value_parser = or_none(split_size))]
    pub(crate) split_above: Option<OrNone<u64>>,
    /// The operations per second above which it is, 100 at least, or `none`.
    #[arg(long, value_name = "OPS|none", value_parser = or_none(rate))]
    pub(crate) split_above_rate: Option<OrNone<u64>>,
    /// The size of keys and values up to which two neighbours are merged by themselves if they have it together for a minute, 16MiB at
    /// most and half of --split-above, or `none`; also those that --split-at or `archon partition split` made.
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
    /// The table's name.
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// How many partitions keys are hashed among, 1 to 16384, for good: 8 to 10 or more for each node or participant that there
    /// will ever be, or shares of them are uneven.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16384), group = "by")]
    pub(crate) partitions: Option<u32>,
    /// The keys are in order: each partition has a range of them.
    #[arg(long, conflicts_with = "lease", group = "by")]
    pub(crate) range: bool,
    /// The keys at which a table by ranges is split from the start, with commas between them, in any order; none: it begins with one
    /// partition. May be given several times; 1023 keys at most. A key with a comma in it cannot be given: split there later, by
    /// `archon partition split --at`.
    #[arg(long, value_name = "K1,K2", value_delimiter = ',', value_parser = split_point, requires = "range", conflicts_with_all = ["partitions", "lease"])]
    pub(crate) split_at: Vec<String>,
    /// The size of keys and values above which a partition is split by itself, 1MiB at least: 1GiB is ordinary.
    #[arg(long, value_name = "SIZE", value_parser = split_size, requires = "range", conflicts_with_all = ["partitions", "lease"])]
    pub(crate) split_above: Option<u64>,
    /// The operations per second above which a partition is split by itself, 100 at least, unless a single key gets most of them.
    #[arg(long, value_name = "OPS", value_parser = rate, requires = "range", conflicts_with_all = ["partitions", "lease"])]
    pub(crate) split_above_rate: Option<u64>,
    /// The size of keys and values up to which two neighbours are merged by themselves if they have it together for a minute, 16MiB at
    /// most and half of --split-above; also those that --split-at or `archon partition split` made.
    #[arg(long, value_name = "SIZE", value_parser = merge_size, requires = "range", conflicts_with_all = ["partitions", "lease"])]
    pub(crate) merge_below: Option<u64>,
    /// Copies of each partition, 1 to 7; the default is the cluster's `replication` (`archon config show`).
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u8).range(1..=7), conflicts_with = "lease")]
    pub(crate) replication: Option<u8>,
    /// The partitions hold no rows: each is a lease, owned by one participant of a service of yours.
    #[arg(long)]
    pub(crate) lease: bool,
}
