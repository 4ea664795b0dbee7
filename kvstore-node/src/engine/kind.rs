//! Kinds of engines.

use std::fmt;
use std::str::FromStr;

/// A storage engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EngineKind {
    /// sled 0.34, in one tree.
    Sled,
    /// The LSM tree of fjall, `lsm-tree` 3.1.
    #[default]
    Lsm,
}

impl EngineKind {
    /// Every engine.
    pub const ALL: [Self; 2] = [Self::Lsm, Self::Sled];

    /// Returns its name, as in flags and in the engine's directory.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sled => "sled",
            Self::Lsm => "lsm",
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name of no engine.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{found:?} is not an engine; use lsm or sled")]
pub struct UnknownEngine {
    found: String,
}

impl FromStr for EngineKind {
    type Err = UnknownEngine;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| UnknownEngine { found: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_names_parse_and_unknown_ones_list_engines() {
        for kind in EngineKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        let error = "rocksdb".parse::<EngineKind>().unwrap_err().to_string();
        assert!(EngineKind::ALL.iter().all(|kind| error.contains(kind.name())), "{error}");
    }
}
