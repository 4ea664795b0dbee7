//! What a node was told last, kept for its next start: the coordinators, for those that its operator named may all have been replaced
//! since; and up to which version it was told of anything, by which coordinators that are recovered see what they lack.

use crate::shared::Shared;
use archon_types::Version;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::time::Duration;

const FILE: &str = "coordinators.json";
/// How often it is looked whether anything else was told.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Far more than the addresses of a quorum take.
const BYTES_MAX: u64 = 64 * 1024;

/// What is kept.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Remembered {
    /// The coordinators that the operator named then.
    pub(crate) named: Vec<String>,
    /// Where the coordinators are, as these told.
    pub(crate) coordinators: Vec<String>,
    /// The highest version that the node was told of.
    pub(crate) told: Version,
}

impl Remembered {
    /// Whom to ask first: those that are known, whom the operator's own follow; but these alone if others are named than before.
    pub(crate) fn first_asked(&self, named: &[String]) -> Vec<String> {
        let known = self.named == named && !self.coordinators.is_empty();
        if known { self.coordinators.clone() } else { named.to_vec() }
    }

    /// What the last run kept; nothing where that cannot be read: those that were named are asked then. Blocks.
    pub(crate) fn read(data_dir: &Path) -> Self {
        let path = data_dir.join(FILE);
        if std::fs::metadata(&path).is_ok_and(|file| file.len() > BYTES_MAX) {
            tracing::warn!(path = %path.display(), "it holds more than addresses of coordinators, and is left alone");
            return Self::default();
        }
        let read = std::fs::read(&path).and_then(|bytes| serde_json::from_slice(&bytes).map_err(io::Error::from));
        read.unwrap_or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!(%error, path = %path.display(), "the coordinators of the last run are not known");
            }
            Self::default()
        })
    }
}

/// Keeps it whenever anything else was told; never ends.
pub(super) async fn keep(shared: &Shared) {
    let path = shared.config.data_dir.join(FILE);
    let (mut kept, mut warned) = (Remembered::default(), false);
    loop {
        let (named, told) = (shared.config.coordinators.clone(), shared.tables.told());
        let known = Remembered { named, coordinators: shared.tables.coordinators(), told };
        if known != kept {
            let (path, contents) = (path.clone(), known.clone());
            let written = tokio::task::spawn_blocking(move || {
                let contents = serde_json::to_vec_pretty(&contents).map_err(io::Error::other)?;
                archon_durable::replace(&path, &contents)
            });
            match written.await.map_err(io::Error::other).flatten() {
                Ok(()) => (kept, warned) = (known, false),
                Err(error) if std::mem::replace(&mut warned, true) => tracing::debug!(%error, "still not written"),
                Err(error) => {
                    tracing::warn!(%error, "the addresses of the coordinators are not written for the next start yet; retrying");
                }
            }
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_another_cluster_was_taken_to_its_own_though_others_were_named() {
        let (named, known) = (vec!["127.0.0.1:3".to_owned()], vec!["127.0.0.1:1".to_owned()]);
        let kept = Remembered { named: named.clone(), coordinators: known.clone(), told: Version::ZERO };
        assert_eq!(kept.first_asked(&named), known, "those may all be gone");
        let others = ["127.0.0.1:4".to_owned()];
        assert_eq!(kept.first_asked(&others), others);
        assert_eq!(Remembered::default().first_asked(&others), others);
    }

    #[test]
    fn what_cannot_be_read_is_as_if_nothing_was_kept() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Remembered::read(dir.path()), Remembered::default());
        let coordinators = vec!["127.0.0.1:1".to_owned(), "127.0.0.1:2".to_owned()];
        let kept = Remembered { named: vec!["127.0.0.1:3".into()], coordinators, told: Version::new(7) };
        std::fs::write(dir.path().join(FILE), serde_json::to_vec(&kept).unwrap()).unwrap();
        assert_eq!(Remembered::read(dir.path()), kept);
        for bad in ["", "{}", "[\"127.0.0.1:1\"]", &" ".repeat(70_000)] {
            std::fs::write(dir.path().join(FILE), bad).unwrap();
            assert_eq!(Remembered::read(dir.path()), Remembered::default(), "{bad:.10}");
        }
    }
}
