//! Options of the verbs that create, verify and restore backups.

use super::parse::{name, pace};
use clap::Subcommand;

/// `archon backup …`
#[derive(Subcommand, Debug)]
pub(crate) enum BackupVerb {
    /// Take a backup of all tables, or of some, into a directory or an object store.
    ///
    /// Each partition is read from the node that leads it, as of one position of its log: the backup has everything that was
    /// acknowledged before it began, and of each partition nothing but a committed prefix. The cluster goes on meanwhile. A backup
    /// that was interrupted goes on with the same --to; one that is done is never changed. By TLS it takes an admin.
    ///
    /// Ends with 10 if a table had to be left out, since a restore into it has not ended; named with --table it is refused (exit 4).
    ///
    /// A place is a directory, or s3://bucket/prefix or gs://bucket/prefix where archon is built with the feature object-store. Credentials
    /// are taken from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT, or
    /// GOOGLE_APPLICATION_CREDENTIALS, or the role of the machine.
    #[command(
        after_help = "Examples:\n  archon backup create --to /backups/monday\n  archon backup create --to /backups/monday --table orders --max-rate 50MiB\n  archon backup create --to /backups/tuesday --since /backups/monday\n  archon backup create --to s3://bucket/archon/monday\n  archon backup verify /backups/monday"
    )]
    Create(CreateBackupArgs),
    /// Read all of a backup and say whether it is as it was written; it takes no cluster.
    ///
    /// Ends with 0 if it is, with 1 and every file that is damaged, with its table and partition, if not, and with 3 if there is no
    /// finished backup.
    #[command(
        after_help = "Examples:\n  archon backup verify /backups/monday\n  archon backup verify /backups/monday -o json | jq .entries_total"
    )]
    Verify(LookAtBackupArgs),
    /// Show what a backup says of itself, without reading its entries; it takes no cluster.
    #[command(
        after_help = "Examples:\n  archon backup show /backups/monday\n  archon backup show /backups/monday -o json | jq -r '.tables[].table'"
    )]
    Show(LookAtBackupArgs),
    /// Restore all tables of a backup, or one, into new tables of this cluster or another one.
    ///
    /// What is restored is verified first. Tables are made as they were: with as many partitions and copies, or split at the same keys; a lease
    /// table holds nothing and is made anew. A table that is there already is refused, and nothing is changed. Values keep their bytes;
    /// their revisions are new, and no write that a client repeats is known any more. A restore that was interrupted goes on with --resume;
    /// until it has ended, the table has a row that says so.
    #[command(
        after_help = "Examples:\n  archon backup restore /backups/monday\n  archon backup restore /backups/monday --table orders --as orders_monday\n  archon backup restore /backups/monday --replication 1        into a cluster of one node\n  archon backup restore /backups/monday --resume               after it was interrupted"
    )]
    Restore(RestoreBackupArgs),
}

/// Options of `archon backup create`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct CreateBackupArgs {
    /// The directory, or s3://bucket/prefix or gs://bucket/prefix: an empty one, a new one, or one in which a backup was begun.
    #[arg(long, value_name = "PLACE")]
    pub(crate) to: String,
    /// An earlier backup of this cluster. Files of partitions that nothing was written to since are taken over from it, once they were
    /// read and found whole: as a second name of the same file, or copied, within a bucket by the store itself. This goes by partitions, not by rows; of a partition with one
    /// new row everything is read. The new backup stands on its own, and the earlier one may be deleted.
    #[arg(long, value_name = "PLACE")]
    pub(crate) since: Option<String>,
    /// Only these tables, with commas between them.
    #[arg(long = "table", value_name = "T", value_delimiter = ',', value_parser = name)]
    pub(crate) tables: Vec<String>,
    /// Read no faster, all partitions together, per second: 1MiB at least.
    #[arg(long, value_name = "SIZE", value_parser = pace)]
    pub(crate) max_rate: Option<u64>,
    /// How many partitions are read at once; fewer where --max-rate would leave each less than 512KiB per second.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(crate) parallel: u8,
    /// How it gets on.
    #[command(flatten)]
    pub(crate) progress: ProgressArgs,
}

/// Options of the verbs that read a backup alone.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct LookAtBackupArgs {
    /// The directory, or s3://bucket/prefix or gs://bucket/prefix, that holds the backup.
    #[arg(value_name = "PLACE")]
    pub(crate) from: String,
    /// How it gets on.
    #[command(flatten)]
    pub(crate) progress: ProgressArgs,
}

/// Options of `archon backup restore`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct RestoreBackupArgs {
    /// The directory, or s3://bucket/prefix or gs://bucket/prefix, that holds the backup.
    #[arg(value_name = "PLACE")]
    pub(crate) from: String,
    /// Only this table.
    #[arg(long, value_name = "T", value_parser = name)]
    pub(crate) table: Option<String>,
    /// The name that the table gets.
    #[arg(long = "as", value_name = "U", value_parser = name, requires = "table")]
    pub(crate) rename: Option<String>,
    /// Among how many partitions keys are hashed, 1 to 16384, instead of as many as before; not for tables by ranges.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub(crate) partitions: Option<u32>,
    /// Copies of each partition, 1 to 7, instead of as many as before.
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u8).range(1..=7))]
    pub(crate) replication: Option<u8>,
    /// Go on with tables that a restore of this backup has left unfinished, and make those that are not there. Rows that are there
    /// already stay as they are.
    #[arg(long)]
    pub(crate) resume: bool,
    /// Read the backup no faster, per second: 1MiB at least.
    #[arg(long, value_name = "SIZE", value_parser = pace)]
    pub(crate) max_rate: Option<u64>,
    /// How it gets on.
    #[command(flatten)]
    pub(crate) progress: ProgressArgs,
}

/// How it is told how something gets on.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct ProgressArgs {
    /// Say on standard error how far it is and how long the rest takes; on a terminal that is shown without asking.
    #[arg(long)]
    pub(crate) progress: bool,
}
