//! Which pushes a node obeys (PROTOCOL rules 4 and 8): those of its present life, in the newest term that it obeyed, and of duties
//! none that follow from an older state than those that it obeys.

use archon_types::{Incarnation, Version};

/// What becomes of a push for the node's present life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pushed {
    /// It comes from a coordinator that was succeeded: nothing of it counts. Its successor was obeyed in term `obeyed`.
    Succeeded {
        /// The newest term that was obeyed.
        obeyed: u64,
    },
    /// Its news of tables and nodes count, and not its duties: older ones than those that are obeyed.
    Older,
    /// It brings news of tables and nodes, and no duties.
    News,
    /// It counts. Its duties are carried out, and then [`Obeyed::obey`] takes note of them.
    Duties,
}

/// The newest push that was obeyed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Obeyed {
    incarnation: Incarnation,
    version: Version,
    term: u64,
}

impl Obeyed {
    /// A push arrived in `term` for the present life of the node, `incarnation`. Its duties, or those that it
    /// takes for known if it brings no `duties`, follow from `version`. A new life has obeyed nothing yet.
    pub fn take(&mut self, incarnation: Incarnation, term: u64, version: Version, duties: bool) -> Pushed {
        if self.incarnation != incarnation {
            *self = Self { incarnation, ..Self::default() };
        }
        match () {
            () if term < self.term => Pushed::Succeeded { obeyed: self.term },
            () if version < self.version => Pushed::Older,
            () if !duties => Pushed::News,
            () => Pushed::Duties,
        }
    }

    /// The duties of a push are carried out.
    pub const fn obey(&mut self, term: u64, version: Version) {
        (self.term, self.version) = (term, version);
    }

    /// The version that the duties follow from that are obeyed, which every answer to a push names: it tells the coordinator
    /// whether they are those that it pushed.
    pub const fn version(&self) -> Version {
        self.version
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Incarnation = Incarnation::new(4);

    fn obeying(term: u64, version: u64) -> Obeyed {
        let mut obeyed = Obeyed::default();
        assert_eq!(obeyed.take(LIFE, term, Version::new(version), true), Pushed::Duties);
        obeyed.obey(term, Version::new(version));
        obeyed
    }

    #[test]
    fn a_coordinator_that_was_succeeded_is_not_obeyed_whatever_it_pushes() {
        let mut obeyed = obeying(7, 20);
        assert_eq!(obeyed.take(LIFE, 6, Version::new(30), true), Pushed::Succeeded { obeyed: 7 });
        assert_eq!(obeyed.take(LIFE, 6, Version::new(30), false), Pushed::Succeeded { obeyed: 7 });
        assert_eq!(obeyed.version(), Version::new(20));
    }

    #[test]
    fn late_duties_do_not_replace_newer_ones_and_the_answer_tells_so() {
        let mut obeyed = obeying(7, 20);
        assert_eq!(obeyed.take(LIFE, 7, Version::new(19), true), Pushed::Older);
        assert_eq!(obeyed.take(LIFE, 7, Version::new(20), false), Pushed::News);
        assert_eq!(obeyed.version(), Version::new(20));
        // Not obeyed before they are carried out.
        assert_eq!(obeyed.take(LIFE, 8, Version::new(21), true), Pushed::Duties);
        assert_eq!(obeyed.version(), Version::new(20));
    }

    #[test]
    fn a_new_life_obeys_whoever_leads_now() {
        let mut obeyed = obeying(7, 20);
        assert_eq!(obeyed.take(Incarnation::new(5), 3, Version::new(2), true), Pushed::Duties);
    }
}
