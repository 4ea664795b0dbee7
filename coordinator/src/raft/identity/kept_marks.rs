//! Log watermarks of the voters, stored in the data directory and sent with every message: see
//! `archon_coordinator_core::Marks`.
//!
//! They are hints on which no promise of this voter rests: without the file, as written by an older version, no voter
//! is refused.

use crate::raft::machine::raft::Raft;
use archon_coordinator_core::{Mark, Marks, VoterRefusal};
use archon_proto::v1;
use archon_types::{BootId, StorageId};
use bytes::Bytes;
use openraft::async_runtime::WatchReceiver as _;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const FILE: &str = "voters.json";
/// Maximum size; a file of the maximum number of voters is far smaller.
const BYTES_MAX: u64 = 64 * 1024;
/// Interval in which the followers' logs are observed and changes stored.
const INTERVAL: Duration = Duration::from_millis(500);

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct MarksFile {
    /// Number of process starts on this directory.
    starts: u64,
    /// Marks of the other voters.
    voters: BTreeMap<u64, StoredMark>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct StoredMark {
    storage: Uuid,
    starts: u64,
    boot: Uuid,
    #[serde(default)]
    began_at: Option<u64>,
    holds: u64,
}

/// Watermarks known to this coordinator. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct KeptMarks(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    id: u64,
    storage: StorageId,
    /// Number of process starts on this directory; zero: not counted.
    starts: u64,
    /// The count in the file.
    kept_starts: u64,
    boot: BootId,
    /// Path of the file.
    path: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    marks: Marks,
    /// End of the log when this process began; `None` before that is known.
    began_at: Option<u64>,
    /// True once another voter has reported on this voter: from then on its log grows.
    is_heard: bool,
    /// True if another voter counts this start.
    is_counted: bool,
    /// Marks for messages, cached until they change: there are many messages.
    said: Option<Vec<v1::VoterMark>>,
    /// True if something is not stored yet.
    changed: bool,
    /// Reason for which this coordinator must end.
    outdated: Option<String>,
}

impl State {
    /// Notes that the known marks have changed, if `news`.
    fn note(&mut self, news: bool) {
        if news {
            (self.changed, self.said) = (true, None);
        }
    }

    /// Marks this coordinator to end: from then on it refuses all messages, including those that arrive before the end.
    fn end(&mut self, why: String) -> Result<(), String> {
        self.changed = true;
        Err(self.outdated.get_or_insert(why).clone())
    }
}

impl KeptMarks {
    /// Counts this start, durably, and reads the stored marks. If the file cannot be read or written, the start is not
    /// counted: a coordinator also starts on a full disk. Blocks.
    pub(crate) fn begin(directory: &Path, id: u64, storage: Uuid, boot: Uuid) -> Self {
        let path = directory.join(FILE);
        let counted = read(&path).map(|stored| {
            let next = MarksFile { starts: stored.starts.saturating_add(1), ..stored.clone() };
            match write(&path, &next) {
                Ok(()) => (next.starts, next),
                Err(error) => {
                    not_counted(&path, &error);
                    (0, stored)
                }
            }
        });
        // An unreadable file stays as it is: another count than the others know would be taken for that of an older
        // copy.
        let (starts, stored, path) = match counted {
            Ok((starts, stored)) => (starts, stored, Some(path)),
            Err(error) => {
                not_counted(&path, &error);
                (0, MarksFile::default(), None)
            }
        };
        let marks = stored.voters.iter().map(|(id, kept)| {
            let StoredMark { storage, starts, boot, began_at, holds } = *kept;
            (*id, Mark { storage: StorageId::new(storage), starts, boot: BootId::new(boot), began_at, holds })
        });
        let state = Mutex::new(State { marks: Marks::new(marks), ..State::default() });
        let (storage, boot, kept_starts) = (StorageId::new(storage), BootId::new(boot), stored.starts);
        Self(Arc::new(Inner { id, storage, starts, kept_starts, boot, path, state }))
    }

    /// Creates marks without content that are neither stored nor counted.
    #[cfg(test)]
    pub(crate) fn none(id: u64, storage: Uuid) -> Self {
        let (storage, boot) = (StorageId::new(storage), BootId::new(Uuid::nil()));
        Self(Arc::new(Inner { id, storage, starts: 0, kept_starts: 0, boot, path: None, state: Mutex::default() }))
    }

