//! How far voters had come, kept in the data directory and told with every message: see `archon_coordinator_core::Marks`.
//!
//! What is kept is a hint on which no promise of this voter rests: without the file, as of an older version, nobody is refused.

use super::types::Raft;
use archon_coordinator_core::{Mark, Marks, Outdated};
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
/// A file of that many voters is far smaller.
const BYTES_MAX: u64 = 64 * 1024;
/// How often it is looked how far the followers' logs go, and what is news is kept.
const INTERVAL: Duration = Duration::from_millis(500);

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Stored {
    /// How often a process was started on this directory.
    starts: u64,
    /// What is known of the others.
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

/// What this coordinator knows. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct KeptMarks(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    id: u64,
    storage: StorageId,
    /// How often a process was started on this directory; zero: it is not counted.
    starts: u64,
    /// The count that stands in the file.
    kept_starts: u64,
    boot: BootId,
    /// Where it is kept.
    path: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    marks: Marks,
    /// Where the log ended when this process began; `None` before that is known.
    began_at: Option<u64>,
    /// Somebody has said something about this voter since: from then on its log goes on.
    is_heard: bool,
    /// Another one counts this start.
    is_counted: bool,
    /// What messages say, as long as nothing is news: there are many of them.
    said: Option<Vec<v1::VoterMark>>,
    /// Something is not kept yet.
    changed: bool,
    /// Why this coordinator is not to go on.
    outdated: Option<String>,
}

impl State {
    /// Takes note of whether what is known has become more.
    fn note(&mut self, news: bool) {
        if news {
            (self.changed, self.said) = (true, None);
        }
    }

    /// This coordinator is not to go on, and nobody is heard any more, whatever comes before it has ended.
    fn end(&mut self, why: String) -> Result<(), String> {
        self.changed = true;
        Err(self.outdated.get_or_insert(why).clone())
    }
}

