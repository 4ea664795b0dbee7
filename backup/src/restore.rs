//! Restore of a backup into new tables with the client library, on a cluster of any size. Interrupted restores can be
//! resumed, see `unfinished`.

use crate::error::BackupError;
use crate::manifest::{Manifest, Piece, TableBackup};
use crate::pace::Pace;
use crate::progress::Progress;
use crate::restore_marker::{KEY, Note, RestoreMarker};
use crate::store::Store;
use crate::verify::{PieceReader, show, verify_tables};
use archon_client::{Admin, Client, ClientBuilder, Error, ErrorKind, Expiry, Op, RangeLimits, Revision, TableSummary};
use archon_types::limits::REPLICAS_MAX;
use archon_types::{RANGES_FIRST_MAX, op};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Files read in parallel.
const PIECES_AT_ONCE: usize = 4;
/// Batches in flight per file.
const BATCHES_AT_ONCE: usize = 4;
/// Maximum entries of a batch.
const BATCH_ENTRIES: usize = 256;
/// Bytes of keys and values after which a batch ends.
const BATCH_BYTES: usize = 512 * 1024;
/// Attempts per write; each has the time-out of a call.
const ATTEMPTS_MAX: u32 = 10;
const PAUSE: Duration = Duration::from_millis(200);

/// Scope and options of a restore.
#[derive(Clone, Default, Debug)]
pub struct RestoreOptions {
    /// The table; `None` for all.
    pub table: Option<String>,
    /// Its new name; `None` to keep the name.
    pub rename: Option<String>,
    /// Number of partitions of hashed keys; `None` to keep the number.
    pub partitions: Option<u32>,
    /// Copies of each partition; `None` to keep the number.
    pub replication: Option<u8>,
    /// Maximum bytes per second, all files together.
    pub bytes_per_second: Option<u64>,
    /// Resumes unfinished restores of the same backup.
    pub resume: bool,
}

/// A restored table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct RestoredTable {
    /// The table as it is now.
    #[serde(flatten)]
    pub table: TableSummary,
    /// Name of the table in the backup.
    pub from_table: String,
    /// Number of restored entries.
    pub entries_total: u64,
}

/// Restores tables into new ones. Verifies all of them first, and creates nothing if there is an obstacle.
///
/// # Errors
/// [`BackupError::TableExists`], [`BackupError::Unfinished`], [`BackupError::DamagedFiles`] and others before
/// anything was changed; [`BackupError::Partial`] if a table was created and not filled: resume it with
/// [`RestoreOptions::resume`].
pub async fn restore(
    admin: &Admin,
    client: ClientBuilder,
    store: &Store,
    options: &RestoreOptions,
    progress: &Progress,
) -> Result<Vec<RestoredTable>, BackupError> {
    if options.rename.is_some() && options.table.is_none() {
        return Err(BackupError::Usage("a new name is for one table; name it".to_owned()));
    }
    // Quick checks come before everything is read.
    let manifest = show(store).await?;
    let restoring = TableRestore { admin, client, store, options, progress, backup: manifest.id()? };
    let chosen = chosen(&manifest, options)?;
    check_partitions(&chosen, options)?;
    restoring.places(&chosen).await?;
    verify_tables(store, &chosen, &Progress::default()).await?;
    if show(store).await? != manifest {
        return Err(BackupError::damaged(crate::manifest::MANIFEST, None, "it was changed while it was read"));
    }
    let places = restoring.places(&chosen).await?;
    progress.expect(chosen.iter().flat_map(|table| &table.pieces).map(|piece| piece.file_bytes).sum());
    let (mut restored, mut unfinished) = (Vec::new(), Vec::new());
    for (table, place) in chosen.into_iter().zip(places) {
        let (one, said) = restoring.one(table, place).await?;
        restored.push(one);
        unfinished.extend(said);
    }
    // Only after all tables are complete: a resumed restore then still recognizes its tables.
    for said in unfinished {
        said.end().await?;
    }
    Ok(restored)
}

