//! Writes a backup into new tables, by the client library: any cluster of any size takes it.

use crate::error::BackupError;
use crate::manifest::{Manifest, Piece, TableBackup};
use crate::pace::Pace;
use crate::progress::Progress;
use crate::store::Store;
use crate::verify::{PieceReader, verify};
use archon_client::{Admin, Client, ClientBuilder, Error, ErrorKind, Op, RangeLimits, TableSummary};
use archon_types::limits::REPLICAS_MAX;
use archon_types::{RANGES_FIRST_MAX, op};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Files that are read at once.
const PIECES_AT_ONCE: usize = 4;
/// Batches of one file that are on their way at once.
const BATCHES_AT_ONCE: usize = 4;
/// Entries of a batch.
const BATCH_ENTRIES: usize = 256;
/// Bytes of keys and values after which a batch ends.
const BATCH_BYTES: usize = 512 * 1024;
/// How often a write is tried again; each try has the time-out of a call.
const ATTEMPTS_MAX: u32 = 10;
const PAUSE: Duration = Duration::from_millis(200);

/// What is restored, and how.
#[derive(Clone, Default, Debug)]
pub struct RestoreOptions {
    /// The table; none: all.
    pub table: Option<String>,
    /// Its new name; none: the one that it had.
    pub rename: Option<String>,
    /// Among how many partitions keys are hashed; none: among as many as before.
    pub partitions: Option<u32>,
    /// How many copies each partition has; none: as many as before.
    pub replication: Option<u8>,
    /// How many bytes per second may pass, all files together.
    pub bytes_per_second: Option<u64>,
}

/// A table that was restored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct RestoredTable {
    /// The table as it is now.
    #[serde(flatten)]
    pub table: TableSummary,
    /// What it was called in the backup.
    pub from_table: String,
    /// How many entries were written.
    pub entries_total: u64,
}

/// Restores tables into new ones. All of the backup is verified first, and nothing is made if anything is in the way.
///
/// # Errors
/// [`BackupError::TableExists`], [`BackupError::Damaged`] and others before anything was changed; [`BackupError::Partial`] if a table was
/// made and not filled.
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
    // What can be said at once is said before everything is read.
    let manifest = crate::verify::show(store).await?;
    let chosen = chosen(&manifest, options)?;
    check_cluster(admin, &chosen, options).await?;
    let verified = verify(store, &Progress::default()).await?;
    if verified != manifest {
        return Err(BackupError::damaged(crate::manifest::MANIFEST, None, "it was changed while it was read"));
    }
    check_cluster(admin, &chosen, options).await?;
    progress.expect(chosen.iter().flat_map(|table| &table.pieces).map(|piece| piece.file_bytes).sum());
    let mut restored = Vec::new();
    for table in chosen {
        restored.push(one(admin, client.clone(), store, table, options, progress).await?);
    }
    Ok(restored)
}

fn chosen<'a>(manifest: &'a Manifest, options: &RestoreOptions) -> Result<Vec<&'a TableBackup>, BackupError> {
    match &options.table {
        Some(name) => Ok(vec![manifest.named(name)?]),
        None => Ok(manifest.tables.iter().collect()),
    }
}

/// Refuses what the cluster has in the way, or has too few nodes for.
async fn check_cluster(admin: &Admin, chosen: &[&TableBackup], options: &RestoreOptions) -> Result<(), BackupError> {
    let (present, nodes) = (admin.list_tables().await?, admin.status().await?.nodes_alive);
    for table in chosen {
        let name = options.rename.as_ref().unwrap_or(&table.table.name);
        let copies = options.replication.map_or(table.table.replication, u32::from);
        if table.holds_data() && copies > nodes {
            return Err(BackupError::TooFewNodes { table: name.clone(), copies, nodes });
        }
        if present.iter().any(|table| table.name == *name) {
            return Err(BackupError::TableExists { table: name.clone() });
        }
    }
    Ok(())
}