impl KeptMarks {
    /// Counts this start, durably, and reads what was kept. It is not counted where that cannot be read or written: a coordinator is
    /// there on a full disk, too. Blocks.
    pub(crate) fn begin(directory: &Path, id: u64, storage: Uuid, boot: Uuid) -> Self {
        let path = directory.join(FILE);
        let counted = read(&path).map(|stored| {
            let next = Stored { starts: stored.starts.saturating_add(1), ..stored.clone() };
            match write(&path, &next) {
                Ok(()) => (next.starts, next),
                Err(error) => {
                    not_counted(&path, &error);
                    (0, stored)
                }
            }
        });
        // What cannot be read stays as it is: another count than the others know would be taken for an older copy's.
        let (starts, stored, path) = match counted {
            Ok((starts, stored)) => (starts, stored, Some(path)),
            Err(error) => {
                not_counted(&path, &error);
                (0, Stored::default(), None)
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

    /// Nothing is known, and nothing is kept or counted.
    #[cfg(test)]
    pub(crate) fn none(id: u64, storage: Uuid) -> Self {
        let (storage, boot) = (StorageId::new(storage), BootId::new(Uuid::nil()));
        Self(Arc::new(Inner { id, storage, starts: 0, kept_starts: 0, boot, path: None, state: Mutex::default() }))
    }

    /// What each message says: of this coordinator first.
    pub(super) fn said(&self) -> Vec<v1::VoterMark> {
        let Inner { id, storage, starts, boot, .. } = *self.0;
        let mut state = self.0.state.lock();
        let State { marks, began_at, said, .. } = &mut *state;
        let said = said.get_or_insert_with(|| {
            // Of one that leads nobody else knows how far its log goes.
            let holds = marks.of(id, storage).map_or(0, |own| own.holds);
            let own = Mark { storage, starts, boot, began_at: *began_at, holds };
            let others = marks.iter().filter(|(other, _)| *other != id);
            std::iter::once((id, own)).chain(others).map(to_wire).collect()
        });
        said.clone()
    }

    /// Takes in what a message says, whose sender was checked by number and directory.
    ///
    /// # Errors
    /// The sender's directory is an older copy, or this one's is.
    pub(super) fn take(&self, sender: u64, storage: &[u8], said: &[v1::VoterMark]) -> Result<(), String> {
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

    /// What another one says of this coordinator.
    fn judge_self(&self, state: &mut State, said: Mark) -> Result<(), String> {
        let Inner { id, storage, starts, boot, .. } = *self.0;
        if said.storage != storage {
            return Ok(());
        }
        let names_this_start = (said.starts, said.boot) == (starts, boot);
        state.is_counted |= starts > 0 && names_this_start;
        // What is said first is of before this start: nothing was acknowledged since, and nothing is before it is known where the log ends. Unless
        // this coordinator has led alone, and they have it from here, or they name this very start: a newcomer may have copied
        // entries by then. Others reject a start with an incomplete log (`Marks`), so they do not name it.
        let led_to = state.marks.of(id, storage).map_or(0, |own| own.holds);
        let is_first = state.began_at.is_some() && !std::mem::replace(&mut state.is_heard, true);
        let first = is_first && led_to < said.holds && !names_this_start;
        // So is whatever somebody says who has not heard of this start.
        let before = first || said.starts < starts;
        let lacks = state.began_at.filter(|last| before && *last < said.holds);
        let outdated = match lacks {
            _ if said.overtakes(starts, boot) => Outdated::Start { said: starts, known: said.starts },
            Some(last) => Outdated::Log { last, held: said.holds },
            None => return Ok(()),
        };
        state.end(older_copy(id, &outdated))
    }

    /// The log ends there as this process begins.
    pub(super) fn log_ends_at(&self, last: u64) {
        let mut state = self.0.state.lock();
        (state.began_at, state.said) = (Some(last), None);
    }

    /// Whether a log that ends at `last` holds all that its voter had.
    ///
    /// # Errors
    /// Its directory is an older copy.
    pub(super) fn check_log(&self, id: u64, storage: &[u8], last: u64) -> Result<(), String> {
        let Ok(storage) = Uuid::from_slice(storage) else { return Ok(()) };
        let state = self.0.state.lock();
        state.marks.check_log(id, StorageId::new(storage), last).map_err(|outdated| older_copy(id, &outdated))
    }

    /// Why this coordinator is not to go on, if others know more of its directory than is in it.
    pub(crate) fn outdated(&self) -> Option<String> {
        self.0.state.lock().outdated.clone()
    }

    /// Looks how far the followers' logs go while this coordinator leads, and keeps what is news, until `stop`.
    pub(super) async fn run(self, raft: Raft, stop: CancellationToken) {
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

    /// A follower's log holds what it acknowledged as far as that is committed: what is not may be cut off again. So does the leader's own
    /// what it has on its disk.
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
            // A start that nobody accepted was none: an older copy does not become the later one by being started often.
            let refused = self.0.starts > 0 && state.outdated.is_some() && !state.is_counted;
            let starts = self.0.kept_starts.saturating_sub(refused.into());
            Stored { starts, voters: state.marks.iter().map(kept).collect() }
        };
        write(path, &stored).inspect_err(|_| self.0.state.lock().changed = true)
    }
}

fn not_counted(path: &Path, error: &io::Error) {
    let path = path.display();
    tracing::warn!(%error, %path, "this start is not counted: an older copy of the directory would not show by it");
}

fn older_copy(id: u64, outdated: &Outdated) -> String {
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

/// One that cannot be read says nothing.
fn from_wire(wire: &v1::VoterMark) -> Option<(u64, Mark)> {
    let storage = StorageId::new(Uuid::from_slice(&wire.storage).ok()?);
    let boot = BootId::new(Uuid::from_slice(&wire.boot).ok()?);
    let v1::VoterMark { id, starts, began_at, holds, .. } = *wire;
    Some((id, Mark { storage, starts, boot, began_at, holds }))
}

fn read(path: &Path) -> io::Result<Stored> {
    match std::fs::metadata(path) {
        Ok(found) if found.len() > BYTES_MAX => return Err(io::Error::other("it is too large")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Stored::default()),
        Ok(_) => {}
        Err(error) => return Err(error),
    }
    serde_json::from_slice(&std::fs::read(path)?).map_err(io::Error::other)
}

fn write(path: &Path, stored: &Stored) -> io::Result<()> {
    archon_durable::replace(path, &serde_json::to_vec_pretty(stored).map_err(io::Error::other)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(directory: &Path) -> KeptMarks {
        KeptMarks::begin(directory, 1, Uuid::from_u128(7), Uuid::new_v4())
    }

    #[test]
    fn a_log_that_lacks_entries_was_not_found_out_when_somebody_spoke_before_it_was_open() {
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
    fn newcomer_is_no_older_copy_if_it_copied_before_it_was_told() {
        let directory = tempfile::tempdir().unwrap();
        let marks = begin(directory.path());
        marks.log_ends_at(0);
        // The leader's first append brought all entries, and it had looked at the answer before it spoke of this start.
        assert_eq!(told(&marks, 1, 12), Ok(()));
        assert_eq!(marks.outdated(), None);
    }

    /// What another one says that knows of this start, or of one before it.
    fn told(marks: &KeptMarks, starts: u64, holds: u64) -> Result<(), String> {
        let own = marks.said().remove(0);
        marks.take(2, &[1; 16], &[v1::VoterMark { starts, holds, ..own }])
    }

    #[test]
    fn a_copy_that_had_been_refused_was_heard_until_it_had_ended() {
        let directory = tempfile::tempdir().unwrap();
        drop(begin(directory.path()));
        let marks = begin(directory.path());
        marks.log_ends_at(7);
        assert_eq!(told(&marks, 1, 7), Ok(()), "of one that knows little");
        assert!(told(&marks, 1, 9).is_err(), "of before this start");
        assert!(told(&marks, 1, 7).is_err() && told(&marks, 2, 7).is_err(), "whoever speaks next");
    }

    #[test]
    fn what_was_committed_since_a_start_is_not_of_before_it() {
        let directory = tempfile::tempdir().unwrap();
        drop(begin(directory.path()));
        let marks = begin(directory.path());
        marks.log_ends_at(7);
        assert_eq!(marks.said()[0].began_at, Some(7));
        assert_eq!((told(&marks, 2, 7), told(&marks, 2, 9)), (Ok(()), Ok(())));
    }

    #[test]
    fn a_coordinator_that_had_led_alone_ended_when_the_first_other_one_spoke() {
        let directory = tempfile::tempdir().unwrap();
        let marks = begin(directory.path());
        marks.log_ends_at(7);
        let own = Mark { storage: marks.0.storage, starts: 1, boot: marks.0.boot, began_at: Some(7), holds: 30 };
        assert!(marks.0.state.lock().marks.learn(1, own), "it leads");
        assert_eq!(told(&marks, 1, 30), Ok(()), "they have it from here");
        assert_eq!(marks.outdated(), None);
    }

    #[test]
    fn a_copy_became_the_later_one_by_being_started_often() {
        let directory = tempfile::tempdir().unwrap();
        for _ in 0..3 {
            let copy = begin(directory.path());
            copy.log_ends_at(7);
            assert_eq!(copy.0.starts, 1);
            assert!(told(&copy, 2, 7).is_err() && copy.keep().is_ok());
        }
        // One that another counts was a start, whatever came of it.
        let accepted = begin(directory.path());
        assert!(told(&accepted, 1, 0).is_ok() && told(&accepted, 2, 0).is_err() && accepted.keep().is_ok());
        assert_eq!(begin(directory.path()).0.starts, 2);
    }

    #[test]
    fn a_start_that_could_not_be_counted_kept_a_coordinator_away() {
        let directory = tempfile::tempdir().unwrap();
        for starts in 1..4 {
            assert_eq!(begin(directory.path()).0.starts, starts);
        }
        // What is known of others is kept with the count.
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
        // Damage is no other count: the file stays, and nothing is said.
        let path = directory.path().join(FILE);
        std::fs::write(&path, "{").unwrap();
        let damaged = begin(directory.path());
        assert_eq!((damaged.0.starts, damaged.0.path.is_none()), (0, true));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{");
        // Nor is a directory that takes no file.
        assert_eq!(begin(&directory.path().join("not there")).0.starts, 0);
    }
}
