//! Versions of the program, of which members run one each while they are upgraded.

use std::path::PathBuf;

/// A version of the program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Release {
    /// The program, if not the one under test.
    pub program: Option<PathBuf>,
    /// The newest protocol that it is told to speak.
    pub protocol_max: Option<u32>,
}

impl Release {
    /// The program under test as an older version: one that speaks nothing newer than this.
    pub fn speaking(protocol_max: u32) -> Self {
        Self { protocol_max: Some(protocol_max), ..Self::default() }
    }

    /// What a member of this version is started with.
    pub(crate) fn environment(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.protocol_max.into_iter().map(|newest| ("ARCHON_PROTOCOL_MAX", newest.to_string()))
    }
}
