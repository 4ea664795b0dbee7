//! Generations of the coordinators' state. Each begins with a state recovered from a survivor or a file instead of from
//! a majority of the quorum, and counts from numbers that no earlier generation can have reached.

use crate::ids::GenerationKey;

/// Protocol from which on a generation has a key, and members report the generation in which they have lived.
pub const GENERATION_KEYS_SINCE: u32 = 2;

/// Distance between the numbers of two generations: log entries, epochs, incarnations, and the numbers of nodes, tables
/// and copies. The log index rises fastest: at ten cluster changes a second, it takes 3,000 years.
pub const NUMBERS_PER_GENERATION: u64 = 1_000_000_000_000;

/// Highest generation: its numbers are exact in JSON.
pub const GENERATIONS_MAX: u64 = 9_000;

/// Returns the number from which a generation counts (PROTOCOL rule 60); the first one begins at zero.
pub const fn first_number(generation: u64) -> u64 {
    generation.saturating_sub(1).saturating_mul(NUMBERS_PER_GENERATION)
}

/// Numbers reserved at the end of a generation, for any beginning: 300 years, at ten changes a second.
const NUMBERS_LEFT: u64 = NUMBERS_PER_GENERATION / 10;

/// Returns the number from which this generation counts. Two generations of the same number, recovered from two states,
/// begin where their keys place them, so far apart that neither reaches numbers of the other.
pub fn begins_at(generation: u64, key: GenerationKey) -> u64 {
    let room = u128::from(NUMBERS_PER_GENERATION - NUMBERS_LEFT);
    let place = u64::try_from(key.get().as_u128() % room).unwrap_or(0);
    first_number(generation).saturating_add(place)
}

/// Returns the generation of a number.
pub const fn generation_of(number: u64) -> u64 {
    number / NUMBERS_PER_GENERATION + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_of_one_number_begin_at_different_numbers() {
        let of = |key: u128| begins_at(2, GenerationKey::new(uuid::Uuid::from_u128(key)));
        assert_eq!(begins_at(2, GenerationKey::NIL), first_number(2));
        assert_ne!(of(1), of(2));
        assert!(
            generation_of(of(u128::MAX).saturating_add(NUMBERS_LEFT - 1)) == 2,
            "it ends before the next one begins"
        );
    }

    #[test]
    fn every_number_identifies_its_generation() {
        for generation in [1, 2, 3, GENERATIONS_MAX] {
            assert_eq!(generation_of(first_number(generation)), generation);
            assert_eq!(generation_of(first_number(generation + 1) - 1), generation);
        }
        assert!(first_number(GENERATIONS_MAX + 1) < 1 << 53, "JSON's numbers end there");
    }
}