fn chosen<'a>(manifest: &'a Manifest, options: &RestoreOptions) -> Result<Vec<&'a TableBackup>, BackupError> {
    match &options.table {
        Some(name) => Ok(vec![manifest.named(name)?]),
        None => Ok(manifest.tables.iter().collect()),
    }
}

/// Rejects a number of partitions if it has no effect: a table by ranges is split at keys.
fn check_partitions(chosen: &[&TableBackup], options: &RestoreOptions) -> Result<(), BackupError> {
    let by_ranges = |table: &&TableBackup| table.holds_data() && table.is_range();
    match chosen {
        [first, ..] if options.partitions.is_some() && chosen.iter().all(by_ranges) => {
            let why = format!(
                "table {} is by ranges of keys, and is cut at the keys at which it was cut; a number of partitions is for hashed keys: \
                 leave --partitions out",
                first.table.name
            );
            Err(BackupError::Usage(why))
        }
        _ => Ok(()),
    }
}

/// Destination of a table.
enum Place {
    /// A new table.
    New,
    /// An existing table of an unfinished restore, with its note if one was written.
    Begun(Box<TableSummary>, Option<(Note, Revision)>),
}

struct TableRestore<'a> {
    admin: &'a Admin,
    client: ClientBuilder,
    store: &'a Store,
    options: &'a RestoreOptions,
    progress: &'a Progress,
    /// Id of the backup.
    backup: String,
}

impl TableRestore<'_> {
    fn name<'b>(&'b self, table: &'b TableBackup) -> &'b str {
        self.options.rename.as_deref().unwrap_or(&table.table.name)
    }

    fn note(&self, table: &TableBackup) -> Note {
        let files_total = u32::try_from(table.pieces.len()).unwrap_or(u32::MAX);
        Note::new(self.backup.clone(), &table.table.name, files_total)
    }

    /// Returns the destinations of the tables; rejects existing tables, and too few nodes.
    async fn places(&self, chosen: &[&TableBackup]) -> Result<Vec<Place>, BackupError> {
        let (present, nodes) = (self.admin.list_tables().await?, self.admin.status().await?.nodes_alive);
        let mut places = Vec::new();
        for table in chosen {
            let name = self.name(table);
            if let Some(there) = present.iter().find(|table| table.name == name) {
                places.push(self.begun(table, there).await?);
                continue;
            }
            let copies = self.options.replication.map_or(table.table.replication, u32::from);
            if table.holds_data() && copies > nodes {
                return Err(BackupError::TooFewNodes { table: name.to_owned(), copies, nodes });
            }
            places.push(Place::New);
        }
        Ok(places)
    }

    /// Returns an existing table if a restore of the same backup can be resumed in it.
    async fn begun(&self, table: &TableBackup, there: &TableSummary) -> Result<Place, BackupError> {
        let exists = || BackupError::TableExists { table: there.name.clone() };
        if there.holds != table.table.holds {
            return Err(exists());
        }
        if !table.holds_data() {
            return if self.options.resume { Ok(Place::Begun(Box::new(there.clone()), None)) } else { Err(exists()) };
        }
        let read = async {
            let client = open(self.client.clone().table(&there.name)).await?;
            Ok::<_, BackupError>((Note::of(&client).await?, client))
        };
        match read.await {
            Ok((Some((note, revision)), _)) => match self.options.resume {
                true if note.is_of(&self.note(table)) => {
                    Ok(Place::Begun(Box::new(there.clone()), Some((note, revision))))
                }
                true => Err(note.error_of_another(&there.name, self.store.place())),
                false => Err(note.error(&there.name)),
            },
            // The table was created, but nothing was written yet.
            Ok((None, client)) if self.options.resume && client.scan("").limit(1).page().await?.entries.is_empty() => {
                Ok(Place::Begun(Box::new(there.clone()), None))
            }
            Err(error) if self.options.resume => Err(error),
            Ok(_) | Err(_) => Err(exists()),
        }
    }

    /// Restores a table; returns it with the marker row of the unfinished restore.
    async fn one(
        &self,
        table: &TableBackup,
        place: Place,
    ) -> Result<(RestoredTable, Option<RestoreMarker>), BackupError> {
        let name = self.name(table);
        let (made, noted, is_new) = match place {
            Place::New => (make(self.admin, name, table, self.options).await?, None, true),
            Place::Begun(there, noted) => (*there, noted, false),
        };
        let entries = AtomicU64::new(0);
        let mut unfinished = None;
        if table.holds_data() {
            let pace = Pace::new(self.options.bytes_per_second);
            let filled = async {
                let client = open(self.client.clone().table(name)).await?;
                let (done, before) = noted.map_or_else(Default::default, |(note, at)| (note.files_done(), at));
                let unfinished =
                    unfinished.insert(RestoreMarker::begin(&client, self.note(table), done, before).await?);
                let Self { store, progress, .. } = *self;
                let filling = TableFill { store, table, pace: &pace, progress, entries: &entries, is_new, unfinished };
                filling.fill(&client).await
            };
            filled.await.map_err(|source| BackupError::Partial {
                table: name.to_owned(),
                entries: entries.load(Ordering::Relaxed),
                source: Box::new(source),
            })?;
        }
        let entries_total = entries.load(Ordering::Relaxed);
        Ok((RestoredTable { table: made, from_table: table.table.name.clone(), entries_total }, unfinished))
    }
}

