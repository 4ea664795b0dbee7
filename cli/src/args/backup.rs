//! Options of the verbs that create, verify and restore backups.

use super::bounds::Bounded as _;
use super::parse::{name, pace};
use archon_types::HASH_PARTITIONS_MAX;
use archon_types::limits::REPLICAS_MAX;
use clap::Subcommand;

/// `archon backup …`
#[derive(Subcommand, Debug)]
pub(crate) enum BackupVerb {
    /// Back up all tables, or some, to a directory or an object store.
    ///
    /// Each partition is read from its leader, as of one position of its log. The backup contains everything
    /// acknowledged before it started, and for each partition only a committed prefix of its log. The cluster stays
    /// available. An interrupted backup resumes if run again with the same --to; a finished backup is never changed.
    /// With TLS this requires the role admin.
    ///
    /// Exits with 10 if a table was skipped because a restore into it has not finished. If --table names such a table,
    /// the command is refused (exit 4).
    ///
    /// PLACE is a directory, or s3://bucket/prefix or gs://bucket/prefix if archon was built with the feature
    /// object-store. Credentials come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and
    /// AWS_ENDPOINT, or GOOGLE_APPLICATION_CREDENTIALS), or from the role of the machine.
    #[command(
        after_help = "Examples:\n  archon backup create --to /backups/monday\n  archon backup create --to /backups/monday --table orders --max-rate 50MiB\n  archon backup create --to /backups/tuesday --since /backups/monday\n  archon backup create --to s3://bucket/archon/monday\n  archon backup verify /backups/monday"
    )]
    Create(CreateBackupArgs),
    /// Read a whole backup and verify its checksums; works offline.
    ///
    /// Exits with 0 if the backup is intact. Exits with 1 and lists every damaged file with its table and partition
    /// otherwise. Exits with 3 if PLACE holds no finished backup.
    #[command(
        after_help = "Examples:\n  archon backup verify /backups/monday\n  archon backup verify /backups/monday -o json | jq .entries_total"
    )]
    Verify(LookAtBackupArgs),
    /// Show the metadata of a backup without reading its entries; works offline.
    #[command(
        after_help = "Examples:\n  archon backup show /backups/monday\n  archon backup show /backups/monday -o json | jq -r '.tables[].table'"
    )]
    Show(LookAtBackupArgs),
    /// Restore all tables of a backup, or one, into new tables of this cluster or another one.
    ///
    /// The backup is verified first. Tables are created with their former number of partitions or split keys, and their
    /// former replication; a lease table is created without owners. If a table already exists, the command refuses and
    /// changes nothing. Values keep their bytes and get new revisions; requests that clients repeat from before the
    /// backup are not recognized as duplicates. An interrupted restore continues with --resume; until it finishes, the
    /// table contains a row that marks it as unfinished.
    #[command(
        after_help = "Examples:\n  archon backup restore /backups/monday\n  archon backup restore /backups/monday --table orders --as orders_monday\n  archon backup restore /backups/monday --replication 1        for a cluster of one node\n  archon backup restore /backups/monday --resume               after an interruption"
    )]
    Restore(RestoreBackupArgs),
}

/// Options of `archon backup create`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct CreateBackupArgs {
    /// Directory, or s3://bucket/prefix or gs://bucket/prefix: new, empty, or with an unfinished backup to resume.
    #[arg(long, value_name = "PLACE")]
    pub(crate) to: String,
    /// Earlier backup of this cluster to reuse. Files of partitions without writes since then are verified and taken
    /// from it: hard-linked or copied, or copied within the bucket by the object store. Reuse is per partition: a
    /// partition with one new row is read completely. The new backup is self-contained, and the earlier one may be
    /// deleted.
    #[arg(long, value_name = "PLACE")]
    pub(crate) since: Option<String>,
    /// Back up only these tables, separated by commas.
    #[arg(long = "table", value_name = "T", value_delimiter = ',', value_parser = name)]
    pub(crate) tables: Vec<String>,
    /// Limit of the total read rate per second, at least 1MiB.
    #[arg(long, value_name = "SIZE", value_parser = pace)]
    pub(crate) max_rate: Option<u64>,
    /// Number of partitions read in parallel, 1 to 16; reduced if --max-rate would leave less than 512KiB per second
    /// for each.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(crate) parallel: u8,
    /// Progress options.
    #[command(flatten)]
    pub(crate) progress: ProgressArgs,
}

/// Options of commands that only read a backup.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct LookAtBackupArgs {
    /// Place of the backup: a directory, s3://bucket/prefix or gs://bucket/prefix.
    #[arg(value_name = "PLACE")]
    pub(crate) from: String,
    /// Progress options.
    #[command(flatten)]
    pub(crate) progress: ProgressArgs,
}

/// Options of `archon backup restore`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct RestoreBackupArgs {
    /// Place of the backup: a directory, s3://bucket/prefix or gs://bucket/prefix.
    #[arg(value_name = "PLACE")]
    pub(crate) from: String,
    /// Restore only this table.
    #[arg(long, value_name = "T", value_parser = name)]
    pub(crate) table: Option<String>,
    /// New name of the restored table.
    #[arg(long = "as", value_name = "U", value_parser = name, requires = "table")]
    pub(crate) rename: Option<String>,
    /// Number of hash partitions; default: as in the backup. Not for range tables.
    #[arg(long, value_name = "N", within = 1..=HASH_PARTITIONS_MAX)]
    pub(crate) partitions: Option<u32>,
    /// Number of replicas of each partition; default: as in the backup.
    #[arg(long, value_name = "R", within = 1..=REPLICAS_MAX)]
    pub(crate) replication: Option<u8>,
    /// Continue tables left unfinished by an earlier restore of this backup, and create missing ones. Existing rows
    /// stay as they are.
    #[arg(long)]
    pub(crate) resume: bool,
    /// Limit of the read rate per second, at least 1MiB.
    #[arg(long, value_name = "SIZE", value_parser = pace)]
    pub(crate) max_rate: Option<u64>,
    /// Progress options.
    #[command(flatten)]
    pub(crate) progress: ProgressArgs,
}

/// Progress options.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct ProgressArgs {
    /// Print progress and remaining time to standard error; automatic on a terminal.
    #[arg(long)]
    pub(crate) progress: bool,
}
