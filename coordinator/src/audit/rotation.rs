//! When a file is full, and which names take which places then.

use std::path::{Path, PathBuf};

/// How much is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rotation {
    /// Bytes of a file, above which another one is begun.
    pub(crate) bytes_max: u64,
    /// Full files that are kept beside the one that is written.
    pub(crate) kept: usize,
}

impl Default for Rotation {
    fn default() -> Self {
        Self { bytes_max: 16 << 20, kept: 8 }
    }
}

impl Rotation {
    /// Whether a file of so many bytes is full for a line of so many more. One that is empty takes any line.
    pub(crate) const fn is_full(self, length: u64, line: u64) -> bool {
        length > 0 && length.saturating_add(line) > self.bytes_max
    }

    /// Which places move up by one, in the order in which they do, so that place 0 is free then. `is_taken` says which hold a file.
    /// Nothing is lost when it is broken off and begun again: a free place ends it.
    pub(crate) fn moves(self, is_taken: impl Fn(usize) -> bool) -> impl Iterator<Item = (usize, usize)> {
        let free = (1..self.kept).find(|place| !is_taken(*place)).unwrap_or(self.kept);
        (0..free).rev().map(|place| (place, place + 1))
    }
}

/// The file at a place: `audit.jsonl`, `audit.jsonl.1`, and so on.
pub(crate) fn path_of(current: &Path, place: usize) -> PathBuf {
    if place == 0 {
        return current.to_path_buf();
    }
    let mut name = current.as_os_str().to_owned();
    name.push(format!(".{place}"));
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREE: Rotation = Rotation { bytes_max: 100, kept: 3 };

    fn moves(taken: &[usize]) -> Vec<(usize, usize)> {
        THREE.moves(|place| taken.contains(&place)).collect()
    }

    #[test]
    fn a_file_is_full_when_the_next_line_does_not_fit() {
        assert!(!THREE.is_full(60, 40));
        assert!(THREE.is_full(61, 40));
        assert!(!THREE.is_full(0, 400), "a line that is too long has a file of its own");
    }

    #[test]
    fn the_oldest_goes_and_what_was_broken_off_loses_nothing() {
        assert_eq!(moves(&[0]), [(0, 1)]);
        assert_eq!(moves(&[0, 1]), [(1, 2), (0, 1)]);
        assert_eq!(moves(&[0, 1, 2, 3]), [(2, 3), (1, 2), (0, 1)]);
        assert_eq!(moves(&[0, 2, 3]), [(0, 1)], "it was broken off after the second step");
        let one = Rotation { kept: 1, ..THREE };
        assert_eq!(one.moves(|_| true).collect::<Vec<_>>(), [(0, 1)]);
    }

    #[test]
    fn files_are_numbered_by_age() {
        let current = Path::new("/data/audit.jsonl");
        assert_eq!(
            [0, 1, 8].map(|place| path_of(current, place)),
            [PathBuf::from("/data/audit.jsonl"), "/data/audit.jsonl.1".into(), "/data/audit.jsonl.8".into()]
        );
    }
}
