//! Marker of a table with an unfinished restore: a row that exists from the beginning to the end of the restore, and
//! records which files of which backup are written. So clients that list the table see that it is incomplete, an
//! interrupted restore can be resumed from any machine, and of two restores of one table the later one ends the
//! earlier.

use crate::create::SkippedTable;
use crate::error::BackupError;
use archon_client::{Bytes, Client, Error, Revision};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Key of the row: it comes first in a listing, and is self-explanatory.
pub(crate) const KEY: &[u8] = b"\0archon: not whole, a restore has not ended";
/// Minimum interval of notes; files finished since the last note are checked again after an interruption.
const NOTE_EVERY: Duration = Duration::from_secs(1);
/// Attempts per note.
const ATTEMPTS_MAX: u32 = 10;
const PAUSE: Duration = Duration::from_millis(200);

/// Content of the row, as JSON.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Note {
    /// The backup: checksum of its manifest, and time of its end.
    pub(crate) backup: String,
    /// Name of the table in it.
    pub(crate) from_table: String,
    /// Number of files of the table.
    pub(crate) files_total: u32,
    /// Written files, by position in the manifest: `0-3,7`.
    files_done: String,
    /// The writer, to distinguish concurrent restores.
    by: String,
}

/// The row of a table that is being restored.
pub(crate) struct RestoreMarker {
    client: Client,
    state: tokio::sync::Mutex<State>,
    done: Mutex<BTreeSet<u32>>,
}

struct State {
    note: Note,
    revision: Revision,
    noted_at: Instant,
}

/// Rejects a table with an unfinished restore.
///
/// # Errors
/// [`BackupError::Unfinished`], and errors of reading the table.
pub async fn check_whole(client: &Client, table: &str) -> Result<(), BackupError> {
    match Note::of(client).await? {
        Some((note, _)) => Err(note.error(table)),
        None => Ok(()),
    }
}

impl Note {
    pub(crate) fn new(backup: String, from_table: &str, files_total: u32) -> Self {
        let by = format!("{}-{}", std::process::id(), crate::create::now_ms());
        Self { backup, from_table: from_table.to_owned(), files_total, files_done: String::new(), by }
    }

    /// Returns the note of a table; `None` if it has no unfinished restore.
    pub(crate) async fn of(client: &Client) -> Result<Option<(Self, Revision)>, BackupError> {
        let found = client.get(KEY).await?;
        Ok(found.and_then(|found| Some((serde_json::from_slice(&found.value).ok()?, found.revision))))
    }

    pub(crate) fn files_done(&self) -> BTreeSet<u32> {
        let number = |text: &str| text.parse::<u32>().ok().filter(|number| *number < self.files_total);
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(number(first)?..=number(last)?)
        };
        self.files_done.split(',').filter_map(range).flatten().collect()
    }

    /// Returns the entry for a table that is left out of a backup.
    pub(crate) fn left_out(&self, table: &str) -> SkippedTable {
        let files_restored = u32::try_from(self.files_done().len()).unwrap_or(u32::MAX);
        SkippedTable { table: table.to_owned(), files_restored, files_total: self.files_total }
    }

    /// Returns the error for an incomplete table.
    pub(crate) fn error(&self, table: &str) -> BackupError {
        let done = u32::try_from(self.files_done().len()).unwrap_or(u32::MAX);
        BackupError::Unfinished { table: table.to_owned(), done, total: self.files_total }
    }

    /// Returns the error for a restore that was to be resumed from another backup.
    pub(crate) fn error_of_another(&self, table: &str, place: String) -> BackupError {
        let done = u32::try_from(self.files_done().len()).unwrap_or(u32::MAX);
        let (table, from_table) = (table.to_owned(), self.from_table.clone());
        BackupError::OfAnotherBackup { table, place, from_table, done, total: self.files_total }
    }

    /// Returns whether both notes belong to the same restore, regardless of the writer.
    pub(crate) fn is_of(&self, other: &Self) -> bool {
        (&self.backup, &self.from_table, self.files_total) == (&other.backup, &other.from_table, other.files_total)
    }
}