    /// Returns the marks for a message: this coordinator's first.
    pub(in crate::raft) fn said(&self) -> Vec<v1::VoterMark> {
        let Inner { id, storage, starts, boot, .. } = *self.0;
        let mut state = self.0.state.lock();
        let State { marks, began_at, said, .. } = &mut *state;
        let said = said.get_or_insert_with(|| {
            // Only a leader itself knows the end of its log.
            let holds = marks.of(id, storage).map_or(0, |own| own.holds);
            let own = Mark { storage, starts, boot, began_at: *began_at, holds };
            let others = marks.iter().filter(|(other, _)| *other != id);
            std::iter::once((id, own)).chain(others).map(to_wire).collect()
        });
        said.clone()
    }

    /// Takes the marks of a message, after a check of its sender by number and directory.
    ///
    /// # Errors
    /// The sender's directory is an older copy, or this one's is.
    pub(in crate::raft) fn take(&self, sender: u64, storage: &[u8], said: &[v1::VoterMark]) -> Result<(), String> {
        let Ok(storage) = Uuid::from_slice(storage) else { return Ok(()) };
        let mut state = self.0.state.lock();
        if let Some(why) = &state.outdated {
            return Err(why.clone());
        }
        for (id, mark) in said.iter().filter_map(from_wire) {
            if id == self.0.id {
                self.judge_self(&mut state, mark)?;
            } else if id == sender {
                let heard = state.marks.hear(sender, Mark { storage: StorageId::new(storage), ..mark });
                let news = heard.map_err(|outdated| older_copy(sender, &outdated))?;
                state.note(news);
            } else {
                let news = state.marks.learn(id, mark);
                state.note(news);
            }
        }
        Ok(())
    }

    /// Judges another voter's mark of this coordinator.
    fn judge_self(&self, state: &mut State, said: Mark) -> Result<(), String> {
        let Inner { id, storage, starts, boot, .. } = *self.0;
        if said.storage != storage {
            return Ok(());
        }
        let names_this_start = (said.starts, said.boot) == (starts, boot);
        state.is_counted |= starts > 0 && names_this_start;
        // The first report is from before this start: nothing was acknowledged since, and no message is accepted before
        // the end of the log is known. Exceptions: this coordinator has led alone, and they have the mark from here; or
        // they name this very start, since a newcomer may have copied entries by then. Others reject a start with an
        // incomplete log (`Marks`), so they do not name it.
        let led_to = state.marks.of(id, storage).map_or(0, |own| own.holds);
        let is_first = state.began_at.is_some() && !std::mem::replace(&mut state.is_heard, true);
        let first = is_first && led_to < said.holds && !names_this_start;
        // So is the report of a voter that has not heard of this start.
        let before = first || said.starts < starts;
        let lacks = state.began_at.filter(|last| before && *last < said.holds);
        let outdated = match lacks {
            _ if said.overtakes(starts, boot) => VoterRefusal::Start { said: starts, known: said.starts },
            Some(last) => VoterRefusal::Log { last, held: said.holds },
            None => return Ok(()),
        };
        state.end(older_copy(id, &outdated))
    }

    /// Notes the end of the log as this process begins.
    pub(in crate::raft) fn log_ends_at(&self, last: u64) {
        let mut state = self.0.state.lock();
        (state.began_at, state.said) = (Some(last), None);
    }

    /// Checks that a log that ends at `last` holds everything its voter had.
    ///
    /// # Errors
    /// Its directory is an older copy.
    pub(in crate::raft) fn check_log(&self, id: u64, storage: &[u8], last: u64) -> Result<(), String> {
        let Ok(storage) = Uuid::from_slice(storage) else { return Ok(()) };
        let state = self.0.state.lock();
        state.marks.check_log(id, StorageId::new(storage), last).map_err(|outdated| older_copy(id, &outdated))
    }

    /// Returns the reason for which this coordinator must end, if others know more of its directory than is in it.
    pub(crate) fn outdated(&self) -> Option<String> {
        self.0.state.lock().outdated.clone()
    }

    /// Observes the ends of the followers' logs while this coordinator leads, and stores changes, until `stop`.
    pub(in crate::raft) async fn run(self, raft: Raft, stop: CancellationToken) {
        loop {
            let over = tokio::select! {
                () = stop.cancelled() => true,
                () = tokio::time::sleep(INTERVAL) => false,
            };
            self.look(&raft);
            let this = self.clone();
            let kept = tokio::task::spawn_blocking(move || this.keep()).await;
            if let Err(error) = kept.map_err(io::Error::other).flatten() {
                tracing::warn!(%error, "what is known of the other voters was not kept");
            }
            if over {
                return;
            }
        }
    }

