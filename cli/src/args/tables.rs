//! Options of the verbs that look at tables, or make, change and drop one.

use super::WatchArgs;
use super::parse::name;
use clap::Subcommand;

/// `archon table …`
#[derive(Subcommand, Debug)]
pub(crate) enum TableVerb {
    /// List the tables.
    #[command(after_help = "Examples:\n  archon table list\n  archon table list -o json")]
    List(WatchArgs),
    /// Create a table; its number of partitions never changes.
    #[command(
        after_help = "Examples:\n  archon table create orders --partitions 64 --replication 3\n  archon table create jobs --partitions 64 --lease"
    )]
    Create(CreateTableArgs),
    /// Want another number of copies of each partition.
    ///
    /// More are made one after the other while the table is served; a partition takes writes with as few copies as before
    /// until all count. What is too many is deleted, never the last copies that count. More copies than there are nodes are
    /// refused (exit 4). The number of partitions never changes.
    #[command(
        after_help = "Examples:\n  archon table alter orders --replication 3\n  archon status                              how many partitions lack copies yet"
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
    pub(crate) replication: u8,
}

/// Options of `archon table create`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct CreateTableArgs {
    /// The table's name.
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// How many partitions it is cut into, 1 to 16384.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub(crate) partitions: u32,
    /// Copies of each partition, 1 to 7.
    #[arg(
        long,
        value_name = "R",
        value_parser = clap::value_parser!(u8).range(1..=7),
        required_unless_present = "lease",
        conflicts_with = "lease"
    )]
    pub(crate) replication: Option<u8>,
    /// The partitions hold no rows: each is a lease, owned by one participant of a service of yours.
    #[arg(long)]
    pub(crate) lease: bool,
}
