//! The coordinators as a node heard of them last, kept for its next start: those that its operator named may all have been
//! replaced since.

use crate::shared::Shared;
use std::io;
use std::path::Path;
use std::time::Duration;

const FILE: &str = "coordinators.json";
/// How often it is looked whether others are named: they change rarely.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Far more than the addresses of a quorum take.
const BYTES_MAX: u64 = 64 * 1024;

/// Those that are kept; none where nothing is, or nothing that can be read: those that were named are asked then. Blocks.
pub(crate) fn read(data_dir: &Path) -> Vec<String> {
    let path = data_dir.join(FILE);
    if std::fs::metadata(&path).is_ok_and(|file| file.len() > BYTES_MAX) {
        tracing::warn!(path = %path.display(), "it holds more than addresses of coordinators, and is left alone");
        return Vec::new();
    }
    let read = std::fs::read(&path).and_then(|bytes| serde_json::from_slice(&bytes).map_err(io::Error::from));
    read.unwrap_or_else(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            tracing::warn!(%error, path = %path.display(), "the coordinators of the last run are not known");
        }
        Vec::new()
    })
}

/// Keeps them whenever others are named; never ends.
pub(super) async fn keep(shared: &Shared) {
    let path = shared.config.data_dir.join(FILE);
    let mut kept = read(&shared.config.data_dir);
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let known = shared.tables.coordinators();
        if known == kept {
            continue;
        }
        let (path, contents) = (path.clone(), known.clone());
        let written = tokio::task::spawn_blocking(move || {
            let contents = serde_json::to_vec_pretty(&contents).map_err(io::Error::other)?;
            archon_durable::replace(&path, &contents)
        });
        match written.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the coordinators are not kept for the next start"),
            Err(error) => tracing::error!(%error, "keeping the coordinators failed"),
        }
        kept = known;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_as_if_nothing_was_kept() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()), Vec::<String>::new());
        std::fs::write(dir.path().join(FILE), "[\"127.0.0.1:1\", \"127.0.0.1:2\"]").unwrap();
        assert_eq!(read(dir.path()), ["127.0.0.1:1", "127.0.0.1:2"]);
        for bad in ["", "{}", "[1]", &" ".repeat(70_000)] {
            std::fs::write(dir.path().join(FILE), bad).unwrap();
            assert_eq!(read(dir.path()), Vec::<String>::new(), "{bad:.10}");
        }
    }
}
