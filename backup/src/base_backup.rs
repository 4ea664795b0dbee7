//! Reuse of files of an earlier backup of the same cluster: a partition whose log ends at the same position holds the
//! same data. Reused files are read and verified, and become independent files of the new backup: the earlier one may
//! be deleted.

use crate::error::BackupError;
use crate::manifest::{Manifest, Piece, TableBackup};
use crate::store::Store;
use crate::verify::{PieceReader, show};
use archon_client::{KeyRange, Position};

/// An earlier backup.
pub(crate) struct BaseBackup<'a> {
    store: &'a Store,
    manifest: Manifest,
}

impl<'a> BaseBackup<'a> {
    /// Reads the manifest of the earlier backup. Fails if nothing of it can be reused for `manifest`.
    pub(crate) async fn open(store: &'a Store, of: &Manifest) -> Result<Self, BackupError> {
        let earlier = Self { store, manifest: show(store).await.map_err(|error| of_no_use(store, error))? };
        let manifest = &earlier.manifest;
        if manifest.cluster_id != of.cluster_id {
            let why = format!("it is of cluster {}, and this is {}", manifest.cluster_id, of.cluster_id);
            return Err(useless(store, why));
        }
        if manifest.generation != of.generation {
            let why = format!(
                "it is of generation {} of the cluster, and this is {}: what was recovered may have lost what it has",
                manifest.generation, of.generation
            );
            return Err(useless(store, why));
        }
        if manifest.generation_key != of.generation_key {
            let why = format!(
                "it is of another generation {} of the cluster, from another recovery: the two have different \
                 histories",
                of.generation
            );
            return Err(useless(store, why));
        }
        let is_of_use = |table: &TableBackup| table.holds_data() && earlier.table(table.table.id).is_some();
        if of.tables.iter().any(TableBackup::holds_data) && !of.tables.iter().any(is_of_use) {
            let names = crate::manifest::names(manifest.tables.iter().map(|table| &table.table));
            let why = format!("it has none of the tables that are backed up; it has {names}, perhaps dropped since");
            return Err(useless(store, why));
        }
        Ok(earlier)
    }

    /// By number: a table that was dropped and created again under the same name is another one.
    fn table(&self, id: u64) -> Option<&TableBackup> {
        self.manifest.tables.iter().find(|table| table.table.id == id)
    }

    /// Returns the piece with the content of a snapshot of this partition, keys and position. Positions of a
    /// partition's log are unique across all generations of the cluster.
    pub(crate) fn same(
        &self,
        table: u64,
        partition: u32,
        keys: &KeyRange,
        position: Position,
    ) -> Option<UnchangedPiece<'_>> {
        let table = self.table(table)?;
        let is_same = |piece: &&Piece| {
            (piece.partition, piece.epoch, piece.seq) == (partition, position.epoch.get(), position.seq.get())
                && piece.keys().is_ok_and(|found| found == *keys)
        };
        Some(UnchangedPiece { store: self.store, table, piece: table.pieces.iter().find(is_same)? })
    }
}

/// A piece of an earlier backup with unchanged content.
pub(crate) struct UnchangedPiece<'a> {
    store: &'a Store,
    table: &'a TableBackup,
    piece: &'a Piece,
}

impl UnchangedPiece<'_> {
    /// Verifies the file and makes it available in the new backup; returns its piece.
    pub(crate) async fn take_over(&self, into: &Store, file: String) -> Result<Piece, BackupError> {
        let read = async {
            let mut entries = PieceReader::open(self.store, self.table, self.piece).await?;
            while entries.next().await?.is_some() {}
            Ok::<_, BackupError>(())
        };
        read.await.map_err(|error| of_no_use(self.store, error))?;
        into.take_over(self.store, &self.piece.file, &file).await?;
        Ok(Piece { file, ..self.piece.clone() })
    }
}

/// An unreachable or refusing store is not a fault of the backup in it.
fn of_no_use(store: &Store, error: BackupError) -> BackupError {
    match error {
        BackupError::ObjectStore { .. } => error,
        error => useless(store, error.to_string()),
    }
}

fn useless(store: &Store, why: String) -> BackupError {
    BackupError::Earlier { place: store.place(), why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::tests::{manifest, piece, table};
    use archon_client::{Bytes, KeysBy};
    use archon_types::{Epoch, Seq};

    #[test]
    fn only_identical_partitions_are_taken_over() {
        let store = Store::at("/nowhere").unwrap();
        let pieces = vec![piece(4, "", Some("m")), piece(2, "m", None)];
        let earlier = BaseBackup { store: &store, manifest: manifest(vec![table(KeysBy::Range, 9, pieces)]) };
        let position = |epoch, seq| Position { epoch: Epoch::new(epoch), seq: Seq::new(seq) };
        let keys = |begin: &'static str| KeyRange { begin: Bytes::from_static(begin.as_bytes()), end: None };
        let same = |table, partition, keys: &KeyRange, position| {
            earlier.same(table, partition, keys, position).map(|found| found.piece.partition)
        };
        assert_eq!(same(1, 2, &keys("m"), position(3, 9)), Some(2));
        assert_eq!(same(7, 2, &keys("m"), position(3, 9)), None, "another table");
        assert_eq!(same(1, 4, &keys("m"), position(3, 9)), None, "another partition");
        assert_eq!(same(1, 2, &keys("n"), position(3, 9)), None, "fewer keys: it was split");
        assert_eq!(same(1, 2, &keys(""), position(3, 9)), None, "more keys: it was merged");
        assert_eq!(same(1, 2, &keys("m"), position(3, 10)), None, "one more write");
        assert_eq!(same(1, 2, &keys("m"), position(4, 9)), None, "another leader");
    }
}