    /// Notes marks. A follower's log holds what it acknowledged as far as that is committed: uncommitted entries may be
    /// cut off again. The same applies to the leader's own log as far as it is on its disk.
    fn look(&self, raft: &Raft) {
        let metrics = raft.metrics();
        let metrics = metrics.borrow_watched();
        let Some(committed) = metrics.last_applied.map(|last| last.index) else { return };
        let mut state = self.0.state.lock();
        let Some(followers) = &metrics.replication else { return };
        for (id, matched) in followers {
            let Some(voter) = metrics.membership_config.membership().get_node(id) else { continue };
            let Some(matched) = matched.map(|matched| matched.index) else { continue };
            let storage = StorageId::new(voter.storage);
            let known = state.marks.of(*id, storage).copied();
            let unknown = Mark { storage, starts: 0, boot: BootId::new(Uuid::nil()), began_at: None, holds: 0 };
            let known = known.unwrap_or(unknown);
            let news = state.marks.learn(*id, Mark { holds: matched.min(committed), ..known });
            state.note(news);
        }
    }

    fn keep(&self) -> io::Result<()> {
        let Some(path) = &self.0.path else { return Ok(()) };
        let stored = {
            let mut state = self.0.state.lock();
            if !std::mem::take(&mut state.changed) {
                return Ok(());
            }
            let kept = |(id, Mark { storage, starts, boot, began_at, holds }): (u64, Mark)| {
                (id, StoredMark { storage: storage.get(), starts, boot: boot.get(), began_at, holds })
            };
            // A start that no voter accepted does not count: repeated starts do not make an older copy the later one.
            let refused = self.0.starts > 0 && state.outdated.is_some() && !state.is_counted;
            let starts = self.0.kept_starts.saturating_sub(refused.into());
            MarksFile { starts, voters: state.marks.iter().map(kept).collect() }
        };
        write(path, &stored).inspect_err(|_| self.0.state.lock().changed = true)
    }
}

fn not_counted(path: &Path, error: &io::Error) {
    let path = path.display();
    tracing::warn!(%error, %path, "this start could not be recorded: an older copy of the directory would not be \
                                   detected");
}

fn older_copy(id: u64, outdated: &VoterRefusal) -> String {
    format!("the data directory of coordinator {id} is an older copy: {outdated}")
}

fn to_wire((id, mark): (u64, Mark)) -> v1::VoterMark {
    let bytes = |id: Uuid| Bytes::copy_from_slice(id.as_bytes());
    v1::VoterMark {
        id,
        storage: bytes(mark.storage.get()),
        starts: mark.starts,
        boot: bytes(mark.boot.get()),
        holds: mark.holds,
        began_at: mark.began_at,
    }
}

/// Returns `None` for one that cannot be read.
fn from_wire(wire: &v1::VoterMark) -> Option<(u64, Mark)> {
    let storage = StorageId::new(Uuid::from_slice(&wire.storage).ok()?);
    let boot = BootId::new(Uuid::from_slice(&wire.boot).ok()?);
    let v1::VoterMark { id, starts, began_at, holds, .. } = *wire;
    Some((id, Mark { storage, starts, boot, began_at, holds }))
}

