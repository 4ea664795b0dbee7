//! Complete verification of a backup, without a cluster.

use crate::block::{BLOCK_HEAD_BYTES, Block, FileReader, HEAD_BYTES};
use crate::error::{BackupError, Damage};
use crate::manifest::{BEGUN, DATA, MANIFEST, Manifest, Piece, TableBackup, unseal};
use crate::progress::Progress;
use crate::store::{Source, Store};
use archon_client::{Bytes, KeyRange};
use archon_types::unpack_entries;
use archon_types::{op, partition_of, slot_of};
use schemars::JsonSchema;
use serde::Serialize;

/// Contents of a backup in numbers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct BackupSummary {
    /// UUID of the cluster it was taken from.
    pub cluster_id: String,
    /// Number of tables.
    pub tables_total: u32,
    /// Number of entry files.
    pub files_total: u32,
    /// Number of bytes in these files.
    pub bytes_total: u64,
    /// Number of entries.
    pub entries_total: u64,
}

/// Reads the manifest of a backup, without checking its files of entries.
///
/// # Errors
/// [`BackupError::NoBackup`] if there is none, [`BackupError::Damaged`], [`BackupError::Newer`].
pub async fn show(store: &Store) -> Result<Manifest, BackupError> {
    let Some(bytes) = store.read(MANIFEST).await? else {
        let why = match store.read(BEGUN).await? {
            Some(_) => "it is unfinished; resume it with `archon backup create` and the same --to",
            None if store.is_empty().await? => "it is empty, or not there",
            // Without the manifest, the tables and keys of the files are unknown, so the files are useless.
            None if !store.list(DATA).await?.is_empty() => {
                let what = "it is missing, and the other files of the backup are useless without it; restore it from a \
                            copy of this backup, or use another backup";
                return Err(BackupError::damaged(MANIFEST, None, what));
            }
            None => "it has no manifest.json",
        };
        return Err(BackupError::NoBackup { place: store.place(), why: why.to_owned() });
    };
    let manifest: Manifest = unseal(MANIFEST, &bytes)?;
    manifest.check()?;
    Ok(manifest)
}

/// Reads every byte of a backup and verifies checksums, counts, and order and placement of keys.
///
/// # Errors
/// [`BackupError::DamagedFiles`] with all damaged files; otherwise as [`show`].
pub async fn verify(store: &Store, progress: &Progress) -> Result<Manifest, BackupError> {
    let manifest = show(store).await?;
    progress.expect(manifest.bytes());
    verify_tables(store, &manifest.tables.iter().collect::<Vec<_>>(), progress).await?;
    Ok(manifest)
}

/// Reads every byte of some tables of a backup. Continues after a damaged file, to report which others are intact.
pub(crate) async fn verify_tables(
    store: &Store,
    tables: &[&TableBackup],
    progress: &Progress,
) -> Result<(), BackupError> {
    let (mut damages, mut files_total) = (Vec::new(), 0);
    for table in tables {
        for piece in &table.pieces {
            files_total += 1;
            match verify_piece(store, table, piece, progress).await {
                Err(error @ BackupError::Damaged { .. }) => {
                    let (name, what) = (table.table.name.clone(), error.to_string());
                    damages.push(Damage { table: name, partition: piece.partition, what });
                }
                other => other?,
            }
            progress.piece_done();
        }
    }
    if damages.is_empty() { Ok(()) } else { Err(BackupError::DamagedFiles { damages, files_total }) }
}

async fn verify_piece(
    store: &Store,
    table: &TableBackup,
    piece: &Piece,
    progress: &Progress,
) -> Result<(), BackupError> {
    let mut entries = PieceReader::open(store, table, piece).await?;
    while let Some((bytes, found)) = entries.next().await? {
        progress.came(bytes, found.len() as u64);
    }
    Ok(())
}

impl BackupSummary {
    /// Summarizes a manifest.
    pub fn of(manifest: &Manifest) -> Self {
        Self {
            cluster_id: manifest.cluster_id.clone(),
            tables_total: u32::try_from(manifest.tables.len()).unwrap_or(u32::MAX),
            files_total: u32::try_from(manifest.pieces().count()).unwrap_or(u32::MAX),
            bytes_total: manifest.bytes(),
            entries_total: manifest.entries(),
        }
    }
}

/// Reads the entries of a piece and verifies them.
pub(crate) struct PieceReader<'a> {
    source: Source,
    reader: FileReader,
    piece: &'a Piece,
    keys: KeyRange,
    /// Number of partitions of hashed keys.
    hashed_among: Option<u32>,
    last: Option<Bytes>,
}

impl<'a> PieceReader<'a> {
    pub(crate) async fn open(store: &Store, table: &TableBackup, piece: &'a Piece) -> Result<Self, BackupError> {
        let source = store.open(&piece.file).await?;
        let mut source = source.ok_or_else(|| BackupError::damaged(&piece.file, None, "it is missing"))?;
        let mut reader = FileReader::new(&piece.file);
        reader.head(&source.take(HEAD_BYTES).await?)?;
        let hashed_among = (!table.is_range()).then_some(table.table.partitions_total);
        Ok(Self { source, reader, piece, keys: piece.keys()?, hashed_among, last: None })
    }

    /// Returns the next block's size and entries; `None` after the last one, once the whole piece was verified.
    pub(crate) async fn next(&mut self) -> Result<Option<(usize, Vec<op::Entry>)>, BackupError> {
        if self.reader.is_over() {
            return Ok(None);
        }
        let head = self.source.take(BLOCK_HEAD_BYTES).await?;
        match self.reader.block_head(&head)? {
            Some(head) => {
                let block = self.reader.block(head, self.source.take(head.length).await?)?;
                let bytes = BLOCK_HEAD_BYTES + block.entries.len();
                Ok(Some((bytes, self.entries(&block)?)))
            }
            None => {
                self.end().await?;
                Ok(None)
            }
        }
    }

    fn entries(&mut self, block: &Block) -> Result<Vec<op::Entry>, BackupError> {
        let damaged = |what: String| BackupError::damaged(&self.piece.file, Some(block.number), what);
        let entries: Result<Vec<op::Entry>, _> = unpack_entries(&block.entries).collect();
        let entries = entries.map_err(|error| damaged(error.to_string()))?;
        if entries.len() != block.count as usize {
            return Err(damaged(format!("it has {} entries instead of {}", entries.len(), block.count)));
        }
        for entry in &entries {
            if self.last.as_ref().is_some_and(|last| entry.key <= *last) {
                return Err(damaged("its keys do not rise".to_owned()));
            }
            let here = |partitions| partition_of(slot_of(&entry.key), partitions) == self.piece.partition;
            if !self.keys.contains(&entry.key) || !self.hashed_among.is_none_or(here) {
                return Err(damaged("it has a key of another partition".to_owned()));
            }
            self.last = Some(entry.key.clone());
        }
        Ok(entries)
    }

    async fn end(&mut self) -> Result<(), BackupError> {
        let damaged = |what: &str| Err(BackupError::damaged(&self.piece.file, None, what));
        if !self.source.take(1).await?.is_empty() {
            return damaged("more bytes follow behind its end");
        }
        if self.reader.sum() != self.piece.sum() {
            return damaged("it is intact, but not the file of the manifest");
        }
        Ok(())
    }
}
