//! Facts kept for the node's next start: the coordinators, as all the configured ones may have been replaced since; and
//! the highest version received, by which recovered coordinators see what they lack.

use crate::node::config::NodeConfig;
use crate::tables::Tables;
use archon_types::Version;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::time::Duration;

const FILE: &str = "coordinators.json";
/// Interval of checks for changes.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Far more than the addresses of a quorum take.
const BYTES_MAX: u64 = 64 * 1024;

/// The stored facts.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PeerCache {
    /// The coordinators configured at that time.
    pub(crate) named: Vec<String>,
    /// The coordinators' own list of their addresses.
    pub(crate) coordinators: Vec<String>,
    /// The highest version that the node received.
    pub(crate) told: Version,
}

impl PeerCache {
    /// Returns the addresses to ask first: the known coordinators, or the configured ones if the configuration has
    /// changed.
    pub(crate) fn first_asked(&self, named: &[String]) -> Vec<String> {
        let known = self.named == named && !self.coordinators.is_empty();
        if known { self.coordinators.clone() } else { named.to_vec() }
    }

    /// Returns the facts of the last run; none if they cannot be read, so that the configured coordinators are asked.
    /// Blocks.
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

/// Stores the facts whenever they change; never ends.
pub(super) async fn keep(config: &NodeConfig, tables: &Tables) {
    let path = config.data_dir.join(FILE);
    let (mut kept, mut warned) = (PeerCache::default(), false);
    loop {
        let (named, told) = (config.coordinators.clone(), tables.told());
        let known = PeerCache { named, coordinators: tables.coordinators(), told };
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
    fn changed_configuration_overrides_known_coordinators() {
        let (named, known) = (vec!["127.0.0.1:3".to_owned()], vec!["127.0.0.1:1".to_owned()]);
        let kept = PeerCache { named: named.clone(), coordinators: known.clone(), told: Version::ZERO };
        assert_eq!(kept.first_asked(&named), known, "those may all be gone");
        let others = ["127.0.0.1:4".to_owned()];
        assert_eq!(kept.first_asked(&others), others);
        assert_eq!(PeerCache::default().first_asked(&others), others);
    }

    #[test]
    fn unreadable_file_counts_as_missing() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(PeerCache::read(dir.path()), PeerCache::default());
        let coordinators = vec!["127.0.0.1:1".to_owned(), "127.0.0.1:2".to_owned()];
        let kept = PeerCache { named: vec!["127.0.0.1:3".into()], coordinators, told: Version::new(7) };
        std::fs::write(dir.path().join(FILE), serde_json::to_vec(&kept).unwrap()).unwrap();
        assert_eq!(PeerCache::read(dir.path()), kept);
        for bad in ["", "{}", "[\"127.0.0.1:1\"]", &" ".repeat(70_000)] {
            std::fs::write(dir.path().join(FILE), bad).unwrap();
            assert_eq!(PeerCache::read(dir.path()), PeerCache::default(), "{bad:.10}");
        }
    }
}
