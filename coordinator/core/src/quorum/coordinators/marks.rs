//! Log watermarks: the progress of voters' data directories, as known to others (PROTOCOL rule 58). A voter that
//! returns with an older copy of its directory has lost votes and entries that it acknowledged. With its vote,
//! committed entries could be lost.

use archon_types::{BootId, StorageId};
use std::collections::BTreeMap;

/// Maximum number of voters kept: without TLS they are not authenticated.
const MARKS_MAX: usize = 64;

/// Known progress of one voter's directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The directory.
    pub storage: StorageId,
    /// Number of process starts on it; zero if not reported.
    pub starts: u64,
    /// The last of these processes.
    pub boot: BootId,
    /// End of the log when that process began, if reported.
    pub began_at: Option<u64>,
    /// Lower bound of the committed index up to which its log is complete, since that start or an earlier one.
    pub holds: u64,
}

impl Mark {
    /// Returns true if a process that reports this start has an older copy of the directory: a later start is known, or
    /// the same one by another process. A voter that does not count its starts proves nothing by them.
    pub fn overtakes(&self, starts: u64, boot: BootId) -> bool {
        let both_count = self.starts > 0 && starts > 0;
        both_count && (starts < self.starts || (starts == self.starts && boot != self.boot))
    }

    /// Returns the end of its log as this start began, if that lacks part of what an earlier start held: it is a start
    /// of an older copy.
    fn lacks(&self, held: u64) -> Option<u64> {
        self.began_at.filter(|last| *last < held)
    }

    /// Checks that a process with the mark `said` does not have an older copy of the directory of which `self` is
    /// known.
    fn judge(&self, said: &Self) -> Result<(), VoterRefusal> {
        if self.overtakes(said.starts, said.boot) {
            return Err(VoterRefusal::Start { said: said.starts, known: self.starts });
        }
        // The known mark is from before that start.
        match said.lacks(self.holds).filter(|_| said.starts > self.starts) {
            Some(last) => Err(VoterRefusal::Log { last, held: self.holds }),
            None => Ok(()),
        }
    }

    /// Merges two marks of one directory. The later start counts, and the longer log; a start of an older copy never
    /// does, even if a voter accepted it without knowledge of the directory's earlier content.
    fn with(self, said: Self) -> Self {
        let (earlier, later) = if said.starts > self.starts { (self, said) } else { (said, self) };
        let is_same = earlier.starts == later.starts && earlier.boot == later.boot;
        if later.starts > earlier.starts && later.lacks(earlier.holds).is_some() {
            return earlier;
        }
        let began_at = later.began_at.or(earlier.began_at.filter(|_| is_same));
        Self { began_at, holds: earlier.holds.max(later.holds), ..later }
    }
}

/// Reason for which a voter is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum VoterRefusal {
    /// It reports an earlier start, or the same one by another process.
    #[error("it is in start {said} of its data directory, and another process was in start {known}")]
    Start {
        /// The reported start.
        said: u64,
        /// The known start.
        known: u64,
    },
    /// Its log ends before its earlier end.
    #[error("its log ends at entry {last}, and it held the committed entries up to {held}")]
    Log {
        /// End of its log.
        last: u64,
        /// Known earlier content of its log.
        held: u64,
    },
}

/// Marks of all voters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Marks(BTreeMap<u64, Mark>);

impl Marks {
    /// Creates them from stored marks.
    pub fn new(marks: impl IntoIterator<Item = (u64, Mark)>) -> Self {
        Self(marks.into_iter().take(MARKS_MAX).collect())
    }

