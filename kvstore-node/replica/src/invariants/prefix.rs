//! P: a committed prefix of a partition's log is immutable and equal on every replica.

use super::Violation;
use crate::message::Entry;
use archon_types::{PlacementId, Seq};

/// Everything that any replica ever committed, from position 1.
#[derive(Clone, Default, Debug)]
pub struct Ledger {
    entries: Vec<Entry>,
}

impl Ledger {
    /// Notes that `placement` commits `entry`.
    ///
    /// # Errors
    /// [`Violation::PrefixDiffers`] or [`Violation::PrefixGap`].
    pub fn commit(&mut self, placement: PlacementId, entry: &Entry) -> Result<(), Violation> {
        let last = self.last();
        if entry.at.seq > last {
            if last.next() != Some(entry.at.seq) {
                return Err(Violation::PrefixGap { placement, found: entry.at, last });
            }
            self.entries.push(entry.clone());
            return Ok(());
        }
        let number = usize::try_from(entry.at.seq.get()).ok().and_then(|seq| seq.checked_sub(1));
        match number.and_then(|number| self.entries.get(number)) {
            Some(known) if known == entry => Ok(()),
            Some(known) => Err(Violation::PrefixDiffers { placement, found: entry.at, expected: known.at }),
            None => Err(Violation::PrefixGap { placement, found: entry.at, last }),
        }
    }

    /// Returns the last position committed anywhere.
    pub fn last(&self) -> Seq {
        self.entries.last().map_or(Seq::ZERO, |entry| entry.at.seq)
    }

    /// Returns everything committed, from position 1.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }
}
