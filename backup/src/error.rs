//! What can go wrong with a backup.

use crate::trouble::StoreTrouble;
use archon_client::Error;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// There is no finished backup.
    #[error("{place} holds no finished backup: {why}")]
    NoBackup {
        /// Where it was looked for.
        place: String,
        /// What is there instead.
        why: String,
    },
    /// A backup is not what was written.
    #[error("{file} is damaged{}: {what}", .block.map_or_else(String::new, |block| format!(" in block {block}")))]
    Damaged {
        /// The file, within the backup.
        file: String,
        /// The block, counted from 0, if it is known.
        block: Option<u64>,
        /// What is wrong with it.
        what: String,
    },
    /// Files of a backup are not what was written: all that were looked at and are damaged.
    #[error("{}", damages_text(.damages, *.files_total))]
    DamagedFiles {
        /// Each of them.
        damages: Vec<Damage>,
        /// How many files were looked at.
        files_total: u32,
    },
    /// A newer version wrote it.
    #[error(
        "{file} has format {found}, and this version reads up to {known}; use the version that wrote it, or a newer one"
    )]
    Newer {
        /// The file, within the backup.
        file: String,
        /// Its format.
        found: u32,
        /// The newest one known here.
        known: u32,
    },
    /// The place is taken by something else.
    #[error("{place} cannot take this backup: {why}")]
    Occupied {
        /// Where it was to go.
        place: String,
        /// What is there.
        why: String,
    },
    /// An earlier backup is of no use for the one that is taken.
    #[error("nothing can be taken over from the earlier backup at {place}: {why}")]
    Earlier {
        /// Where it is.
        place: String,
        /// Why.
        why: String,
    },
    /// A table is in the way.
    #[error("table {table} exists already: a backup is restored into a new table only; nothing was changed")]
    TableExists {
        /// Its name.
        table: String,
    },
    /// A table is not whole: a restore of it was interrupted, or goes on.
    #[error("table {table} is not whole: a restore into it has written {done} of {total} files and has not ended")]
    Unfinished {
        /// Its name.
        table: String,
        /// How many files are written.
        done: u32,
        /// Of how many.
        total: u32,
    },
    /// A table is not whole, and not of the backup that it was to be gone on with.
    #[error(
        "table {table} is not whole, and {place} is not the backup that it is restored from: the restore that has not ended is of \
         table {from_table} of another backup, with {total} files of it, of which {done} are written"
    )]
    OfAnotherBackup {
        /// Its name.
        table: String,
        /// The backup that was named.
        place: String,
        /// What the table is called in the backup that it is restored from.
        from_table: String,
        /// How many files of that are written.
        done: u32,
        /// Of how many.
        total: u32,
    },
    /// A table wants more copies than there are nodes.
    #[error("table {table} has {copies} copies of each partition, and {nodes} nodes are alive; nothing was changed")]
    TooFewNodes {
        /// Its name.
        table: String,
        /// How many copies it would have.
        copies: u32,
        /// How many nodes are alive.
        nodes: u32,
    },
    /// A table is not there.
    #[error("{place} has no table {table}; it has {has}")]
    NoTable {
        /// The cluster or the backup.
        place: String,
        /// The name.
        table: String,
        /// Those that there are.
        has: String,
    },
    /// What was asked for does not fit together.
    #[error("{0}")]
    Usage(String),
    /// A partition could not be read to its end.
    #[error(
        "partition {partition} of table {table} was begun {attempts} times and never came to its end; the last time: {last}"
    )]
    GaveUp {
        /// The table.
        table: String,
        /// The partition, or the first of its keys.
        partition: String,
        /// How often.
        attempts: u32,
        /// What ended the last attempt.
        last: Box<Error>,
    },
    /// A table was restored in part.
    #[error("table {table} was restored in part only ({entries} entries): {source}")]
    Partial {
        /// The table.
        table: String,
        /// How many entries are there.
        entries: u64,
        /// What ended it.
        source: Box<Self>,
    },
    /// The cluster refused or did not answer.
    #[error(transparent)]
    Cluster(#[from] Error),
    /// Files could not be read or written.
    #[error("{place}: {what}: {source}")]
    Io {
        /// The file or directory.
        place: String,
        /// What was tried.
        what: &'static str,
        /// The refusal.
        source: std::io::Error,
    },
    /// An object store did not do what was asked of it.
    #[error("{place}: {what}: {said}")]
    ObjectStore {
        /// The object, or the prefix.
        place: String,
        /// What was tried.
        what: &'static str,
        /// What is wrong, as far as that is known.
        trouble: StoreTrouble,
        /// What the store said.
        said: String,
    },
}

/// A file of a backup that is not what was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The table.
    pub table: String,
    /// The partition, by the number that it had.
    pub partition: u32,
    /// Which file, and what is wrong with it.
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
    fn of_several_damaged_files_only_the_first_was_told_and_not_of_which_table() {
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
