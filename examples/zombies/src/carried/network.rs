//! Who reaches whom, and how long that takes.

use crate::random::Random;

/// How long a message is on its way at most, in milliseconds.
const DELAY_MAX_MS: u32 = 2;

/// Where a message comes from or goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Coordinator,
    Member(u32),
}

pub(super) struct Network {
    /// The first so many members are cut off from the others and from the coordinator.
    pub(super) cut_off: u32,
    /// A member that is dead.
    pub(super) dead: Option<u32>,
    /// The chance that a message is lost for good, which TCP would send again.
    pub(super) loss: f64,
}

impl Network {
    /// After how many milliseconds a message arrives, if it does.
    pub(super) fn carry(&self, from: Place, to: Place, random: &mut Random) -> Option<u64> {
        if from == to {
            return Some(0);
        }
        let apart = self.is_cut_off(from) != self.is_cut_off(to);
        let lost = apart || self.is_dead(from) || self.is_dead(to) || random.happens(self.loss);
        (!lost).then(|| u64::from(random.below(DELAY_MAX_MS)) + 1)
    }

    fn is_cut_off(&self, place: Place) -> bool {
        matches!(place, Place::Member(member) if member < self.cut_off)
    }

    fn is_dead(&self, place: Place) -> bool {
        matches!(place, Place::Member(member) if Some(member) == self.dead)
    }
}
