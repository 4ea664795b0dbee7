//! How far voters' data directories had come, as far as others know (PROTOCOL rule 58): one that comes back from an older copy of its
//! directory has forgotten votes and entries that it acknowledged. With its vote, entries that are committed could be lost.

use archon_types::{BootId, StorageId};
use std::collections::BTreeMap;

/// Most voters that are remembered: nobody authenticates them without TLS.
const MARKS_MAX: usize = 64;

/// What is known of one voter's directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The directory.
    pub storage: StorageId,
    /// How often a process was started on it; zero if nobody said so.
    pub starts: u64,
    /// The last of these processes.
    pub boot: BootId,
    /// Up to which index its log holds what is committed, at least.
    pub holds: u64,
}

impl Mark {
    /// Whether a process that says that it is in this start has an older copy of the directory: a later start is known, or the same one by
    /// another process. Who does not count says nothing by it.
    pub fn overtakes(&self, starts: u64, boot: BootId) -> bool {
        let both_count = self.starts > 0 && starts > 0;
        both_count && (starts < self.starts || (starts == self.starts && boot != self.boot))
    }
}

/// Why a voter is not heard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Outdated {
    /// It says that it is in an earlier start, or in the same one by another process.
    #[error("it is in start {said} of its data directory, and another process was in start {known}")]
    Start {
        /// What it says.
        said: u64,
        /// What is known.
        known: u64,
    },
    /// Its log ends before what it had.
    #[error("its log ends at entry {last}, and it held the committed entries up to {held}")]
    Log {
        /// Where its log ends.
        last: u64,
        /// What it held.
        held: u64,
    },
}

/// What is known of all voters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Marks(BTreeMap<u64, Mark>);

impl Marks {
    /// As they were kept.
    pub fn new(marks: impl IntoIterator<Item = (u64, Mark)>) -> Self {
        Self(marks.into_iter().take(MARKS_MAX).collect())
    }

    /// All of them, by number.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Mark)> + '_ {
        self.0.iter().map(|(id, mark)| (*id, *mark))
    }

    /// What is known of a voter with this directory.
    pub fn of(&self, id: u64, storage: StorageId) -> Option<&Mark> {
        self.0.get(&id).filter(|mark| mark.storage == storage)
    }

    /// A voter says in which start it is. Returns whether that was not known.
    ///
    /// # Errors
    /// A later start is known, or the same one by another process: its directory is an older copy.
    pub fn hear(&mut self, id: u64, storage: StorageId, starts: u64, boot: BootId) -> Result<bool, Outdated> {
        match self.of(id, storage) {
            Some(known) if known.overtakes(starts, boot) => Err(Outdated::Start { said: starts, known: known.starts }),
            // It does not count them, or it is the start that is known.
            _ if starts == 0 => Ok(false),
            _ => Ok(self.learn(id, Mark { storage, starts, boot, holds: 0 })),
        }
    }

    /// Another voter says what it knows. The later start counts, and the longer log. Returns whether anything of it is news.
    pub fn learn(&mut self, id: u64, said: Mark) -> bool {
        let room = self.0.len() < MARKS_MAX;
        match self.0.get_mut(&id) {
            Some(known) if known.storage == said.storage => {
                let before = *known;
                if said.starts > known.starts {
                    (known.starts, known.boot) = (said.starts, said.boot);
                }
                known.holds = known.holds.max(said.holds);
                *known != before
            }
            // A number and a directory belong together for ever: what is here is of a stranger, or of before a recovery.
            Some(known) => {
                *known = said;
                true
            }
            None if room => self.0.insert(id, said).is_none(),
            None => false,
        }
    }

    /// Whether a log that ends at `last` holds all that the voter with this directory had.
    ///
    /// # Errors
    /// It does not: its directory is an older copy.
    pub fn check_log(&self, id: u64, storage: StorageId, last: u64) -> Result<(), Outdated> {
        match self.of(id, storage) {
            Some(known) if last < known.holds => Err(Outdated::Log { last, held: known.holds }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const STORAGE: StorageId = StorageId::new(Uuid::from_u128(7));

    fn boot(number: u128) -> BootId {
        BootId::new(Uuid::from_u128(number))
    }

    #[test]
    fn an_older_copy_of_a_directory_was_heard() {
        let mut marks = Marks::default();
        assert_eq!(marks.hear(2, STORAGE, 4, boot(1)), Ok(true));
        assert_eq!(marks.hear(2, STORAGE, 4, boot(1)), Ok(false));
        assert_eq!(marks.hear(2, STORAGE, 3, boot(9)), Err(Outdated::Start { said: 3, known: 4 }));
        assert_eq!(marks.hear(2, STORAGE, 4, boot(2)), Err(Outdated::Start { said: 4, known: 4 }), "another process");
        assert_eq!(marks.hear(2, STORAGE, 5, boot(3)), Ok(true), "it was started again");
        assert_eq!(marks.hear(2, STORAGE, 0, boot(0)), Ok(false), "a version that does not count");
        assert_eq!(
            marks.hear(2, StorageId::new(Uuid::from_u128(8)), 1, boot(4)),
            Ok(true),
            "another directory is judged elsewhere"
        );
    }

    #[test]
    fn a_log_that_ends_before_what_it_held_is_an_older_one() {
        let mut marks = Marks::default();
        let mark = |holds| Mark { storage: STORAGE, starts: 1, boot: boot(1), holds };
        assert_eq!(marks.check_log(2, STORAGE, 0), Ok(()), "nothing is known");
        assert!(marks.learn(2, mark(10)) && !marks.learn(2, mark(9)) && marks.learn(2, mark(12)));
        assert_eq!(marks.check_log(2, STORAGE, 12), Ok(()));
        assert_eq!(marks.check_log(2, STORAGE, 11), Err(Outdated::Log { last: 11, held: 12 }));
        assert_eq!(marks.check_log(2, StorageId::new(Uuid::from_u128(8)), 0), Ok(()));
        // A start that is heard of later takes nothing of that back.
        assert_eq!(marks.hear(2, STORAGE, 2, boot(2)), Ok(true));
        assert!(marks.check_log(2, STORAGE, 11).is_err());
    }

    #[test]
    fn no_more_are_remembered_than_fit() {
        let mark = Mark { storage: STORAGE, starts: 1, boot: boot(1), holds: 1 };
        let mut marks = Marks::default();
        assert_eq!((0..1_000).filter(|id| marks.learn(*id, mark)).count(), MARKS_MAX);
        assert_eq!(marks.iter().count(), MARKS_MAX);
    }
}
