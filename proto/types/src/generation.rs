//! Generations of the coordinators' state: each begins where a state was taken from a survivor or from a file instead of from a
//! majority of the quorum, and counts from numbers that no earlier one can have reached.

/// How far the numbers of two generations are apart: entries of the log, epochs, incarnations, and the numbers of nodes, tables
/// and copies. The log's index rises fastest: with ten changes of the cluster a second, day and night, it takes 3,000 years.
pub const NUMBERS_PER_GENERATION: u64 = 1_000_000_000_000;

/// The highest generation: its numbers are whole numbers in JSON.
pub const GENERATIONS_MAX: u64 = 9_000;

/// The number from which everything in a generation counts (PROTOCOL rule 60); the first one begins at zero.
pub const fn first_number(generation: u64) -> u64 {
    generation.saturating_sub(1).saturating_mul(NUMBERS_PER_GENERATION)
}

/// The generation in which a number was given.
pub const fn generation_of(number: u64) -> u64 {
    number / NUMBERS_PER_GENERATION + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_tells_its_generation() {
        for generation in [1, 2, 3, GENERATIONS_MAX] {
            assert_eq!(generation_of(first_number(generation)), generation);
            assert_eq!(generation_of(first_number(generation + 1) - 1), generation);
        }
        assert!(first_number(GENERATIONS_MAX + 1) < 1 << 53, "JSON's numbers end there");
    }
}
