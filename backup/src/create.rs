//! Creation of a backup from a running cluster: one snapshot per partition, several at a time. Progress is recorded,
//! so that an interrupted backup can be resumed; a snapshot that ends early is started again. Files of unchanged
//! partitions are taken from an earlier backup (`earlier`).

use crate::base_backup::BaseBackup;
use crate::begun::{carried_on, chosen, look};
use crate::block::{FORMAT, FileWriter};
use crate::error::BackupError;
use crate::left::{left_of_hashed, left_of_ranges};
use crate::manifest::{BEGUN, DATA, FinishedPiece, JOURNAL, MANIFEST, Manifest, Piece, TableBackup, seal, unseal};
use crate::pace::Pace;
use crate::progress::Progress;
use crate::restore_marker::Note;
use crate::store::{Sink, Store};
use archon_client::{
    Admin, Client, ClientBuilder, Error, ErrorDetail, ErrorKind, KeyRange, Quorum, Snapshot, SnapshotOf, TableSummary,
};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Attempts per partition before the backup fails.
const ATTEMPTS_MAX: u32 = 10;
/// Maximum time without a page of any partition before the backup fails; every attempt contributes to it.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// First pause before another attempt; later ones are longer.
const PAUSE: Duration = Duration::from_millis(200);
/// Maximum pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Minimum rate per partition under a total limit: nodes end a snapshot that is read at an eighth of this rate.
const PARTITION_BYTES_PER_SECOND_MIN: u64 = 512 * 1024;

/// Scope and limits of a backup.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// The tables; empty for all.
    pub tables: Vec<String>,
    /// Maximum bytes per second, all partitions together.
    pub bytes_per_second: Option<u64>,
    /// Number of partitions read in parallel.
    pub partitions_at_once: usize,
    /// An earlier backup, as the source of files of unchanged partitions.
    pub since: Option<Store>,
}

/// A table skipped by a backup of all tables, because a restore into it has not finished.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct SkippedTable {
    /// Name of the table.
    pub table: String,
    /// Number of files restored so far.
    pub files_restored: u32,
    /// Number of files in total.
    pub files_total: u32,
}

/// A finished backup.
#[derive(Clone, Debug)]
pub struct FinishedBackup {
    /// Its content.
    pub manifest: Manifest,
    /// Tables that were left out although all were requested.
    pub left_out: Vec<SkippedTable>,
    /// Number of files taken over from an earlier backup.
    pub files_taken_over: u32,
    /// Bytes of these files, which no node had to send.
    pub bytes_taken_over: u64,
}

impl CreateOptions {
    /// Returns the number of partitions to read in parallel, limited so that each gets its minimum rate.
    fn at_once(&self) -> usize {
        let most = self.bytes_per_second.map_or(u64::MAX, |all| all / PARTITION_BYTES_PER_SECOND_MIN);
        self.partitions_at_once.min(usize::try_from(most).unwrap_or(usize::MAX)).max(1)
    }
}

/// Creates a backup, or resumes one in the same place; returns its content.
///
/// # Errors
/// [`BackupError`]; except after [`BackupError::Occupied`], the same call resumes the backup.
pub async fn create(
    admin: &Admin,
    client: ClientBuilder,
    store: &Store,
    options: &CreateOptions,
    progress: &Progress,
) -> Result<FinishedBackup, BackupError> {
    look(store).await?;
    let mut held = store.hold(progress).await?;
    let taken = held.keep(take(admin, client, store, options, progress)).await;
    held.release().await;
    taken
}

