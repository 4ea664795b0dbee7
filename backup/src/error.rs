//! Errors of backups.

use crate::trouble::StoreTrouble;
use archon_client::Error;

/// Reason why an operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The place has no finished backup.
    #[error("{place} holds no finished backup: {why}")]
    NoBackup {
        /// The place.
        place: String,
        /// Its content instead.
        why: String,
    },
    /// A file of the backup is damaged.
    #[error("{file} is damaged{}: {what}", .block.map_or_else(String::new, |block| format!(" in block {block}")))]
    Damaged {
        /// The file, relative to the backup.
        file: String,
        /// The block, from 0, if known.
        block: Option<u64>,
        /// The mismatch.
        what: String,
    },
    /// Files of the backup are damaged: all damaged ones among the checked files.
    #[error("{}", damages_text(.damages, *.files_total))]
    DamagedFiles {
        /// The damaged files.
        damages: Vec<Damage>,
        /// Number of checked files.
        files_total: u32,
    },
    /// A newer version wrote the file.
    #[error(
        "{file} has format {found}, and this version reads up to {known}; use the version that wrote it, or a newer one"
    )]
    Newer {
        /// The file, relative to the backup.
        file: String,
        /// Its format.
        found: u32,
        /// The newest format known to this version.
        known: u32,
    },
    /// The destination is occupied.
    #[error("{place} cannot take this backup: {why}")]
    Occupied {
        /// The destination.
        place: String,
        /// Its content.
        why: String,
    },
    /// Nothing of the earlier backup can be reused.
    #[error("the earlier backup at {place} cannot be reused: {why}")]
    Earlier {
        /// Its place.
        place: String,
        /// The reason.
        why: String,
    },
    /// The table exists already.
    #[error("table {table} exists already: a backup is restored into a new table only; nothing was changed")]
    TableExists {
        /// Name of the table.
        table: String,
    },
    /// The table is incomplete: a restore was interrupted or is in progress.
    #[error("table {table} is incomplete: a restore into it has written {done} of {total} files")]
    Unfinished {
        /// Name of the table.
        table: String,
        /// Number of written files.
        done: u32,
        /// Number of all files.
        total: u32,
    },
    /// The table is incomplete, and the restore to resume is of another backup.
    #[error(
        "table {table} is incomplete, and {place} is not its backup: the unfinished restore is of table {from_table} \
         of another backup, with {done} of {total} files written"
    )]
    OfAnotherBackup {
        /// Name of the table.
        table: String,
        /// The named backup.
        place: String,
        /// Name of the table in its actual backup.
        from_table: String,
        /// Number of written files.
        done: u32,
        /// Number of all files.
        total: u32,
    },
    /// The table needs more copies than there are nodes.
    #[error("table {table} has {copies} replicas of each partition, and {nodes} nodes are alive; nothing was changed")]
    TooFewNodes {
        /// Name of the table.
        table: String,
        /// Number of replicas.
        copies: u32,
        /// Number of live nodes.
        nodes: u32,
    },
    /// The table does not exist.
    #[error("{place} has no table {table}; it has {has}")]
    NoTable {
        /// The cluster or backup.
        place: String,
        /// The name.
        table: String,
        /// The existing tables.
        has: String,
    },
    /// The options are contradictory.
    #[error("{0}")]
    Usage(String),
    /// A partition could not be read completely.
    #[error("reading partition {partition} of table {table} failed {attempts} times; the last error: {last}")]
    GaveUp {
        /// The table.
        table: String,
        /// The partition, or its first key.
        partition: String,
        /// Number of attempts.
        attempts: u32,
        /// Error of the last attempt.
        last: Box<Error>,
    },
    /// A table was restored partially.
    #[error("table {table} was restored in part only ({entries} entries): {source}")]
    Partial {
        /// The table.
        table: String,
        /// Number of restored entries.
        entries: u64,
        /// The error that ended the restore.
        source: Box<Self>,
    },
    /// The cluster refused a call or did not answer.
    #[error(transparent)]
    Cluster(#[from] Error),
    /// A file could not be read or written.
    #[error("{place}: {what}: {source}")]
    Io {
        /// The file or directory.
        place: String,
        /// The operation.
        what: &'static str,
        /// The error.
        source: std::io::Error,
    },
    /// A request to an object store failed.
    #[error("{place}: {what}: {said}")]
    ObjectStore {
        /// The object or prefix.
        place: String,
        /// The operation.
        what: &'static str,
        /// The probable cause.
        trouble: StoreTrouble,
        /// The message of the store.
        said: String,
    },
}

/// A damaged file of a backup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The table.
    pub table: String,
    /// Number of the partition at the time of the backup.
    pub partition: u32,
    /// The file and the mismatch.
    pub what: String,
}

fn damages_text(damages: &[Damage], files_total: u32) -> String {
    let text = |damage: &Damage| format!("{} (table {}, partition {})", damage.what, damage.table, damage.partition);
    match damages {
        [one] => text(one),
        many => {
            let lines: String = many.iter().map(|damage| format!("\n  {}", text(damage))).collect();
            format!("{} of {files_total} files are damaged:{lines}", many.len())
        }
    }
}

impl BackupError {
    pub(crate) fn damaged(file: &str, block: Option<u64>, what: impl Into<String>) -> Self {
        Self::Damaged { file: file.to_owned(), block, what: what.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_damaged_files_are_named_with_their_tables() {
        let damage = |table: &str, partition| Damage {
            table: table.to_owned(),
            partition,
            what: BackupError::damaged("data/t1-000000.entries", Some(7), "why").to_string(),
        };
        let told = |damages| BackupError::DamagedFiles { damages, files_total: 9 }.to_string();
        let one = told(vec![damage("big", 3)]);
        assert_eq!(one, "data/t1-000000.entries is damaged in block 7: why (table big, partition 3)");
        let both = told(vec![damage("big", 3), damage("imp", 0)]);
        assert!(both.starts_with("2 of 9 files are damaged:\n") && both.contains("(table imp, partition 0)"), "{both}");
    }
}
