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
    /// Where the log ended as that one began, if it said so.
    pub began_at: Option<u64>,
    /// Up to which index its log holds what is committed, at least, since that start or one before it.
    pub holds: u64,
}

impl Mark {
    /// Whether a process that says that it is in this start has an older copy of the directory: a later start is known, or the same one by
    /// another process. Who does not count says nothing by it.
    pub fn overtakes(&self, starts: u64, boot: BootId) -> bool {
        let both_count = self.starts > 0 && starts > 0;
        both_count && (starts < self.starts || (starts == self.starts && boot != self.boot))
    }

    /// The end of its log as this start began, if that lacks something of what an earlier one held: it is a start of an older copy.
    fn lacks(&self, held: u64) -> Option<u64> {
        self.began_at.filter(|last| *last < held)
    }

    /// Whether a process with this mark has an older copy of the directory of which `self` is known.
    fn judge(&self, said: &Self) -> Result<(), Outdated> {
        if self.overtakes(said.starts, said.boot) {
            return Err(Outdated::Start { said: said.starts, known: self.starts });
        }
        // What is known is of before that start.
        match said.lacks(self.holds).filter(|_| said.starts > self.starts) {
            Some(last) => Err(Outdated::Log { last, held: self.holds }),
            None => Ok(()),
        }
    }

    /// What is known of one directory, with what another one knows. The later start counts, and the longer log; a start of an older copy
    /// never does, whoever took it in before it was known what the directory had held.
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

    /// A voter says in which start it is, where its log ended then, and what that holds. Returns whether that was not known.
    ///
    /// # Errors
    /// Its directory is an older copy: a later start is known, or the same one by another process, or its log lacked what the directory had
    /// held. Of such a start nothing is remembered, so that it does not stand in the way of the directory itself.
    pub fn hear(&mut self, id: u64, said: Mark) -> Result<bool, Outdated> {
        if let Some(known) = self.of(id, said.storage) {
            known.judge(&said)?;
        }
        // One that does not count its starts says nothing of them.
        Ok(said.starts > 0 && self.learn(id, said))
    }

    /// Another voter says what it knows. Returns whether anything of it is news.
    pub fn learn(&mut self, id: u64, said: Mark) -> bool {
        let room = self.0.len() < MARKS_MAX;
        match self.0.get_mut(&id) {
            Some(known) => {
                // A number and a directory belong together for ever: what is here of another one is of a stranger, or of before a recovery.
                let next = if known.storage == said.storage { known.with(said) } else { said };
                std::mem::replace(known, next) != next
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
    const OTHER: StorageId = StorageId::new(Uuid::from_u128(8));

    fn boot(number: u128) -> BootId {
        BootId::new(Uuid::from_u128(number))
    }

    /// What a process says of itself that does not know where its log ended.
    fn start(starts: u64, process: u128) -> Mark {
        Mark { storage: STORAGE, starts, boot: boot(process), began_at: None, holds: 0 }
    }

    /// What a process says of itself as it begins.
    fn begun(starts: u64, process: u128, last: u64) -> Mark {
        Mark { began_at: Some(last), ..start(starts, process) }
    }

    #[test]
    fn an_older_copy_of_a_directory_was_heard() {
        let mut marks = Marks::default();
        assert_eq!(marks.hear(2, start(4, 1)), Ok(true));
        assert_eq!(marks.hear(2, start(4, 1)), Ok(false));
        assert_eq!(marks.hear(2, start(3, 9)), Err(Outdated::Start { said: 3, known: 4 }));
        assert_eq!(marks.hear(2, start(4, 2)), Err(Outdated::Start { said: 4, known: 4 }), "another process");
        assert_eq!(marks.hear(2, start(5, 3)), Ok(true), "it was started again");
        assert_eq!(marks.hear(2, start(0, 0)), Ok(false), "a version that does not count");
        let other = Mark { storage: OTHER, ..start(1, 4) };
        assert_eq!(marks.hear(2, other), Ok(true), "another directory is judged elsewhere");
    }

    #[test]
    fn a_log_that_ends_before_what_it_held_is_an_older_one() {
        let mut marks = Marks::default();
        let mark = |holds| Mark { holds, ..start(1, 1) };
        assert_eq!(marks.check_log(2, STORAGE, 0), Ok(()), "nothing is known");
        assert!(marks.learn(2, mark(10)) && !marks.learn(2, mark(9)) && marks.learn(2, mark(12)));
        assert_eq!(marks.check_log(2, STORAGE, 12), Ok(()));
        assert_eq!(marks.check_log(2, STORAGE, 11), Err(Outdated::Log { last: 11, held: 12 }));
        assert_eq!(marks.check_log(2, OTHER, 0), Ok(()));
        // A start that is heard of later takes nothing of that back.
        assert_eq!(marks.hear(2, start(2, 2)), Ok(true));
        assert!(marks.check_log(2, STORAGE, 11).is_err());
    }

    #[test]
    fn the_start_of_a_refused_copy_counted_and_the_directory_itself_was_refused_next() {
        let mut marks = Marks::default();
        assert_eq!(marks.hear(2, begun(4, 1, 7)), Ok(true));
        assert!(marks.learn(2, Mark { holds: 12, ..begun(4, 1, 7) }));
        // A copy from the time of that start, begun three times.
        for starts in 5..8 {
            let short = Err(Outdated::Log { last: 9, held: 12 });
            assert_eq!(marks.hear(2, begun(starts, 90 + u128::from(starts), 9)), short);
        }
        assert_eq!(marks.hear(2, begun(5, 2, 12)), Ok(true), "the directory itself");
        // What is committed since is not of before its start.
        assert!(marks.learn(2, Mark { holds: 20, ..begun(5, 2, 12) }));
        assert_eq!(marks.hear(2, begun(5, 2, 12)), Ok(false));
        assert_eq!(marks.hear(2, begun(5, 95, 9)), Err(Outdated::Start { said: 5, known: 5 }), "the copy once more");
    }

    /// One that had been away for long hears the copy first.
    #[test]
    fn a_copy_that_was_taken_in_by_one_that_knew_less_stood_in_the_way_of_the_directory() {
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
    fn what_a_leader_had_was_not_known_of_its_own_directory() {
        let mut marks = Marks::default();
        assert_eq!(marks.hear(2, Mark { holds: 30, ..begun(1, 1, 0) }), Ok(true));
        assert_eq!(marks.hear(2, begun(2, 2, 29)), Err(Outdated::Log { last: 29, held: 30 }));
        assert_eq!(marks.hear(2, begun(2, 2, 30)), Ok(true));
    }

    #[test]
    fn no_more_are_remembered_than_fit() {
        let mark = Mark { holds: 1, ..start(1, 1) };
        let mut marks = Marks::default();
        assert_eq!((0..1_000).filter(|id| marks.learn(*id, mark)).count(), MARKS_MAX);
        assert_eq!(marks.iter().count(), MARKS_MAX);
    }
}