/// Formats numbers as ranges.
fn in_ranges(numbers: &BTreeSet<u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*number) => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let text = |(first, last)| if first == last { format!("{first}") } else { format!("{first}-{last}") };
    ranges.into_iter().map(text).collect::<Vec<_>>().join(",")
}

impl RestoreMarker {
    /// Writes the row in place of revision `before`; [`Revision::ZERO`] for none.
    pub(crate) async fn begin(
        client: &Client,
        note: Note,
        done: BTreeSet<u32>,
        before: Revision,
    ) -> Result<Self, BackupError> {
        let state = State { note, revision: before, noted_at: Instant::now() };
        let begun = Self { client: client.clone(), state: tokio::sync::Mutex::new(state), done: Mutex::new(done) };
        begun.note(true).await?;
        Ok(begun)
    }

    pub(crate) fn is_done(&self, file: u32) -> bool {
        self.done.lock().contains(&file)
    }

    /// Records a written file.
    pub(crate) async fn file_done(&self, file: u32) -> Result<(), BackupError> {
        self.done.lock().insert(file);
        self.note(false).await
    }

    /// Writes the note, if that is due.
    pub(crate) async fn note(&self, at_once: bool) -> Result<(), BackupError> {
        let mut state = self.state.lock().await;
        if !at_once && state.noted_at.elapsed() < NOTE_EVERY {
            return Ok(());
        }
        state.note.files_done = in_ranges(&self.done.lock());
        let value = serde_json::to_vec(&state.note);
        let value = Bytes::from(value.map_err(|error| BackupError::Usage(format!("no note of a restore: {error}")))?);
        state.revision = self.written(state.revision, &value).await?;
        state.noted_at = Instant::now();
        Ok(())
    }

    async fn written(&self, before: Revision, value: &Bytes) -> Result<Revision, BackupError> {
        for attempt in 1.. {
            let error = match self.client.compare_and_set(KEY, before, value.clone()).await {
                Ok(revision) => return Ok(revision),
                Err(error) => error,
            };
            let condition = matches!(error, Error::ConditionFailed { .. });
            if condition || error.outcome_unknown() {
                match self.client.get(KEY).await {
                    Ok(Some(found)) if found.value == *value => return Ok(found.revision),
                    Ok(_) if condition => {
                        let why = "another restore of it has begun".to_owned();
                        return Err(BackupError::Occupied { place: "the table".to_owned(), why });
                    }
                    _ => {}
                }
            }
            if attempt >= ATTEMPTS_MAX || !(condition || error.is_retryable() || error.outcome_unknown()) {
                return Err(error.into());
            }
            tokio::time::sleep(PAUSE * attempt).await;
        }
        Ok(before)
    }

    /// Deletes the row: the table is complete.
    pub(crate) async fn end(&self) -> Result<(), BackupError> {
        for attempt in 1.. {
            match self.client.delete(KEY).await {
                Err(error) if attempt < ATTEMPTS_MAX && (error.is_retryable() || error.outcome_unknown()) => {}
                ended => return Ok(ended.map(|_| ())?),
            }
            tokio::time::sleep(PAUSE * attempt).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finished_files_round_trip_as_ranges() {
        let mut note = Note::new("crc".to_owned(), "orders", 12);
        for done in [vec![], vec![0], vec![0, 1, 2, 5, 7, 8], (0..12).collect()] {
            let done: BTreeSet<u32> = done.into_iter().collect();
            note.files_done = in_ranges(&done);
            assert_eq!(note.files_done(), done, "{}", note.files_done);
        }
        assert_eq!(note.files_done, "0-11");
        note.files_done = "3-99999999,x,1-,7".to_owned();
        assert_eq!(note.files_done(), BTreeSet::from([7]), "no file that there is not");
    }
}