/// Opens a table that was just created: not every coordinator may know it yet.
async fn open(client: ClientBuilder) -> Result<Client, Error> {
    let mut attempts = 0;
    loop {
        match client.clone().build().await {
            Err(error) if error.kind() == ErrorKind::NotFound && attempts < ATTEMPTS_MAX => attempts += 1,
            opened => return opened,
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Creates the table with its previous properties.
async fn make(
    admin: &Admin,
    name: &str,
    table: &TableBackup,
    options: &RestoreOptions,
) -> Result<TableSummary, BackupError> {
    let was = &table.table;
    let partitions = options.partitions.unwrap_or(was.partitions_total);
    let replication = options.replication.or_else(|| u8::try_from(was.replication).ok()).unwrap_or(REPLICAS_MAX);
    let made = if !table.holds_data() {
        admin.create_lease_table(name, partitions).await
    } else if table.is_range() {
        let limits = RangeLimits {
            split_above_bytes: was.split_above_bytes,
            split_above_rate: was.split_above_rate,
            merge_below_bytes: was.merge_below_bytes,
        };
        let begins: Result<Vec<_>, BackupError> =
            table.pieces.iter().skip(1).map(|piece| Ok(piece.keys()?.begin)).collect();
        admin.create_range_table(name, thinned(begins?, RANGES_FIRST_MAX - 1), limits, replication).await
    } else {
        admin.create_table(name, partitions, replication).await
    };
    made.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => BackupError::TableExists { table: name.to_owned() },
        _ => error.into(),
    })
}

/// Returns at most `most` elements, evenly spaced.
fn thinned<T>(all: Vec<T>, most: usize) -> Vec<T> {
    let every = all.len().div_ceil(most).max(1);
    all.into_iter().enumerate().filter(|(number, _)| (number + 1) % every == 0).map(|(_, one)| one).collect()
}

struct TableFill<'a> {
    store: &'a Store,
    table: &'a TableBackup,
    pace: &'a Pace,
    progress: &'a Progress,
    entries: &'a AtomicU64,
    /// Set if the table was empty before.
    is_new: bool,
    unfinished: &'a RestoreMarker,
}

