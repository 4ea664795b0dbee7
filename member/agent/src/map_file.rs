//! File with the owners of a table, kept up to date for proxies.

mod envoy;
mod haproxy;
mod known_owners;
mod rendered_map;

use self::known_owners::KnownOwners;
use self::rendered_map::RenderedMap;
use crate::protocol::TableOwners;
use crate::routes::Routes;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// Pause after each write: changes meanwhile are written together.
const PAUSE: Duration = Duration::from_millis(100);
/// Pause after a failure.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// Format of a file with owners.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapFormat {
    /// `.json`: a response of Envoy's endpoint discovery (EDS).
    Envoy,
    /// `.map`: a map of HAProxy, with a line `PARTITION IP PORT` for each partition that is served.
    Haproxy,
}

impl MapFormat {
    /// Returns the format of a file by the end of its name, as the proxies find it.
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "json" => Some(Self::Envoy),
            "map" => Some(Self::Haproxy),
            _ => None,
        }
    }

    fn render(self, owners: &TableOwners) -> RenderedMap {
        match self {
            Self::Envoy => envoy::render(owners),
            Self::Haproxy => haproxy::render(owners),
        }
    }
}

/// A file to keep up to date.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapFile {
    /// Table with the owners.
    pub table: String,
    /// Path of the file.
    pub path: PathBuf,
    /// Format of the file.
    pub format: MapFormat,
}

/// Keeps a file up to date until it is dropped. While the coordinators do not answer, the file stays as it is.
pub(crate) async fn keep(routes: &Routes, file: &MapFile) {
    let mut warned = false;
    loop {
        match follow(routes, file, &mut warned).await {
            Ok(()) => tracing::warn!(table = file.table, "the table was dropped; its map is not updated"),
            Err(why) => warn(file, &why, &mut warned),
        }
        sleep(RETRY_EVERY).await;
    }
}

/// Logs why the file is not written, once as a warning.
fn warn(file: &MapFile, why: &str, warned: &mut bool) {
    match std::mem::replace(warned, true) {
        true => tracing::debug!(path = %file.path.display(), why, "the map is not written"),
        false => tracing::warn!(path = %file.path.display(), why, "the map is not written; trying again"),
    }
}

/// Writes the file after each change, until the table is dropped.
async fn follow(routes: &Routes, file: &MapFile, warned: &mut bool) -> Result<(), String> {
    let mut watch = routes.watch(&file.table).await.map_err(|error| error.message)?;
    let mut known = KnownOwners::default();
    loop {
        match known.read(&mut watch) {
            Ok(Some(owners)) => {
                update(file, owners).await?;
                *warned = false;
                sleep(PAUSE).await;
            }
            Ok(None) => {}
            Err(error) => warn(file, &error.to_string(), warned),
        }
        if !watch.changed().await {
            return Ok(());
        }
    }
}

/// Writes the file with these owners.
async fn update(file: &MapFile, owners: &TableOwners) -> Result<(), String> {
    let RenderedMap { text, skipped } = file.format.render(owners);
    // Heartbeats of the service do not wait for the disk.
    let path = file.path.clone();
    let written = spawn_blocking(move || write(&path, &text)).await.unwrap_or_else(|end| Err(io::Error::other(end)));
    written.map_err(|error| format!("{}: {error}", file.path.display()))?;
    for address in skipped {
        tracing::warn!(
            table = file.table,
            address,
            "the map leaves this address out: proxies resolve no names in it; give --address as IP:PORT"
        );
    }
    Ok(())
}

/// Replaces a file by renaming: a reader finds the former or the new content as a whole, and Envoy takes the rename for
/// the change.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".archon-map-").tempfile_in(parent)?;
    file.write_all(text.as_bytes())?;
    // The proxy is another user as a rule; owners of partitions are no secret on this machine.
    file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
    // A proxy that starts after a power cut finds no empty file.
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_follows_from_the_name() {
        let formats = ["a.json", "b.map", "c.txt", "map", ".json"].map(|name| MapFormat::of(Path::new(name)));
        assert_eq!(formats, [Some(MapFormat::Envoy), Some(MapFormat::Haproxy), None, None, None]);
    }

    #[test]
    fn file_is_replaced_as_a_whole_and_others_may_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("jobs.json");
        for version in ["1", "2"] {
            write(&path, version).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), version);
        }
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary file stays");
        assert!(write(&directory.path().join("no/jobs.json"), "").is_err());
    }
}
