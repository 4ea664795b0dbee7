//! The history of the cluster to which a table belongs. Coordinators that are restored twice from one directory
//! create two generations with the same number, of which one is abandoned ([ADR
//! 0069](../../../docs/design/adr/0069-two-recoveries-of-one-number.md)). Versions are ordered within a history, and cannot
//! be compared between two histories.

use archon_types::{GenerationKey, Version, generation_of};

/// Relation of an answer to the cached table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum History {
    /// Both belong to one history: the newer version wins.
    Same,
    /// The answer's history is the valid one, whatever the versions are.
    Replaces,
    /// The answer's history is, or may be, an abandoned one.
    Left,
}

impl History {
    /// Compares an answer with the cached table. `decides` is set if the sender determines which history is valid: a
    /// coordinator, or the only server that is asked. A node may continue to run in an abandoned generation.
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
    fn coordinators_decide_between_histories_with_equal_number() {
        let at = |generation: u64, number: u64, key: u128| {
            let version = Version::new((generation - 1) * NUMBERS_PER_GENERATION + number);
            (version, GenerationKey::new(Uuid::from_u128(key)))
        };
        assert_eq!(History::of(at(1, 9, 0), at(1, 5, 0), true), History::Same);
        assert_eq!(History::of(at(2, 9, 1), at(2, 5, 1), false), History::Same);
        assert_eq!(History::of(at(2, 900, 1), at(2, 5, 2), true), History::Replaces);
        assert_eq!(History::of(at(2, 900, 1), at(2, 5, 2), false), History::Left);
        assert_eq!(History::of(at(2, 5, 1), at(2, 900, 2), false), History::Left);
        // A later generation is recognized by its number.
        assert_eq!(History::of(at(1, 9, 0), at(2, 5, 1), false), History::Replaces);
        assert_eq!(History::of(at(3, 9, 3), at(2, 900, 1), true), History::Left);
    }
}
