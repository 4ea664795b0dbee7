//! Filter for pushes (PROTOCOL rules 4 and 8): a node applies pushes for its present incarnation, from the newest term
//! it has seen, and never duties older than those applied last.

use archon_types::{Incarnation, Version};

/// Verdict on a push for the node's present incarnation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PushVerdict {
    /// Rejected: a push of a newer coordinator was applied before.
    Succeeded {
        /// The newest term of which a push was applied.
        applied: u64,
    },
    /// Table updates apply; the duties do not, as they are older than those applied last.
    Older,
    /// Table updates only, without duties.
    News,
    /// Applies in full. Call [`AppliedPush::note`] once the duties are carried out.
    Duties,
}

/// The newest push that was applied.
#[derive(Clone, Copy, Debug, Default)]
pub struct AppliedPush {
    incarnation: Incarnation,
    version: Version,
    term: u64,
}

impl AppliedPush {
    /// Judges a push of `term` for the node's present `incarnation`. Its duties, or those it presumes known if it
    /// brings no `duties`, follow from `version`. A new incarnation starts with nothing applied.
    pub fn take(&mut self, incarnation: Incarnation, term: u64, version: Version, duties: bool) -> PushVerdict {
        if self.incarnation != incarnation {
            *self = Self { incarnation, ..Self::default() };
        }
        match () {
            () if term < self.term => PushVerdict::Succeeded { applied: self.term },
            () if version < self.version => PushVerdict::Older,
            () if !duties => PushVerdict::News,
            () => PushVerdict::Duties,
        }
    }

    /// Records that the duties of a push are carried out.
    pub const fn note(&mut self, term: u64, version: Version) {
        (self.term, self.version) = (term, version);
    }

    /// Returns the version that the applied duties follow from. Every answer to a push names it, so that the
    /// coordinator sees whether they are those it pushed.
    pub const fn version(&self) -> Version {
        self.version
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Incarnation = Incarnation::new(4);

    fn applied(term: u64, version: u64) -> AppliedPush {
        let mut applied = AppliedPush::default();
        assert_eq!(applied.take(LIFE, term, Version::new(version), true), PushVerdict::Duties);
        applied.note(term, Version::new(version));
        applied
    }

    #[test]
    fn push_of_earlier_term_is_rejected() {
        let mut applied = applied(7, 20);
        assert_eq!(applied.take(LIFE, 6, Version::new(30), true), PushVerdict::Succeeded { applied: 7 });
        assert_eq!(applied.take(LIFE, 6, Version::new(30), false), PushVerdict::Succeeded { applied: 7 });
        assert_eq!(applied.version(), Version::new(20));
    }

    #[test]
    fn older_duties_do_not_replace_newer_ones() {
        let mut applied = applied(7, 20);
        assert_eq!(applied.take(LIFE, 7, Version::new(19), true), PushVerdict::Older);
        assert_eq!(applied.take(LIFE, 7, Version::new(20), false), PushVerdict::News);
        assert_eq!(applied.version(), Version::new(20));
        // Not recorded before they are carried out.
        assert_eq!(applied.take(LIFE, 8, Version::new(21), true), PushVerdict::Duties);
        assert_eq!(applied.version(), Version::new(20));
    }

    #[test]
    fn new_incarnation_accepts_pushes_of_any_term() {
        let mut applied = applied(7, 20);
        assert_eq!(applied.take(Incarnation::new(5), 3, Version::new(2), true), PushVerdict::Duties);
    }
}
