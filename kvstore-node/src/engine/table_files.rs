//! Removal of files that an LSM tree no longer needs.

use super::list_check::ListPointer;
use lsm_tree::file::TABLES_FOLDER;
use lsm_tree::{AbstractTree, AnyTree, SequenceNumberCounter, Table, TableId};
use std::collections::BTreeSet;
use std::fs;
use std::io;

/// Removes the files of tables that no reader uses. The library does so with the next change of the tree only.
pub(super) fn release_tables(tree: &AnyTree, seqno: &SequenceNumberCounter) -> lsm_tree::Result<()> {
    tree.get_version_history_lock().maintenance(&tree.tree_config().path, seqno.get())
}

/// Removes the tables of a failed flush or compaction, with numbers from `first` on. The library would leave them until the
/// next start, and each attempt would leave more. No other table may be written meanwhile.
///
/// Returns whether the tree is as it was before.
pub(super) fn remove_unfinished(tree: &AnyTree, first: TableId) -> bool {
    match try_remove_unfinished(tree, first) {
        Ok(unchanged) => unchanged,
        Err(error) => {
            tracing::error!(%error, "unfinished tables of the engine cannot be removed");
            false
        }
    }
}

fn try_remove_unfinished(tree: &AnyTree, first: TableId) -> io::Result<bool> {
    // Otherwise the list on the disk may name the unfinished tables.
    if !is_list_current(tree)? {
        return Ok(false);
    }
    let used: BTreeSet<TableId> = tree.current_version().iter_tables().map(Table::id).collect();
    for entry in fs::read_dir(tree.tree_config().path.join(TABLES_FOLDER))? {
        let entry = entry?;
        let id = entry.file_name().to_str().and_then(|name| name.parse::<TableId>().ok());
        if id.is_some_and(|id| id >= first && !used.contains(&id)) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(true)
}

/// Returns whether the list of tables on the disk is the one in memory: not if a change of the tables replaced it and failed
/// afterwards.
fn is_list_current(tree: &AnyTree) -> io::Result<bool> {
    let pointer = ListPointer::read(&tree.tree_config().path)?;
    Ok(pointer.is_some_and(|pointer| pointer.id == tree.current_version().id()))
}
