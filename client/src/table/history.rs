//! Which history of the cluster a table is of. Coordinators that are begun anew twice from one directory have two generations of
//! one number, of which one is given up ([ADR 0069](../../../docs/adr/0069-two-recoveries-of-one-number.md)); versions are in order
//! within a history, and say nothing across two.

use archon_types::{GenerationKey, Version, generation_of};

/// What an answer is worth beside the table that is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum History {
    /// Both are of one history: the newer counts.
    Same,
    /// The answer's history is the one that counts, whatever the versions are.
    Replaces,
    /// The answer's history is one that was left, or may have been.
    Left,
}

impl History {
    /// Judges an answer. `decides` if whoever gave it says which history counts: a coordinator, or the only one who is asked. A node
    /// may live on in a generation that was given up.
    pub(super) fn of(held: (Version, GenerationKey), answer: (Version, GenerationKey), decides: bool) -> Self {
        let ((held, held_key), (answer, answer_key)) = (held, answer);
        let (held, answer) = (generation_of(held.get()), generation_of(answer.get()));
        if held_key == answer_key {
            Self::Same
        } else if answer > held || (answer == held && decides) {
            Self::Replaces
        } else {
            Self::Left
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::NUMBERS_PER_GENERATION;
    use uuid::Uuid;

    #[test]
    fn of_two_histories_with_one_number_the_coordinators_say_which_counts() {
        let at = |generation: u64, number: u64, key: u128| {
            let version = Version::new((generation - 1) * NUMBERS_PER_GENERATION + number);
            (version, GenerationKey::new(Uuid::from_u128(key)))
        };
        assert_eq!(History::of(at(1, 9, 0), at(1, 5, 0), true), History::Same);
        assert_eq!(History::of(at(2, 9, 1), at(2, 5, 1), false), History::Same);
        assert_eq!(History::of(at(2, 900, 1), at(2, 5, 2), true), History::Replaces);
        assert_eq!(History::of(at(2, 900, 1), at(2, 5, 2), false), History::Left);
        assert_eq!(History::of(at(2, 5, 1), at(2, 900, 2), false), History::Left);
        // A later generation is known by its number.
        assert_eq!(History::of(at(1, 9, 0), at(2, 5, 1), false), History::Replaces);
        assert_eq!(History::of(at(3, 9, 3), at(2, 900, 1), true), History::Left);
    }
}
