//! Reachability and message delays.

use crate::random::Random;

/// Maximum delay of a message, in milliseconds.
const DELAY_MAX_MS: u32 = 2;

/// Sender or receiver of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Coordinator,
    Member(u32),
}

pub(super) struct Network {
    /// The first members, this many, are cut off from the others and from the coordinator.
    pub(super) cut_off: u32,
    /// A dead member.
    pub(super) dead: Option<u32>,
    /// Probability that a message is lost permanently, which TCP would send again.
    pub(super) loss: f64,
}

impl Network {
    /// Returns the delay of a message in milliseconds; `None` if it does not arrive.
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
