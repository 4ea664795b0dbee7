//! Which pushes a node applies (PROTOCOL rules 4 and 8): those of its present life, in the newest term of which it applied
//! one, and of duties none that follow from an older state than those it applied last.

use archon_types::{Incarnation, Version};

/// What becomes of a push for the node's present life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pushed {
    /// It comes from a coordinator that was succeeded: nothing of it counts. A push of its successor was applied before.
    Succeeded {
        /// The newest term of which a push was applied.
        applied: u64,
    },
    /// Its news of tables and nodes count, and not its duties: older ones than those applied last.
    Older,
    /// It brings news of tables and nodes, and no duties.
    News,
    /// It counts. Its duties are carried out, and then [`AppliedPush::note`] takes note of them.
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
    /// A push arrived in `term` for the present life of the node, `incarnation`. Its duties, or those that it
    /// takes for known if it brings no `duties`, follow from `version`. In a new life nothing was applied yet.
    pub fn take(&mut self, incarnation: Incarnation, term: u64, version: Version, duties: bool) -> Pushed {
        if self.incarnation != incarnation {
            *self = Self { incarnation, ..Self::default() };
        }
        match () {
            () if term < self.term => Pushed::Succeeded { applied: self.term },
            () if version < self.version => Pushed::Older,
            () if !duties => Pushed::News,
            () => Pushed::Duties,
        }
    }

    /// The duties of a push are carried out.
    pub const fn note(&mut self, term: u64, version: Version) {
        (self.term, self.version) = (term, version);
    }

    /// The version that the applied duties follow from, which every answer to a push names: it tells the coordinator
    /// whether they are those that it pushed.
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
        assert_eq!(applied.take(LIFE, term, Version::new(version), true), Pushed::Duties);
        applied.note(term, Version::new(version));
        applied
    }

    #[test]
    fn a_coordinator_that_was_succeeded_is_refused_whatever_it_pushes() {
        let mut applied = applied(7, 20);
        assert_eq!(applied.take(LIFE, 6, Version::new(30), true), Pushed::Succeeded { applied: 7 });
        assert_eq!(applied.take(LIFE, 6, Version::new(30), false), Pushed::Succeeded { applied: 7 });
        assert_eq!(applied.version(), Version::new(20));
    }

    #[test]
    fn late_duties_do_not_replace_newer_ones_and_the_answer_tells_so() {
        let mut applied = applied(7, 20);
        assert_eq!(applied.take(LIFE, 7, Version::new(19), true), Pushed::Older);
        assert_eq!(applied.take(LIFE, 7, Version::new(20), false), Pushed::News);
        assert_eq!(applied.version(), Version::new(20));
        // Not noted before they are carried out.
        assert_eq!(applied.take(LIFE, 8, Version::new(21), true), Pushed::Duties);
        assert_eq!(applied.version(), Version::new(20));
    }

    #[test]
    fn a_new_life_applies_the_pushes_of_whoever_leads_now() {
        let mut applied = applied(7, 20);
        assert_eq!(applied.take(Incarnation::new(5), 3, Version::new(2), true), Pushed::Duties);
    }
}
