//! Generations of the coordinators' state: each begins where a state was taken from a survivor or from a file instead of from a
//! majority of the quorum, and counts from numbers that no earlier one can have reached.

use crate::ids::GenerationKey;

/// The protocol from which on a generation has a key, and members say the one in which they have lived.
pub const GENERATION_KEYS_SINCE: u32 = 2;

/// How far the numbers of two generations are apart: entries of the log, epochs, incarnations, and the numbers of nodes, tables
/// and copies. The log's index rises fastest: with ten changes of the cluster a second, day and night, it takes 3,000 years.
pub const NUMBERS_PER_GENERATION: u64 = 1_000_000_000_000;

/// The highest generation: its numbers are whole numbers in JSON.
pub const GENERATIONS_MAX: u64 = 9_000;

/// The number from which everything in a generation counts (PROTOCOL rule 60); the first one begins at zero.
pub const fn first_number(generation: u64) -> u64 {
    generation.saturating_sub(1).saturating_mul(NUMBERS_PER_GENERATION)
}

/// So many numbers are left at the end of a generation wherever in it it begins: 300 years, with ten changes a second.
const NUMBERS_LEFT: u64 = NUMBERS_PER_GENERATION / 10;

/// The number from which this very generation counts. Two that have the same number, begun from two states, begin where their keys say:
/// so far from each other that neither comes to numbers of the other one.
pub fn begins_at(generation: u64, key: GenerationKey) -> u64 {
    let room = u128::from(NUMBERS_PER_GENERATION - NUMBERS_LEFT);
    let place = u64::try_from(key.get().as_u128() % room).unwrap_or(0);
    first_number(generation).saturating_add(place)
}

/// The generation in which a number was given.
pub const fn generation_of(number: u64) -> u64 {
    number / NUMBERS_PER_GENERATION + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_generations_of_one_number_begin_at_numbers_of_their_own() {
        let of = |key: u128| begins_at(2, GenerationKey::new(uuid::Uuid::from_u128(key)));
        assert_eq!(begins_at(2, GenerationKey::NIL), first_number(2));
        assert_ne!(of(1), of(2));
        assert!(
            generation_of(of(u128::MAX).saturating_add(NUMBERS_LEFT - 1)) == 2,
            "it ends before the next one begins"
        );
    }

    #[test]
    fn every_number_tells_its_generation() {
        for generation in [1, 2, 3, GENERATIONS_MAX] {
            assert_eq!(generation_of(first_number(generation)), generation);
            assert_eq!(generation_of(first_number(generation + 1) - 1), generation);
        }
        assert!(first_number(GENERATIONS_MAX + 1) < 1 << 53, "JSON's numbers end there");
    }
}
