//! Checks of a backup's destination, and resumption of an interrupted backup.

use crate::create::CreateOptions;
use crate::error::BackupError;
use crate::manifest::{BEGUN, MANIFEST, Manifest, names};
use crate::store::Store;
use archon_client::TableSummary;
use std::collections::BTreeSet;

/// Rejects a destination with a finished backup or with other content.
pub(crate) async fn look(store: &Store) -> Result<(), BackupError> {
    let occupied = |why: &str| Err(BackupError::Occupied { place: store.place(), why: why.to_owned() });
    if store.read(MANIFEST).await?.is_some() {
        return occupied("a finished backup is there; name another place");
    }
    if store.read(BEGUN).await?.is_none() && !store.is_empty().await? {
        return occupied("something else is there; name an empty or a new place");
    }
    if let Some(around) = store.enclosing().await? {
        return occupied(&format!("it is inside the backup at {around}; name a place beside it"));
    }
    Ok(())
}

pub(crate) fn chosen(present: &[TableSummary], wanted: &[String]) -> Result<Vec<TableSummary>, BackupError> {
    if wanted.is_empty() {
        return Ok(present.to_vec());
    }
    let wanted: BTreeSet<&String> = wanted.iter().collect();
    let find = |name: &&String| {
        let found = present.iter().find(|table| table.name == **name).cloned();
        let (place, has) = ("the cluster".to_owned(), names(present.iter()));
        found.ok_or_else(|| BackupError::NoTable { place, table: (*name).clone(), has })
    };
    wanted.iter().map(find).collect()
}

/// Returns the interrupted backup if it can be resumed.
pub(crate) fn carried_on(
    begun: Manifest,
    (cluster_id, generation, key): (&str, u64, Option<&str>),
    present: &[TableSummary],
    options: &CreateOptions,
    store: &Store,
) -> Result<Manifest, BackupError> {
    let occupied = |why: String| Err(BackupError::Occupied { place: store.place(), why });
    if begun.cluster_id != cluster_id {
        return occupied(format!(
            "the place holds an unfinished backup of cluster {}, but this is cluster \
                                 {cluster_id}",
            begun.cluster_id
        ));
    }
    if begun.generation != generation {
        let was = begun.generation;
        return occupied(format!(
            "the place holds an unfinished backup of generation {was} of the cluster, but this is generation \
             {generation}; choose another place"
        ));
    }
    if begun.generation_key.as_deref() != key {
        let why = "the place holds an unfinished backup of another generation with the same number, from another \
                   recovery; choose another place";
        return occupied(why.to_owned());
    }
    let of: BTreeSet<&String> = begun.tables.iter().map(|table| &table.table.name).collect();
    if !options.tables.is_empty() && of != options.tables.iter().collect() {
        let names = names(begun.tables.iter().map(|table| &table.table));
        return occupied(format!(
            "the place holds an unfinished backup of other tables: {names}; give the same tables, or choose another \
             place"
        ));
    }
    if let Some(gone) = begun.tables.iter().find(|begun| !present.iter().any(|table| table.id == begun.table.id)) {
        let name = &gone.table.name;
        return occupied(format!(
            "the place holds an unfinished backup of table {name}, which was dropped; choose another place"
        ));
    }
    Ok(begun)
}