    /// Returns all of them, by number.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Mark)> + '_ {
        self.0.iter().map(|(id, mark)| (*id, *mark))
    }

    /// Returns the mark of a voter with this directory.
    pub fn of(&self, id: u64, storage: StorageId) -> Option<&Mark> {
        self.0.get(&id).filter(|mark| mark.storage == storage)
    }

    /// Notes a voter's own mark: its start, the end of its log then, and the log's content. Returns true if that is
    /// new.
    ///
    /// # Errors
    /// Its directory is an older copy: a later start is known, or the same one by another process, or its log lacked
    /// earlier content of the directory. Such a start is not stored, so that it does not refuse the directory itself.
    pub fn hear(&mut self, id: u64, said: Mark) -> Result<bool, VoterRefusal> {
        if let Some(known) = self.of(id, said.storage) {
            known.judge(&said)?;
        }
        // A voter that does not count its starts contributes nothing.
        Ok(said.starts > 0 && self.learn(id, said))
    }

    /// Notes another voter's mark. Returns true if any of it is new.
    pub fn learn(&mut self, id: u64, said: Mark) -> bool {
        let room = self.0.len() < MARKS_MAX;
        match self.0.get_mut(&id) {
            Some(known) => {
                // A number and a directory belong together permanently: a known mark of another directory is of a
                // stranger, or from before a recovery.
                let next = if known.storage == said.storage { known.with(said) } else { said };
                std::mem::replace(known, next) != next
            }
            None if room => self.0.insert(id, said).is_none(),
            None => false,
        }
    }

    /// Checks that a log that ends at `last` holds everything that the voter with this directory had.
    ///
    /// # Errors
    /// It does not: its directory is an older copy.
    pub fn check_log(&self, id: u64, storage: StorageId, last: u64) -> Result<(), VoterRefusal> {
        match self.of(id, storage) {
            Some(known) if last < known.holds => Err(VoterRefusal::Log { last, held: known.holds }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const STORAGE: StorageId = StorageId::new(Uuid::from_u128(7));
    const OTHER: StorageId = StorageId::new(Uuid::from_u128(8));

    fn boot(number: u128) -> BootId {
        BootId::new(Uuid::from_u128(number))
    }

    /// Returns the mark of a process that does not know the end of its log.
    fn start(starts: u64, process: u128) -> Mark {
        Mark { storage: STORAGE, starts, boot: boot(process), began_at: None, holds: 0 }
    }

    /// Returns the mark of a process at its beginning.
    fn begun(starts: u64, process: u128, last: u64) -> Mark {
        Mark { began_at: Some(last), ..start(starts, process) }
    }

    #[test]
    fn older_copy_of_a_directory_is_refused() {
        let mut marks = Marks::default();
        assert_eq!(marks.hear(2, start(4, 1)), Ok(true));
        assert_eq!(marks.hear(2, start(4, 1)), Ok(false));
        assert_eq!(marks.hear(2, start(3, 9)), Err(VoterRefusal::Start { said: 3, known: 4 }));
        assert_eq!(marks.hear(2, start(4, 2)), Err(VoterRefusal::Start { said: 4, known: 4 }), "another process");
        assert_eq!(marks.hear(2, start(5, 3)), Ok(true), "it was started again");
        assert_eq!(marks.hear(2, start(0, 0)), Ok(false), "a version that does not count");
        let other = Mark { storage: OTHER, ..start(1, 4) };
        assert_eq!(marks.hear(2, other), Ok(true), "another directory is judged elsewhere");
    }

    #[test]
    fn shortened_log_is_an_older_copy() {
        let mut marks = Marks::default();
        let mark = |holds| Mark { holds, ..start(1, 1) };
        assert_eq!(marks.check_log(2, STORAGE, 0), Ok(()), "nothing is known");
        assert!(marks.learn(2, mark(10)) && !marks.learn(2, mark(9)) && marks.learn(2, mark(12)));
        assert_eq!(marks.check_log(2, STORAGE, 12), Ok(()));
        assert_eq!(marks.check_log(2, STORAGE, 11), Err(VoterRefusal::Log { last: 11, held: 12 }));
        assert_eq!(marks.check_log(2, OTHER, 0), Ok(()));
        // A later start does not change that.
        assert_eq!(marks.hear(2, start(2, 2)), Ok(true));
        assert!(marks.check_log(2, STORAGE, 11).is_err());
    }

    #[test]
    fn refused_start_does_not_count() {
        let mut marks = Marks::default();
        assert_eq!(marks.hear(2, begun(4, 1, 7)), Ok(true));
        assert!(marks.learn(2, Mark { holds: 12, ..begun(4, 1, 7) }));
        // A copy from the time of that start, started three times.
        for starts in 5..8 {
            let short = Err(VoterRefusal::Log { last: 9, held: 12 });
            assert_eq!(marks.hear(2, begun(starts, 90 + u128::from(starts), 9)), short);
        }
        assert_eq!(marks.hear(2, begun(5, 2, 12)), Ok(true), "the directory itself");
        // Entries committed since are not from before its start.
        assert!(marks.learn(2, Mark { holds: 20, ..begun(5, 2, 12) }));
        assert_eq!(marks.hear(2, begun(5, 2, 12)), Ok(false));
        assert_eq!(
            marks.hear(2, begun(5, 95, 9)),
            Err(VoterRefusal::Start { said: 5, known: 5 }),
            "the copy once more"
        );
    }

    /// A voter that had been away for long receives the copy's mark first.
    #[test]
    fn accepted_copy_does_not_refuse_the_directory() {
        let (copy, held) = (begun(5, 99, 9), Mark { holds: 12, ..begun(4, 1, 7) });
        let mut away = Marks::default();
        assert_eq!(away.hear(2, begun(4, 1, 7)), Ok(true));
        assert_eq!(away.hear(2, copy), Ok(true), "it knows no better");
        let mut knows = Marks::new([(2, held)]);
        assert!(!knows.learn(2, copy), "another one's word changes nothing of it");
        assert!(away.learn(2, held), "it hears what the directory held");
        for marks in [&mut away, &mut knows] {
            assert!(marks.hear(2, copy).is_err());
            assert_eq!(marks.of(2, STORAGE), Some(&held));
            assert_eq!(marks.hear(2, begun(5, 2, 12)), Ok(true), "the directory itself");
        }
    }

    #[test]
    fn leaders_own_mark_detects_a_shortened_log() {
        let mut marks = Marks::default();
        assert_eq!(marks.hear(2, Mark { holds: 30, ..begun(1, 1, 0) }), Ok(true));
        assert_eq!(marks.hear(2, begun(2, 2, 29)), Err(VoterRefusal::Log { last: 29, held: 30 }));
        assert_eq!(marks.hear(2, begun(2, 2, 30)), Ok(true));
    }

    #[test]
    fn number_of_marks_is_bounded() {
        let mark = Mark { holds: 1, ..start(1, 1) };
        let mut marks = Marks::default();
        assert_eq!((0..1_000).filter(|id| marks.learn(*id, mark)).count(), MARKS_MAX);
        assert_eq!(marks.iter().count(), MARKS_MAX);
    }
}
