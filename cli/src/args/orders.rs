//! Options of orders for partitions and nodes, and of the check.

use super::parse::{name, partition, standing, threshold};
use clap::ArgMatches;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use std::time::Duration;

/// A partition.
#[derive(Clone, Debug)]
pub(crate) struct PartitionArgs {
    /// Its number within its table.
    pub(crate) id: u32,
    /// Name of the table.
    pub(crate) table: String,
}

/// A partition as it is written.
#[derive(clap::Args, Clone, Debug)]
struct WrittenPartition {
    /// Number of the partition; or its table and number, as in orders/7.
    #[arg(value_name = "ID", value_parser = partition, allow_negative_numbers = true)]
    id: (Option<String>, u32),
    /// Name of the table.
    #[arg(long, value_name = "T", default_value = "default", value_parser = name)]
    table: String,
}

impl clap::FromArgMatches for PartitionArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let WrittenPartition { id: (of, id), table } = WrittenPartition::from_arg_matches(matches)?;
        let said = matches.value_source("table") == Some(ValueSource::CommandLine);
        match of {
            Some(of) if said && of != table => {
                let message =
                    format!("{of}/{id} names the table {of}, but --table names {table}; give the table once\n");
                Err(clap::Error::raw(ErrorKind::ArgumentConflict, message))
            }
            Some(of) => Ok(Self { id, table: of }),
            None => Ok(Self { id, table }),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for PartitionArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        WrittenPartition::augment_args(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        WrittenPartition::augment_args_for_update(command)
    }
}

/// Reason for an order.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct WhyArgs {
    /// Reason, up to 200 characters; shown in events, and with the exclusion, offline state or maintenance while it
    /// lasts.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) why: String,
}

/// Options of `archon partition bump | offline`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct OrderPartitionArgs {
    /// Partition.
    #[command(flatten)]
    pub(crate) partition: PartitionArgs,
    /// Reason.
    #[command(flatten)]
    pub(crate) why: WhyArgs,
}

/// Options of `archon partition unbar`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct UnbarPartitionArgs {
    /// Partition.
    #[command(flatten)]
    pub(crate) partition: PartitionArgs,
    /// Name or number of the node or participant.
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub(crate) node: String,
}

/// Options of `archon partition bar`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct BarPartitionArgs {
    /// Partition and node.
    #[command(flatten)]
    pub(crate) unbar: UnbarPartitionArgs,
    /// Reason.
    #[command(flatten)]
    pub(crate) why: WhyArgs,
}

/// Options of `archon node unbar`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct UnbarNodeArgs {
    /// Name or number of the node or participant.
    #[arg(value_name = "NAME", id = "node", value_parser = name)]
    pub(crate) name: String,
    /// Name of the table.
    #[arg(long, value_name = "T", value_parser = name)]
    pub(crate) table: String,
}

/// Options of `archon node bar`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct BarNodeArgs {
    /// Node and table.
    #[command(flatten)]
    pub(crate) unbar: UnbarNodeArgs,
    /// Reason.
    #[command(flatten)]
    pub(crate) why: WhyArgs,
}

/// Options of `archon node maintain`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct MaintainArgs {
    /// The nodes.
    #[command(flatten)]
    pub(crate) nodes: super::admin::NodeNamesArgs,
    /// Duration, after which maintenance ends automatically: 10m, 2h, 3d; from a second to 30 days.
    #[arg(long = "for", id = "lasts", value_name = "TIME", value_parser = standing)]
    pub(crate) lasts: Duration,
    /// Reason.
    #[command(flatten)]
    pub(crate) why: WhyArgs,
}

/// Options of `archon check`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct CheckArgs {
    /// Alert if the lease of a member that owns partitions was not extended for this time, up to 30d; default: twice
    /// its failure time-out. Three missed heartbeats are reported as a notice.
    #[arg(long, value_name = "TIME", value_parser = threshold)]
    pub(crate) stale_after: Option<Duration>,
    /// Alert if fewer nodes, or participants of the table --of, take partitions; cordoned, drained and failed ones do
    /// not count.
    #[arg(long, value_name = "N")]
    pub(crate) min_members: Option<u32>,
    /// Lease table for --min-members: counts its participants instead of nodes.
    #[arg(long, value_name = "TABLE", value_parser = name, requires = "min_members")]
    pub(crate) of: Option<String>,
    /// Warn about exclusions, offline partitions, cordons, drains and maintenance that have lasted for at least this
    /// time, up to 30d. Newer ones are notices.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = threshold)]
    pub(crate) held_for: Duration,
}

#[cfg(test)]
mod tests {
    use crate::args::{PartitionVerb, Verb, parse_line};
    use std::ffi::OsString;

    #[test]
    fn printed_partition_name_is_accepted() {
        let read = |line: &[&str]| {
            let words = ["archon", "partition", "online"].iter().chain(line).map(OsString::from);
            match parse_line(words).map_err(|error| error.to_string())?.verb {
                Verb::Partition(PartitionVerb::Online(args)) => Ok((args.table, args.id)),
                other => Err(format!("{other:?}")),
            }
        };
        let is = |table: &str, id| Ok((table.to_owned(), id));
        assert_eq!((read(&["times/7"]), read(&["7"])), (is("times", 7), is("default", 7)));
        assert_eq!(read(&["times/7", "--table", "times"]), is("times", 7));
        assert_eq!(read(&["7", "--table", "times"]), is("times", 7));
        for (line, part) in [
            (&["times/7", "--table", "orders"][..], "give the table once"),
            (&["-1"], "0 or more"),
            (&["times/x"], "a number, or a table and a number"),
            (&["a b/1"], "name"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(part), "{line:?}: {error}");
        }
    }
}
