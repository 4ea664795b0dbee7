//! Data directory: existence, write access and privacy.

use crate::documents::{Finding, FindingCode};
use rustix::process::geteuid;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Observations of a directory.
#[derive(Debug)]
pub(super) struct DirectoryState {
    /// Metadata; `None` if it does not exist yet.
    there: Option<PathMetadata>,
    /// Directory for the test file while it does not exist.
    place: PathBuf,
    /// User of this process.
    user: u32,
    /// Result of creating a file in it, or in its nearest existing parent.
    written: io::Result<()>,
}

#[derive(Clone, Copy, Debug)]
struct PathMetadata {
    is_directory: bool,
    mode: u32,
    owner: u32,
}

/// Returns the directory itself, or its nearest existing ancestor.
pub(super) fn place(directory: &Path) -> PathBuf {
    let named = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let there = named.ancestors().find(|path| path.is_dir());
    // The parent of a relative `data` is the empty path.
    there.filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

/// Reads a directory, and creates an unnamed file in it for a moment.
pub(super) fn read(directory: &Path, place: &Path) -> DirectoryState {
    let of = |found: Metadata| PathMetadata {
        is_directory: found.is_dir(),
        mode: found.permissions().mode() & 0o7777,
        owner: found.uid(),
    };
    DirectoryState {
        there: directory.metadata().ok().map(of),
        place: place.to_owned(),
        user: geteuid().as_raw(),
        written: tempfile::tempfile_in(place).map(drop),
    }
}

/// Judges the directory.
pub(super) fn judge(about: &str, reading: &DirectoryState) -> Finding {
    const CODE: FindingCode = FindingCode::Directory;
    let place = reading.place.display();
    if reading.there.is_some_and(|there| !there.is_directory) {
        return Finding::error(CODE, about, "it is not a directory", "name a directory by --data-dir");
    }
    if let Err(error) = &reading.written {
        let remedy = match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem => {
                "mount the file system writable, or name a directory on another one by --data-dir"
            }
            io::ErrorKind::StorageFull => "free space on that file system",
            _ => {
                "run this command as the user of the coordinators and nodes; if you did, give that user the directory: \
                 `chown`, and `chmod 700`"
            }
        };
        return Finding::error(CODE, about, format!("cannot create a file in {place}: {error}"), remedy);
    }
    match reading.there {
        None => Finding::ok(CODE, about, format!("it does not exist yet, and can be created in {place}")),
        Some(there) if there.owner != reading.user => {
            let message = format!("it belongs to user {}, and this command runs as user {}", there.owner, reading.user);
            let remedy = "run this command as the user of the coordinators and nodes";
            Finding::warning(CODE, about, message, remedy)
        }
        Some(there) if there.mode & 0o1000 != 0 => {
            let message = format!("it is a shared directory (mode {:o})", there.mode);
            Finding::warning(
                CODE,
                about,
                message,
                format!(
                    "give a separate directory with --data-dir, such as \
                                                            {about}/archon"
                ),
            )
        }
        Some(there) if there.mode & 0o002 != 0 => {
            let message = format!("every user may write to it (mode {:o})", there.mode);
            Finding::error(CODE, about, message, format!("chmod 700 {about}"))
        }
        Some(there) if there.mode & 0o077 != 0 => {
            let message = format!("other users may read it (mode {:o})", there.mode);
            Finding::warning(CODE, about, message, format!("chmod 700 {about}"))
        }
        Some(there) => Finding::ok(CODE, about, format!("it is writable and private (mode {:o})", there.mode)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::Verdict;

    fn reading(there: Option<PathMetadata>, written: io::Result<()>) -> DirectoryState {
        DirectoryState { there, place: "/data".into(), user: 100, written }
    }

    const PRIVATE: PathMetadata = PathMetadata { is_directory: true, mode: 0o700, owner: 100 };

    #[test]
    fn readable_by_others_is_a_warning_and_unwritable_an_error() {
        let judged = |there, written| judge("/data", &reading(there, written)).verdict;
        assert_eq!(judged(Some(PRIVATE), Ok(())), Verdict::Ok);
        assert_eq!(judged(None, Ok(())), Verdict::Ok);
        assert_eq!(judged(Some(PathMetadata { mode: 0o755, ..PRIVATE }), Ok(())), Verdict::Warning);
        assert_eq!(
            judged(Some(PathMetadata { mode: 0o777, ..PRIVATE }), Ok(())),
            Verdict::Error,
            "everybody could put files there"
        );
        assert_eq!(judged(Some(PathMetadata { owner: 0, ..PRIVATE }), Ok(())), Verdict::Warning);
        let everybodys = judge("/tmp", &reading(Some(PathMetadata { mode: 0o1777, ..PRIVATE }), Ok(())));
        assert!(!everybodys.remedy.unwrap().contains("chmod"), "/tmp must stay as it is");
        assert_eq!(judged(Some(PathMetadata { is_directory: false, ..PRIVATE }), Ok(())), Verdict::Error);
        assert_eq!(judged(Some(PRIVATE), Err(io::ErrorKind::PermissionDenied.into())), Verdict::Error);
        let read_only = judge("/data", &reading(Some(PRIVATE), Err(io::ErrorKind::ReadOnlyFilesystem.into())));
        assert!(read_only.remedy.unwrap().contains("mount"), "{}", read_only.message);
    }

    #[test]
    fn missing_directory_is_checked_at_its_ancestor() {
        let directory = tempfile::tempdir().unwrap();
        let deep = directory.path().join("a/b/c");
        assert_eq!(place(&deep), directory.path());
        assert_eq!(place(directory.path()), directory.path());
        assert_eq!((place(Path::new("not-there/b")), place(Path::new(""))), (".".into(), ".".into()));
        assert_eq!(judge("d", &read(&deep, &place(&deep))).verdict, Verdict::Ok);
    }
}
