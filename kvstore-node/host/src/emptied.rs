//! Whether the coordinators were told that a copy has thrown its data away: nobody may take it for what it was when it
//! counted (PROTOCOL rule 19).

use crate::mutant::{Broken, Mutant};
use archon_types::{Incarnation, Version};

/// When that was last said of one copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Emptied {
    told: Option<Told>,
    broken: Broken,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Told {
    /// The registration of the node in which it was.
    incarnation: Incarnation,
    /// The row's version that it was said under; `None` if it need not be said again, however the row changes.
    version: Option<Version>,
}

impl Emptied {
    /// Nothing was said yet.
    pub fn new(broken: Broken) -> Self {
        Self { broken, ..Self::default() }
    }

    /// Of a copy that was made in this registration: what never held anything was not emptied.
    pub const fn never_held(self, incarnation: Incarnation) -> Self {
        Self { told: Some(Told { incarnation, version: None }), ..self }
    }

    /// It is emptied once more: it may have counted in between.
    pub const fn again(&mut self) {
        self.told = None;
    }

    /// Whether it is to be said in this registration, under this version of the row. It is said once per registration of the
    /// node, for what was not heard in one is forgotten with it; and again when the row has changed, for the coordinator believes
    /// nothing that was said before the copy ceased to count.
    pub fn is_due(&self, incarnation: Incarnation, version: Version) -> bool {
        let told = self.told.filter(|told| told.incarnation == incarnation);
        let due = told.is_none_or(|told| told.version.is_some_and(|before| before < version));
        due && !self.broken.breaks(Mutant::EmptiedUntold)
    }

    /// Takes in that it was said.
    pub const fn said(&mut self, incarnation: Incarnation, version: Version) {
        self.told = Some(Told { incarnation, version: Some(version) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emptied_copy_is_told_of_once_per_registration_and_again_when_the_row_has_changed() {
        let (first, next) = (Incarnation::new(1), Incarnation::new(2));
        let (one, two) = (Version::new(1), Version::new(2));
        let mut emptied = Emptied::default();
        assert!(emptied.is_due(first, one));
        emptied.said(first, one);
        assert!(!emptied.is_due(first, one));
        assert!(emptied.is_due(first, two) && emptied.is_due(next, one));
        emptied.again();
        assert!(emptied.is_due(first, one));
    }

    fn a_copy_that_was_emptied_is_told_of(mutant: Option<Mutant>) -> bool {
        Emptied::new(Broken::by(mutant)).is_due(Incarnation::new(1), Version::new(1))
    }

    archon_types::shown_by! {
        EmptiedUntold => a_copy_that_was_emptied_is_told_of,
    }

    #[test]
    fn a_copy_that_never_held_anything_was_not_emptied_in_that_registration() {
        let emptied = Emptied::default().never_held(Incarnation::new(1));
        assert!(!emptied.is_due(Incarnation::new(1), Version::new(9)));
        assert!(emptied.is_due(Incarnation::new(2), Version::new(9)));
    }
}