async fn one(
    admin: &Admin,
    client: ClientBuilder,
    store: &Store,
    table: &TableBackup,
    options: &RestoreOptions,
    progress: &Progress,
) -> Result<RestoredTable, BackupError> {
    let name = options.rename.as_ref().unwrap_or(&table.table.name);
    let made = make(admin, name, table, options).await?;
    let entries = AtomicU64::new(0);
    if table.holds_data() {
        let pace = Pace::new(options.bytes_per_second);
        let filling = Filling { store, table, pace: &pace, progress, entries: &entries };
        let filled = async { filling.fill(&open(client.table(name)).await?).await };
        filled.await.map_err(|source| BackupError::Partial {
            table: name.clone(),
            entries: entries.load(Ordering::Relaxed),
            source: Box::new(source),
        })?;
    }
    Ok(RestoredTable {
        table: made,
        from_table: table.table.name.clone(),
        entries_total: entries.load(Ordering::Relaxed),
    })
}

/// A client of a table that was made a moment ago, of which not every coordinator has heard yet.
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

/// Makes the table, as it was.
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

/// At most so many of them, evenly.
fn thinned<T>(all: Vec<T>, most: usize) -> Vec<T> {
    let every = all.len().div_ceil(most).max(1);
    all.into_iter().enumerate().filter(|(number, _)| (number + 1) % every == 0).map(|(_, one)| one).collect()
}

struct Filling<'a> {
    store: &'a Store,
    table: &'a TableBackup,
    pace: &'a Pace,
    progress: &'a Progress,
    entries: &'a AtomicU64,
}

impl Filling<'_> {
    async fn fill(&self, client: &Client) -> Result<(), BackupError> {
        let pieces = self.table.pieces.iter().map(|piece| self.piece(client, piece));
        stream::iter(pieces).buffer_unordered(PIECES_AT_ONCE).try_collect::<Vec<()>>().await?;
        Ok(())
    }

    async fn piece(&self, client: &Client, piece: &Piece) -> Result<(), BackupError> {
        let entries = PieceReader::open(self.store, self.table, piece).await?;
        let blocks = stream::try_unfold(entries, async |mut entries| {
            let Some((bytes, found)) = entries.next().await? else { return Ok::<_, BackupError>(None) };
            self.pace.pass(bytes).await;
            Ok(Some((batches(found), entries)))
        });
        let batches = blocks.map_ok(|batches| stream::iter(batches.into_iter().map(Ok))).try_flatten();
        let written = batches.map_ok(|batch| self.write(client, batch)).try_buffer_unordered(BATCHES_AT_ONCE);
        written.try_collect::<Vec<()>>().await?;
        self.progress.piece_done();
        Ok(())
    }

    /// Writes entries, each as often as it takes: written again it is the same, and nobody else writes to a table that is new.
    async fn write(&self, client: &Client, mut left: Vec<op::Entry>) -> Result<(), BackupError> {
        for attempt in 1.. {
            let put = |entry: &op::Entry| Op::Put { key: entry.key.clone(), value: entry.value.clone() };
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

/// Entries in parts that one message takes.
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
    fn a_batch_is_no_larger_than_a_message_takes() {
        let entry = |bytes: usize| op::Entry {
            key: Bytes::from_static(b"k"),
            value: vec![0; bytes].into(),
            revision: Revision::new(1),
        };
        let sizes = |entries: Vec<op::Entry>| batches(entries).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes(vec![entry(1); 600]), [256, 256, 88]);
        assert_eq!(sizes(vec![entry(1 << 20), entry(1), entry(1 << 20)]), [1, 1, 1]);
        assert_eq!(sizes(vec![entry(200_000); 5]), [2, 2, 1]);
    }

    #[test]
    fn a_table_begins_with_no_more_partitions_than_it_may() {
        assert_eq!(thinned((0..5).collect(), 9), [0, 1, 2, 3, 4]);
        assert_eq!(thinned((0..10).collect(), 5), [1, 3, 5, 7, 9]);
        assert!(thinned((0..5_000).collect(), 1_023).len() <= 1_023);
    }
}
