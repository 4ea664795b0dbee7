//! Manifest of a backup: its tables and their files. It is JSON with a leading checksum, and is written last: a
//! directory without a manifest holds no backup. Files of the same kind record the started backup and its finished
//! pieces, for resumption.

use crate::block::{FORMAT, FORMAT_MIN, FileSum};
use crate::error::BackupError;
use archon_client::{Bytes, KeyRange, KeysBy, OpenEnum, TableContent, TableSummary};
use archon_types::limits::check_name;
use archon_types::{hex, plain};
use crc32c::crc32c;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Name of the manifest.
pub(crate) const MANIFEST: &str = "manifest.json";
/// Name of the file that describes a started backup.
pub(crate) const BEGUN: &str = "begun.json";
/// Folder of the files of entries.
pub(crate) const DATA: &str = "data/";
/// Folder of the records of finished pieces, until the manifest replaces them.
pub(crate) const JOURNAL: &str = "journal/";

/// Manifest of a backup.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Manifest {
    /// Version of the backup format.
    pub format: u32,
    /// Version of the program that created the backup.
    pub archon_version: String,
    /// UUID of the cluster it was taken from.
    pub cluster_id: String,
    /// Generation of the cluster; each recovery from a lost majority of coordinators begins a new one.
    pub generation: u64,
    /// Key that distinguishes it from other generations with the same number, as created by two recoveries; absent for
    /// the first generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation_key: Option<String>,
    /// Unix time in milliseconds of its begin: every write acknowledged before is included.
    pub begun_at_ms: u64,
    /// Unix time in milliseconds of its end.
    pub finished_at_ms: u64,
    /// Tables.
    pub tables: Vec<TableBackup>,
}

/// A table in a backup.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TableBackup {
    /// What it was in the cluster.
    #[serde(flatten)]
    pub table: TableSummary,
    /// Files with its entries, in order of partitions or of keys; empty for a lease table.
    pub pieces: Vec<Piece>,
}

/// Contents of a partition, or of a part of its keys, as of one position of its log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Piece {
    /// The partition's number within its table.
    pub partition: u32,
    /// First key in hexadecimal; empty for no lower bound.
    pub begin_hex: String,
    /// First key after the range in hexadecimal; null for no upper bound.
    pub end_hex: Option<String>,
    /// Epoch of the last log entry that is included.
    pub epoch: u64,
    /// Sequence number of that entry.
    pub seq: u64,
    /// Log time of the last included entry, Unix time in milliseconds.
    pub log_time_at_ms: u64,
    /// Path of the file within the backup.
    pub file: String,
    /// Length of the file in bytes.
    pub file_bytes: u64,
    /// Number of blocks of the file.
    pub blocks: u64,
    /// Number of entries in the file.
    pub entries: u64,
    /// CRC-32C checksum of the whole file.
    pub crc32c: u32,
}

/// A finished piece of an unfinished backup.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct FinishedPiece {
    pub(crate) table_id: u64,
    pub(crate) piece: Piece,
    /// Set if its file was taken over from an earlier backup.
    pub(crate) taken_over: bool,
}

impl Manifest {
    /// Returns the bytes of all files of entries.
    pub fn bytes(&self) -> u64 {
        self.pieces().map(|piece| piece.file_bytes).sum()
    }

    /// Returns the number of entries.
    pub fn entries(&self) -> u64 {
        self.pieces().map(|piece| piece.entries).sum()
    }

    /// Returns all pieces.
    pub fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.tables.iter().flat_map(|table| &table.pieces)
    }

    /// Returns an id that distinguishes it from other backups, regardless of their place.
    pub(crate) fn id(&self) -> Result<String, BackupError> {
        Ok(format!("{:08x}-{}", crc32c(&seal(self)?), self.finished_at_ms))
    }

    pub(crate) fn named(&self, name: &str) -> Result<&TableBackup, BackupError> {
        let found = self.tables.iter().find(|table| table.table.name == name);
        found.ok_or_else(|| BackupError::NoTable {
            place: "the backup".to_owned(),
            table: name.to_owned(),
            has: names(self.tables.iter().map(|table| &table.table)),
        })
    }

    /// Checks that the pieces of each table cover it exactly once.
    pub(crate) fn check(&self) -> Result<(), BackupError> {
        for text in [&self.archon_version, &self.cluster_id] {
            if plain(text) != text.as_str() {
                let what = format!("{:?} holds control characters", plain(text));
                return Err(BackupError::damaged(MANIFEST, None, what));
            }
        }
        self.tables.iter().try_for_each(TableBackup::check)
    }
}