/// Creates the backup in a locked place.
async fn take(
    admin: &Admin,
    client: ClientBuilder,
    store: &Store,
    options: &CreateOptions,
    progress: &Progress,
) -> Result<FinishedBackup, BackupError> {
    look(store).await?;
    let begun_at_ms = now_ms();
    let cluster_id = admin.status().await?.cluster_id;
    let Quorum { generation, generation_key, .. } = admin.quorum_of_leader().await?;
    let present = admin.list_tables().await?;
    let wanted = chosen(&present, &options.tables)?;
    let begun = store.read(BEGUN).await?;
    let is_new = begun.is_none();
    let mut manifest = match begun {
        Some(begun) => carried_on(
            unseal(BEGUN, &begun)?,
            (&cluster_id, generation, generation_key.as_deref()),
            &present,
            options,
            store,
        )?,
        None => Manifest {
            format: FORMAT,
            archon_version: env!("CARGO_PKG_VERSION").to_owned(),
            cluster_id,
            generation,
            generation_key,
            begun_at_ms,
            finished_at_ms: 0,
            tables: wanted.into_iter().map(|table| TableBackup { table, pieces: Vec::new() }).collect(),
        },
    };
    let earlier = match &options.since {
        Some(since) => Some(BaseBackup::open(since, &manifest).await?),
        None => None,
    };
    store.make(&[DATA, JOURNAL]).await?;
    if is_new {
        store.write(BEGUN, seal(&manifest)?).await?;
    }
    let (files_taken_over, bytes_taken_over) = Default::default();
    let taking = BackupRun {
        store,
        earlier,
        progress,
        files_taken_over,
        bytes_taken_over,
        pace: Pace::new(options.bytes_per_second),
        next_file: AtomicU64::new(next_file(store).await?),
        process: RandomState::new().hash_one(std::process::id()),
    };
    let mut done = taking.done_before().await?;
    let mut clients: Option<Client> = None;
    let mut left_out = Vec::new();
    for table in manifest.tables.iter_mut().filter(|table| table.holds_data()) {
        let name = &table.table.name;
        let own = match &clients {
            Some(any) => any.table(name).await?,
            None => client.clone().table(name).build().await?,
        };
        if let Some((note, _)) = Note::of(&own).await? {
            // An abandoned restore of one table must not prevent the backup of the others.
            if options.tables.is_empty() {
                left_out.push(note.left_out(name));
                clients.get_or_insert(own);
                continue;
            }
            return Err(note.error(name));
        }
        let mut pieces = done.remove(&table.table.id).unwrap_or_default();
        progress.expect(stored(admin, name).await);
        let left = match table.is_range() {
            true => left_of_ranges(&own, &pieces)?,
            false => left_of_hashed(table.table.partitions_total, &pieces),
        };
        let taken = left.into_iter().map(|left| taking.all_of(&own, &table.table, left));
        let taken: Vec<Vec<Piece>> = stream::iter(taken).buffer_unordered(options.at_once()).try_collect().await?;
        pieces.extend(taken.into_iter().flatten());
        let key = |piece: &Piece| (piece.keys().map(|keys| keys.begin).unwrap_or_default(), piece.partition);
        pieces.sort_by_key(key);
        table.pieces = pieces;
        clients.get_or_insert(own);
    }
    manifest.tables.retain(|table| !left_out.iter().any(|left: &SkippedTable| left.table == table.table.name));
    manifest.finished_at_ms = now_ms();
    manifest.check()?;
    store.write(MANIFEST, seal(&manifest)?).await?;
    clean(store, &manifest).await?;
    let (files_taken_over, bytes_taken_over) = taking.taken_over();
    Ok(FinishedBackup { manifest, left_out, files_taken_over, bytes_taken_over })
}

/// Returns the number of the next file: above all existing ones.
async fn next_file(store: &Store) -> Result<u64, BackupError> {
    Ok(store.list(DATA).await?.iter().filter_map(|name| number_of(name)).max().map_or(0, |last| last + 1))
}

/// Returns the name of a piece without folder and extension. An object store may complete an upload long after its
/// process has lost the lock, when the next process uses the same numbers; so the name contains the process.
fn piece_name(table: u64, number: u64, process: u64) -> String {
    format!("t{table}-{number:06}-{process:016x}")
}

/// Returns the number in the name of a piece's file; older versions did not include the process.
fn number_of(name: &str) -> Option<u64> {
    name.strip_prefix(DATA)?.split(['-', '.']).nth(1)?.parse().ok()
}

/// Returns the approximate bytes of keys and values of a table; zero if unknown.
async fn stored(admin: &Admin, name: &str) -> u64 {
    match admin.check_table(name).await {
        Ok(found) => {
            let copies = u64::from(found.copies_deleted);
            found.bytes_deleted * u64::from(found.table.partitions_total.min(found.copies_deleted)) / copies.max(1)
        }
        Err(_) => 0,
    }
}

struct BackupRun<'a> {
    store: &'a Store,
    earlier: Option<BaseBackup<'a>>,
    files_taken_over: AtomicU64,
    bytes_taken_over: AtomicU64,
    progress: &'a Progress,
    pace: Pace,
    next_file: AtomicU64,
    /// Random per process, for the names of its files.
    process: u64,
}

