//! Rotation of full files.

use std::path::{Path, PathBuf};

/// Limits of the files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rotation {
    /// Bytes of a file, above which a new one starts.
    pub(crate) bytes_max: u64,
    /// Number of full files kept beside the present one.
    pub(crate) kept: usize,
}

impl Default for Rotation {
    fn default() -> Self {
        Self { bytes_max: 16 << 20, kept: 8 }
    }
}

impl Rotation {
    /// Returns true if a file of this length has no space for a line of this length. An empty one accepts any line.
    pub(crate) const fn is_full(self, length: u64, line: u64) -> bool {
        length > 0 && length.saturating_add(line) > self.bytes_max
    }

    /// Returns the places that move up by one, in order, so that place 0 becomes free. `is_taken` returns true for
    /// places with a file. An interrupted rotation loses nothing when it restarts: a free place ends it.
    pub(crate) fn moves(self, is_taken: impl Fn(usize) -> bool) -> impl Iterator<Item = (usize, usize)> {
        let free = (1..self.kept).find(|place| !is_taken(*place)).unwrap_or(self.kept);
        (0..free).rev().map(|place| (place, place + 1))
    }
}

/// Returns the file at a place: `audit.jsonl`, `audit.jsonl.1`, and so on.
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
    fn file_is_full_when_next_line_does_not_fit() {
        assert!(!THREE.is_full(60, 40));
        assert!(THREE.is_full(61, 40));
        assert!(!THREE.is_full(0, 400), "a line that is too long has a file of its own");
    }

    #[test]
    fn interrupted_rotation_loses_nothing() {
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
