//! Files and directories that are there after a power failure, and that nobody but their user reads.
//!
//! What a file holds and the name under which it is found are made durable apart from each other: the one by a sync of the
//! file, the other by a sync of its directory, whose own name is a matter of the directory above. Whoever relies on a file
//! relies on all of them. This is the one place where that is seen to for everything that is not the write-ahead log's own.
//!
//! Directories are made with mode 0700 and files with 0600, whatever the umask allows beyond that: data, and ids that
//! others take for proof, are nobody else's business.

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

/// Options that make files of mode 0600; otherwise as new ones.
pub fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE);
    options
}

/// Where [`replace`] puts what is to take a file's place: the same name with `.tmp` behind it.
pub fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    name.into()
}

/// Creates a file of mode 0600 that no other process has open. A file or link of this name, such as a crash leaves or another user
/// plants, is removed, not followed.
///
/// # Errors
/// Those of the file system; `AlreadyExists` if another process makes one of this name at the same time.
pub fn create_fresh(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // O_EXCL, which follows no link.
    private().write(true).create_new(true).open(path)
}

/// Gives a file new contents, or makes it: a crash leaves the old ones or the new ones, and once this returns, the new ones.
///
/// # Errors
/// Those of the file system. The old contents stand then, unless it was the last step that failed.
pub fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let temporary = temporary_path(path);
    let mut file = create_fresh(&temporary)?;
    file.write_all(contents)?;
    file.sync_all()?;
    rename(&temporary, path)
}

/// Renames a file or directory durably. Both names are in one directory; what the file holds is its writer's business.
///
/// # Errors
/// Those of the file system.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync_directory(parent_of(to))
}

/// Makes the names in a directory durable.
///
/// # Errors
/// Those of the file system.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// The directory that a name is in.
pub fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) => Path::new("."),
        // The root is its own.
        None => path,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn others_could_read_what_was_stored() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("identity");
        replace(&path, b"old").unwrap();
        // One that an earlier version made.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    /// A user who may write to the directory could keep the file open, or lead the contents elsewhere.
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
    fn every_name_is_in_a_directory() {
        for (path, parent) in [("a/b", "a"), ("/a", "/"), ("a", "."), ("/", "/")] {
            assert_eq!(parent_of(Path::new(path)), Path::new(parent), "{path}");
        }
    }
}