impl BackupRun<'_> {
    /// Returns the finished pieces, by table.
    async fn done_before(&self) -> Result<BTreeMap<u64, Vec<Piece>>, BackupError> {
        let mut done: BTreeMap<u64, Vec<Piece>> = BTreeMap::new();
        for name in self.store.list(JOURNAL).await? {
            let Some(bytes) = self.store.read(&name).await? else { continue };
            let Ok(found) = unseal::<FinishedPiece>(&name, &bytes) else {
                tracing::warn!(name, "the record of a finished piece is damaged; reading the piece again");
                continue;
            };
            if self.store.length(&found.piece.file).await? == Some(found.piece.file_bytes) {
                self.count(&found);
                done.entry(found.table_id).or_default().push(found.piece);
            }
        }
        Ok(done)
    }

    /// Counts a piece that was not counted while it was read.
    fn count(&self, FinishedPiece { piece, taken_over, .. }: &FinishedPiece) {
        self.progress.came(usize::try_from(piece.file_bytes).unwrap_or(usize::MAX), piece.entries);
        self.progress.piece_done();
        if *taken_over {
            self.files_taken_over.fetch_add(1, Ordering::Relaxed);
            self.bytes_taken_over.fetch_add(piece.file_bytes, Ordering::Relaxed);
        }
    }

    fn taken_over(&self) -> (u32, u64) {
        let files = self.files_taken_over.load(Ordering::Relaxed);
        (u32::try_from(files).unwrap_or(u32::MAX), self.bytes_taken_over.load(Ordering::Relaxed))
    }

    /// Reads a partition, or keys that were in one partition earlier and are in several now.
    async fn all_of(&self, client: &Client, table: &TableSummary, of: SnapshotOf) -> Result<Vec<Piece>, BackupError> {
        let mut rest = of;
        let mut pieces = Vec::new();
        loop {
            let piece = self.one(client, table, &rest).await?;
            let end = piece.keys()?.end;
            pieces.push(piece);
            rest = match (rest, end) {
                (SnapshotOf::Keys(keys), Some(end)) if keys.end.as_ref() != Some(&end) => {
                    SnapshotOf::Keys(KeyRange { begin: end, end: keys.end })
                }
                _ => return Ok(pieces),
            };
        }
    }

    /// Reads a piece, with several attempts.
    async fn one(&self, client: &Client, table: &TableSummary, of: &SnapshotOf) -> Result<Piece, BackupError> {
        let mut pause = PAUSE;
        let begun = Instant::now();
        for attempt in 1.. {
            let error = match self.attempt(client, table, of).await {
                Ok(piece) => return Ok(piece),
                Err(BackupError::Cluster(error)) if may_pass(&error) => error,
                Err(error) => return Err(error),
            };
            tracing::warn!(table = table.name, ?of, %error, attempt, "the snapshot of a partition ended early; trying \
                                                                      again");
            if is_given_up(attempt, begun.elapsed().min(self.progress.silence())) {
                let partition = match of {
                    SnapshotOf::Partition(index) => index.to_string(),
                    SnapshotOf::Keys(keys) => archon_types::shown_key(&keys.begin),
                };
                let (table, last) = (table.name.clone(), Box::new(error));
                return Err(BackupError::GaveUp { table, partition, attempts: attempt, last });
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
        Err(BackupError::Usage("too many attempts to read a partition".to_owned()))
    }

    async fn attempt(&self, client: &Client, table: &TableSummary, of: &SnapshotOf) -> Result<Piece, BackupError> {
        let snapshot = begin(client, of).await?;
        let number = self.next_file.fetch_add(1, Ordering::Relaxed);
        let name = piece_name(table.id, number, self.process);
        let file = format!("{DATA}{name}.entries");
        let (partition, keys) = (snapshot.partition.index, &snapshot.keys);
        let same = self.earlier.as_ref().and_then(|earlier| earlier.same(table.id, partition, keys, snapshot.position));
        if let Some(same) = same {
            drop(snapshot);
            let piece = same.take_over(self.store, file).await?;
            let done = FinishedPiece { table_id: table.id, piece, taken_over: true };
            self.note(&name, &done).await?;
            self.count(&done);
            return Ok(done.piece);
        }
        let mut sink = self.store.create(&file).await?;
        let (mut bytes, mut entries) = (0, 0);
        match self.fill(snapshot, &mut sink, &file, (&mut bytes, &mut entries)).await {
            Ok(piece) => {
                sink.finish().await?;
                let done = FinishedPiece { table_id: table.id, piece, taken_over: false };
                self.note(&name, &done).await?;
                self.progress.piece_done();
                Ok(done.piece)
            }
            Err(error) => {
                self.progress.in_vain(bytes, entries);
                sink.abandon().await;
                Err(error)
            }
        }
    }

    /// Records that a piece is finished.
    async fn note(&self, name: &str, done: &FinishedPiece) -> Result<(), BackupError> {
        self.store.write(&format!("{JOURNAL}{name}.json"), seal(done)?).await
    }

    async fn fill(
        &self,
        mut snapshot: Snapshot,
        sink: &mut Sink,
        file: &str,
        (bytes, entries): (&mut u64, &mut u64),
    ) -> Result<Piece, BackupError> {
        let (mut writer, head) = FileWriter::begin();
        sink.write(&head).await?;
        while let Some(page) = snapshot.next().await? {
            if page.entries.is_empty() {
                continue;
            }
            if crc32c::crc32c(&page.entries) != page.crc32c {
                let why = "a page of the snapshot was damaged in transit";
                return Err(Error::from(ErrorDetail::new(ErrorKind::Unreachable, why)).into());
            }
            self.pace.pass(page.entries.len()).await;
            sink.write(&writer.block(&page.entries, page.count, page.crc32c)?).await?;
            sink.write(&page.entries).await?;
            *bytes += page.entries.len() as u64;
            *entries += u64::from(page.count);
            self.progress.came(page.entries.len(), u64::from(page.count));
        }
        let (end, sum) = writer.end();
        sink.write(&end).await?;
        let position = snapshot.position;
        let seen = (snapshot.partition.index, position.epoch.get(), position.seq.get(), snapshot.log_time_ms);
        Ok(Piece::new(seen, &snapshot.keys, file.to_owned(), sum))
    }
}

/// Returns whether to give a partition up after `attempt` attempts. `silence` is the time without a page of any partition.
fn is_given_up(attempt: u32, silence: Duration) -> bool {
    attempt >= ATTEMPTS_MAX || silence >= SILENCE_MAX
}

/// Starts a snapshot.
async fn begin(client: &Client, of: &SnapshotOf) -> Result<Snapshot, BackupError> {
    let snapshot = client.snapshot(of).await?;
    if let SnapshotOf::Keys(keys) = of
        && snapshot.keys.begin != keys.begin
    {
        let why = "the node gives other keys than those that were asked for; its version and this one's do not fit";
        return Err(Error::from(ErrorDetail::new(ErrorKind::Internal, why)).into());
    }
    Ok(snapshot)
}

/// Returns whether a new attempt may succeed after this error.
fn may_pass(error: &Error) -> bool {
    let kind = error.kind();
    kind.is_retryable()
        || matches!(kind, ErrorKind::DeadlineExceeded | ErrorKind::WrongNode | ErrorKind::StaleIncarnation)
}

/// Deletes files that are not in the manifest.
async fn clean(store: &Store, manifest: &Manifest) -> Result<(), BackupError> {
    let files: BTreeSet<&str> = manifest.pieces().map(|piece| piece.file.as_str()).collect();
    for name in store.list(DATA).await?.iter().filter(|name| !files.contains(name.as_str())) {
        store.delete(name).await?;
    }
    for name in store.list(JOURNAL).await? {
        store.delete(&name).await?;
    }
    store.delete_folder(JOURNAL).await;
    store.delete(BEGUN).await
}

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_differ_between_processes() {
        let [own, other] = [1, 2].map(|process| format!("{DATA}{}.entries", piece_name(7, 5, process)));
        assert_ne!(own, other);
        assert_eq!((number_of(&own), number_of(&other)), (Some(5), Some(5)), "the next process counts on");
        assert_eq!(number_of("data/t7-000123.entries"), Some(123), "by an earlier version");
        assert_eq!(number_of("data/notes.txt"), None);
    }

    #[test]
    fn silent_node_ends_backup_before_last_attempt() {
        assert!(!is_given_up(1, SILENCE_MAX / 2));
        assert!(is_given_up(3, SILENCE_MAX), "ten attempts of 25 s each take minutes");
        assert!(is_given_up(ATTEMPTS_MAX, Duration::ZERO));
    }

    #[test]
    fn rate_limit_reduces_parallel_partitions() {
        let at_once = |bytes_per_second, partitions_at_once| {
            CreateOptions { tables: Vec::new(), bytes_per_second, partitions_at_once, since: None }.at_once()
        };
        assert_eq!((at_once(Some(1 << 20), 16), at_once(Some(64 << 20), 16), at_once(None, 16)), (2, 16, 16));
        assert_eq!((at_once(Some(1), 16), at_once(None, 0)), (1, 1));
    }
}
