//! Versions of the program, one per member during an upgrade.

use std::path::PathBuf;

/// A version of the program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Release {
    /// The program, if not the one under test.
    pub program: Option<PathBuf>,
    /// Newest protocol that it may speak.
    pub protocol_max: Option<u32>,
}

impl Release {
    /// Returns the program under test as an older version, limited to this protocol.
    pub fn speaking(protocol_max: u32) -> Self {
        Self { protocol_max: Some(protocol_max), ..Self::default() }
    }

    /// Returns the environment of a member of this version.
    pub(crate) fn environment(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.protocol_max.into_iter().map(|newest| ("ARCHON_PROTOCOL_MAX", newest.to_string()))
    }
}