impl TableFill<'_> {
    async fn fill(&self, client: &Client) -> Result<(), BackupError> {
        let pieces = (0..).zip(&self.table.pieces).map(|(number, piece)| self.piece(client, number, piece));
        stream::iter(pieces).buffer_unordered(PIECES_AT_ONCE).try_collect::<Vec<()>>().await?;
        self.unfinished.note(true).await
    }

    async fn piece(&self, client: &Client, number: u32, piece: &Piece) -> Result<(), BackupError> {
        if self.unfinished.is_done(number) {
            self.entries.fetch_add(piece.entries, Ordering::Relaxed);
            self.progress.came(usize::try_from(piece.file_bytes).unwrap_or(usize::MAX), piece.entries);
            self.progress.piece_done();
            return Ok(());
        }
        let entries = PieceReader::open(self.store, self.table, piece).await?;
        let blocks = stream::try_unfold(entries, async |mut entries| {
            let Some((bytes, found)) = entries.next().await? else { return Ok::<_, BackupError>(None) };
            self.pace.pass(bytes).await;
            let of_table = found.into_iter().filter(|entry| entry.key != KEY).collect();
            Ok(Some((batches(of_table), entries)))
        });
        let batches = blocks.map_ok(|batches| stream::iter(batches.into_iter().map(Ok))).try_flatten();
        let written = batches.map_ok(|batch| self.write(client, batch)).try_buffer_unordered(BATCHES_AT_ONCE);
        written.try_collect::<Vec<()>>().await?;
        self.progress.piece_done();
        self.unfinished.file_done(number).await
    }

    /// Writes entries with several attempts: repeated writes are idempotent, and a new table has no other writers. A
    /// resumed restore keeps existing entries, which were restored earlier or are newer.
    async fn write(&self, client: &Client, mut left: Vec<op::Entry>) -> Result<(), BackupError> {
        for attempt in 1.. {
            let expected = (!self.is_new).then_some(Revision::ZERO);
            // Values that have expired by now are absent after it.
            let put = |entry: &op::Entry| {
                Op::write(entry.key.clone(), entry.value.clone(), expected, entry.expires.map(Expiry::At))
            };
            let outcomes = client.batch(left.iter().map(put).collect()).await?;
            let (mut again, mut last) = (Vec::new(), None);
            for (entry, outcome) in left.into_iter().zip(outcomes) {
                match outcome {
                    Ok(_) => {
                        self.entries.fetch_add(1, Ordering::Relaxed);
                        self.progress.came(entry.key.len() + entry.value.len(), 1);
                    }
                    Err(error) if may_pass(&error) && attempt < ATTEMPTS_MAX => {
                        again.push(entry);
                        last = Some(error);
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            let Some(error) = last else { break };
            tracing::info!(entries = again.len(), %error, attempt, "entries are written again");
            left = again;
            tokio::time::sleep(PAUSE * attempt).await;
        }
        Ok(())
    }
}

fn may_pass(error: &Error) -> bool {
    error.is_retryable() || error.outcome_unknown() || error.kind() == ErrorKind::DeadlineExceeded
}

/// Splits entries into batches that fit into a message.
fn batches(entries: Vec<op::Entry>) -> Vec<Vec<op::Entry>> {
    let (mut batches, mut bytes) = (vec![Vec::new()], 0);
    for entry in entries {
        let size = entry.key.len() + entry.value.len();
        if let Some(last) = batches.last_mut()
            && (last.is_empty() || (last.len() < BATCH_ENTRIES && bytes + size <= BATCH_BYTES))
        {
            last.push(entry);
            bytes += size;
        } else {
            batches.push(vec![entry]);
            bytes = size;
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_client::{Bytes, Revision};

    #[test]
    fn batches_fit_into_a_message() {
        let entry = |bytes: usize| op::Entry {
            key: Bytes::from_static(b"k"),
            value: vec![0; bytes].into(),
            revision: Revision::new(1),
            expires: None,
        };
        let sizes = |entries: Vec<op::Entry>| batches(entries).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes(vec![entry(1); 600]), [256, 256, 88]);
        assert_eq!(sizes(vec![entry(1 << 20), entry(1), entry(1 << 20)]), [1, 1, 1]);
        assert_eq!(sizes(vec![entry(200_000); 5]), [2, 2, 1]);
    }

    #[test]
    fn split_keys_are_thinned_to_the_limit() {
        assert_eq!(thinned((0..5).collect(), 9), [0, 1, 2, 3, 4]);
        assert_eq!(thinned((0..10).collect(), 5), [1, 3, 5, 7, 9]);
        assert!(thinned((0..5_000).collect(), 1_023).len() <= 1_023);
    }
}