pub(crate) fn names<'a>(tables: impl Iterator<Item = &'a TableSummary>) -> String {
    let names: Vec<&str> = tables.map(|table| table.name.as_str()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

impl TableBackup {
    /// Returns whether its partitions hold entries.
    pub(crate) fn holds_data(&self) -> bool {
        self.table.holds == OpenEnum::Known(TableContent::Data)
    }

    /// Returns whether it is partitioned by ranges.
    pub(crate) fn is_range(&self) -> bool {
        self.table.keys == OpenEnum::Known(KeysBy::Range)
    }

    fn check(&self) -> Result<(), BackupError> {
        let damaged = |what: String| Err(BackupError::damaged(MANIFEST, None, what));
        let name = &self.table.name;
        if let Err(error) = check_name("table", name) {
            return damaged(error.message);
        }
        let inside = |piece: &Piece| piece.file.strip_prefix(DATA).is_some_and(|file| !file.contains('/'));
        if let Some(piece) = self.pieces.iter().find(|piece| !inside(piece)) {
            return damaged(format!("{:?} is not a file of a backup", piece.file));
        }
        if matches!(self.table.holds, OpenEnum::Unknown(_)) || matches!(self.table.keys, OpenEnum::Unknown(_)) {
            return damaged(format!("table {name} has a kind unknown to this version"));
        }
        if !self.holds_data() {
            return if self.pieces.is_empty() { Ok(()) } else { damaged(format!("lease table {name} has entries")) };
        }
        if self.is_range() {
            let mut next = Some(Bytes::new());
            for piece in &self.pieces {
                let keys = piece.keys()?;
                if next.as_ref() != Some(&keys.begin) {
                    return damaged(format!("the keys of table {name} from {} on do not follow", piece.begin_hex));
                }
                next = keys.end;
            }
            return if next.is_none() { Ok(()) } else { damaged(format!("the last keys of table {name} are missing")) };
        }
        // The total is unverified input: it is only compared, never used to allocate.
        let found = self.pieces.iter().map(|piece| piece.partition);
        if !found.eq(0..self.table.partitions_total) {
            return damaged(format!("table {name} does not have each of its partitions once"));
        }
        Ok(())
    }
}

impl Piece {
    pub(crate) fn new(
        (partition, epoch, seq, log_time_at_ms): (u32, u64, u64, u64),
        keys: &KeyRange,
        file: String,
        sum: FileSum,
    ) -> Self {
        Self {
            partition,
            begin_hex: hex::encode(&keys.begin),
            end_hex: keys.end.as_deref().map(hex::encode),
            epoch,
            seq,
            log_time_at_ms,
            file,
            file_bytes: sum.bytes,
            blocks: sum.blocks,
            entries: sum.entries,
            crc32c: sum.crc32c,
        }
    }

    /// Returns its keys.
    pub(crate) fn keys(&self) -> Result<KeyRange, BackupError> {
        let bytes = |text: &str| {
            hex::decode(text).ok_or_else(|| {
                BackupError::damaged(
                    MANIFEST,
                    None,
                    format!(
                        "{text:?} is not a hexadecimal \
                                                                                    key"
                    ),
                )
            })
        };
        Ok(KeyRange { begin: bytes(&self.begin_hex)?, end: self.end_hex.as_deref().map(bytes).transpose()? })
    }

    pub(crate) const fn sum(&self) -> FileSum {
        FileSum { bytes: self.file_bytes, blocks: self.blocks, entries: self.entries, crc32c: self.crc32c }
    }
}

const SEAL_BEGIN: &str = "{\"crc32c\":\"";
const SEAL_MIDDLE: &str = "\",\"content\":";
const SEAL_END: &str = "}\n";

/// Encodes a document with a checksum, still as valid JSON.
pub(crate) fn seal<T: Serialize>(document: &T) -> Result<Bytes, BackupError> {
    let content = serde_json::to_string_pretty(document)
        .map_err(|error| BackupError::Usage(format!("the manifest cannot be written as JSON: {error}")))?;
    let sum = crc32c(content.as_bytes());
    Ok(format!("{SEAL_BEGIN}{sum:08x}{SEAL_MIDDLE}{content}{SEAL_END}").into())
}

/// Decodes a document of [`seal`].
pub(crate) fn unseal<T: DeserializeOwned>(file: &str, bytes: &[u8]) -> Result<T, BackupError> {
    /// Decoded first, because a newer version may write anything else.
    #[derive(Deserialize)]
    struct FormatField {
        format: Option<u32>,
    }
    let damaged = |what: &str| BackupError::damaged(file, None, what);
    let text = std::str::from_utf8(bytes).map_err(|_| damaged("it is not UTF-8"))?;
    let parts = text.strip_prefix(SEAL_BEGIN).and_then(|rest| rest.split_at_checked(8));
    let parts = parts.and_then(|(sum, rest)| Some((sum, rest.strip_prefix(SEAL_MIDDLE)?.strip_suffix(SEAL_END)?)));
    let (sum, content) = parts.ok_or_else(|| damaged("it is truncated"))?;
    if sum != format!("{:08x}", crc32c(content.as_bytes())) {
        return Err(damaged("its checksum does not fit"));
    }
    let read = |error: serde_json::Error| damaged(&format!("it cannot be read: {error}"));
    let FormatField { format } = serde_json::from_str(content).map_err(read)?;
    if let Some(found) = format.filter(|found| !(FORMAT_MIN..=FORMAT).contains(found)) {
        return Err(BackupError::Newer { file: file.to_owned(), found, known: FORMAT });
    }
    serde_json::from_str(content).map_err(read)
}

#[cfg(test)]
#[path = "manifest_tests.rs"]
pub(crate) mod tests;