fn read(path: &Path) -> io::Result<MarksFile> {
    match std::fs::metadata(path) {
        Ok(found) if found.len() > BYTES_MAX => return Err(io::Error::other("it is too large")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(MarksFile::default()),
        Ok(_) => {}
        Err(error) => return Err(error),
    }
    serde_json::from_slice(&std::fs::read(path)?).map_err(io::Error::other)
}

fn write(path: &Path, stored: &MarksFile) -> io::Result<()> {
    archon_durable::replace(path, &serde_json::to_vec_pretty(stored).map_err(io::Error::other)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(directory: &Path) -> KeptMarks {
        KeptMarks::begin(directory, 1, Uuid::from_u128(7), Uuid::new_v4())
    }

    #[test]
    fn incomplete_log_is_detected_after_early_messages() {
        let directory = tempfile::tempdir().unwrap();
        let marks = begin(directory.path());
        let own = marks.said().remove(0);
        // The sender knows of no counted start.
        let holds = |holds| v1::VoterMark { holds, starts: 0, boot: Bytes::copy_from_slice(&[0; 16]), ..own.clone() };
        assert_eq!(marks.take(2, &[1; 16], &[holds(9)]), Ok(()), "nobody knows yet where the log ends");
        marks.log_ends_at(7);
        assert!(marks.take(2, &[1; 16], &[holds(9)]).is_err() && marks.outdated().is_some());
    }

    #[test]
    fn newcomer_with_copied_entries_is_no_older_copy() {
        let directory = tempfile::tempdir().unwrap();
        let marks = begin(directory.path());
        marks.log_ends_at(0);
        // The leader's first append brought all entries, and the leader processed the answer before it sent a mark of
        // this start.
        assert_eq!(told(&marks, 1, 12), Ok(()));
        assert_eq!(marks.outdated(), None);
    }

    /// Applies the mark of another voter that knows of this start, or of one before it.
    fn told(marks: &KeptMarks, starts: u64, holds: u64) -> Result<(), String> {
        let own = marks.said().remove(0);
        marks.take(2, &[1; 16], &[v1::VoterMark { starts, holds, ..own }])
    }

    #[test]
    fn refused_copy_refuses_all_messages() {
        let directory = tempfile::tempdir().unwrap();
        drop(begin(directory.path()));
        let marks = begin(directory.path());
        marks.log_ends_at(7);
        assert_eq!(told(&marks, 1, 7), Ok(()), "of one that knows little");
        assert!(told(&marks, 1, 9).is_err(), "of before this start");
        assert!(told(&marks, 1, 7).is_err() && told(&marks, 2, 7).is_err(), "whoever speaks next");
    }

    #[test]
    fn commits_after_a_start_do_not_refuse_it() {
        let directory = tempfile::tempdir().unwrap();
        drop(begin(directory.path()));
        let marks = begin(directory.path());
        marks.log_ends_at(7);
        assert_eq!(marks.said()[0].began_at, Some(7));
        assert_eq!((told(&marks, 2, 7), told(&marks, 2, 9)), (Ok(()), Ok(())));
    }

    #[test]
    fn lone_leader_accepts_its_own_mark_from_others() {
        let directory = tempfile::tempdir().unwrap();
        let marks = begin(directory.path());
        marks.log_ends_at(7);
        let own = Mark { storage: marks.0.storage, starts: 1, boot: marks.0.boot, began_at: Some(7), holds: 30 };
        assert!(marks.0.state.lock().marks.learn(1, own), "it leads");
        assert_eq!(told(&marks, 1, 30), Ok(()), "they have it from here");
        assert_eq!(marks.outdated(), None);
    }

    #[test]
    fn repeated_starts_do_not_promote_an_older_copy() {
        let directory = tempfile::tempdir().unwrap();
        for _ in 0..3 {
            let copy = begin(directory.path());
            copy.log_ends_at(7);
            assert_eq!(copy.0.starts, 1);
            assert!(told(&copy, 2, 7).is_err() && copy.keep().is_ok());
        }
        // A start that another voter counts remains one, regardless of later refusals.
        let accepted = begin(directory.path());
        assert!(told(&accepted, 1, 0).is_ok() && told(&accepted, 2, 0).is_err() && accepted.keep().is_ok());
        assert_eq!(begin(directory.path()).0.starts, 2);
    }

    #[test]
    fn coordinator_starts_if_start_cannot_be_counted() {
        let directory = tempfile::tempdir().unwrap();
        for starts in 1..4 {
            assert_eq!(begin(directory.path()).0.starts, starts);
        }
        // Marks of others are stored with the count.
        let marks = begin(directory.path());
        let other = v1::VoterMark {
            id: 2,
            storage: Bytes::copy_from_slice(&[1; 16]),
            starts: 5,
            boot: Bytes::copy_from_slice(&[2; 16]),
            holds: 9,
            began_at: None,
        };
        marks.take(2, &[1; 16], &[other]).unwrap();
        marks.keep().unwrap();
        assert_eq!(begin(directory.path()).said().len(), 2);
        // Damage is no other count: the file stays, and no mark is sent.
        let path = directory.path().join(FILE);
        std::fs::write(&path, "{").unwrap();
        let damaged = begin(directory.path());
        assert_eq!((damaged.0.starts, damaged.0.path.is_none()), (0, true));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{");
        // Neither is a directory that accepts no file.
        assert_eq!(begin(&directory.path().join("not there")).0.starts, 0);
    }
}
