//! Files and directories that survive a power failure and are readable only by their user.
//!
//! The content of a file and its name become durable separately: the content by a sync of the file, the name by a
//! sync of its directory, which in turn needs a durable name in its parent. A file is durable only if all of these are.
//! This crate ensures that for everything except the write-ahead log.
//!
//! Directories have mode 0700 and files 0600, even if the umask allows more: other users must not read data, or ids
//! that serve as proof.

mod directory;
mod lock;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

pub use directory::create_directory;
pub use lock::{LOCK_FILE, Lock, LockError};

/// Mode of files.
const FILE_MODE: u32 = 0o600;

/// Returns options that create files with mode 0600; otherwise the defaults.
pub fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE);
    options
}

/// Returns the temporary path that [`replace`] uses: the name with `.tmp` appended.
pub fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    name.into()
}

/// Creates a file of mode 0600 that no other process has open. An existing file or link of this name, left by a crash
/// or planted by another user, is removed and not followed.
///
/// # Errors
/// Errors of the file system; `AlreadyExists` if another process creates the file at the same time.
pub fn create_fresh(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // O_EXCL follows no link.
    private().write(true).create_new(true).open(path)
}

/// Replaces or creates a file: after a crash it has either the old or the new content; once this returns, the new
/// one.
///
/// # Errors
/// Errors of the file system. The old content remains, unless the last step failed.
pub fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let temporary = temporary_path(path);
    let mut file = create_fresh(&temporary)?;
    file.write_all(contents)?;
    file.sync_all()?;
    rename(&temporary, path)
}

/// Renames a file or directory durably, within one directory. The content must be durable already.
///
/// # Errors
/// Errors of the file system.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync_directory(parent_of(to))
}

/// Makes the names in a directory durable.
///
/// # Errors
/// Errors of the file system.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Returns the directory that holds a name.
pub fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) => Path::new("."),
        // The root is its own parent.
        None => path,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn replaced_file_is_readable_by_owner_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("identity");
        replace(&path, b"old").unwrap();
        // A file of an earlier version.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    /// Otherwise a user with write access to the directory can keep the file open, or redirect the content.
    #[test]
    fn planted_temporary_file_is_not_written_to() {
        let directory = tempfile::tempdir().unwrap();
        let (key, victim) = (directory.path().join("tls.key"), directory.path().join("victim"));
        fs::write(&victim, "unchanged").unwrap();
        std::os::unix::fs::symlink(&victim, temporary_path(&key)).unwrap();
        replace(&key, b"secret").unwrap();
        assert_eq!((fs::read(&key).unwrap(), fs::read(&victim).unwrap()), (b"secret".into(), b"unchanged".into()));
        assert!(fs::symlink_metadata(&key).unwrap().is_file());
        let planted = File::create(temporary_path(&key)).unwrap();
        planted.set_permissions(fs::Permissions::from_mode(0o666)).unwrap();
        replace(&key, b"another secret").unwrap();
        assert_eq!(planted.metadata().unwrap().len(), 0);
        assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn parent_of_covers_relative_and_root_paths() {
        for (path, parent) in [("a/b", "a"), ("/a", "/"), ("a", "."), ("/", "/")] {
            assert_eq!(parent_of(Path::new(path)), Path::new(parent), "{path}");
        }
    }
}
