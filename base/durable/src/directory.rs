//! Durable creation of directories.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

use crate::{parent_of, sync_directory};

/// Mode of directories.
const MODE: u32 = 0o700;
/// Mode bits for other users than the owner.
const OTHERS: u32 = 0o077;

/// File-system operations of directory creation. A trait, so that a test can interrupt them between two calls and
/// drop unsynced names.
trait Directories {
    fn is_there(&self, path: &Path) -> bool;
    fn make(&self, path: &Path) -> io::Result<()>;
    fn sync(&self, path: &Path) -> io::Result<()>;
}

struct RealDirectory;

impl Directories for RealDirectory {
    fn is_there(&self, path: &Path) -> bool {
        path.is_dir()
    }

    fn make(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new().mode(MODE).create(path)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        sync_directory(path)
    }
}

/// Creates a directory durably, for its user only. Missing parents are created in the same way; existing ones do not
/// change. If the directory itself exists, the permissions of other users are removed; if that fails because another
/// user owns it, it stays unchanged, with a warning.
///
/// # Errors
/// Errors of the file system.
pub fn create_directory(path: &Path) -> io::Result<()> {
    create(&RealDirectory, path)?;
    let mode = fs::metadata(path)?.permissions().mode();
    if mode & OTHERS != 0 {
        let directory = path.display();
        match fs::set_permissions(path, Permissions::from_mode(mode & !OTHERS & 0o7777)) {
            Ok(()) => tracing::info!(%directory, "others could enter the directory; now only its owner can"),
            Err(error) => tracing::warn!(%error, %directory, mode = format!("{:o}", mode & 0o7777),
                "others can enter the directory, and this process may not change that"),
        }
    }
    Ok(())
}

/// Makes each directory durable in its parent before the next one is created in it. So of the existing directories
/// only the innermost can lack its durable name, if its creator was killed at that moment.
fn create(directories: &impl Directories, path: &Path) -> io::Result<()> {
    let mut missing = Vec::new();
    let mut there = path;
    while !directories.is_there(there) {
        missing.push(there);
        let parent = parent_of(there);
        if parent == there {
            break;
        }
        there = parent;
    }
    match directories.sync(parent_of(there)) {
        // A user without read access has not created anything in it.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        synced => synced?,
    }
    for path in missing.into_iter().rev() {
        match directories.make(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directories.is_there(path) => {}
            made => made?,
        }
        directories.sync(parent_of(path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    /// Directories in memory, some with durable names. Fails after a number of calls, as if killed.
    #[derive(Clone, Default)]
    struct Memory {
        there: RefCell<BTreeSet<PathBuf>>,
        durable: RefCell<BTreeSet<PathBuf>>,
        calls_left: RefCell<usize>,
    }

    impl Memory {
        fn call(&self) -> io::Result<()> {
            let mut left = self.calls_left.borrow_mut();
            *left = left.checked_sub(1).ok_or_else(|| io::Error::other("killed"))?;
            Ok(())
        }

        /// Returns the state after a power failure: unsynced names and everything below them are lost.
        fn lose_power(&self) -> BTreeSet<PathBuf> {
            let durable = self.durable.borrow();
            let reached =
                |path: &Path| path.ancestors().all(|above| above == Path::new("/") || durable.contains(above));
            self.there.borrow().iter().filter(|path| reached(path)).cloned().collect()
        }
    }

    impl Directories for Memory {
        fn is_there(&self, path: &Path) -> bool {
            path == Path::new("/") || self.there.borrow().contains(path)
        }

        fn make(&self, path: &Path) -> io::Result<()> {
            self.call()?;
            assert!(self.is_there(parent_of(path)), "{} has no parent", path.display());
            self.there.borrow_mut().insert(path.to_owned());
            Ok(())
        }

        fn sync(&self, path: &Path) -> io::Result<()> {
            self.call()?;
            let there = self.there.borrow();
            self.durable.borrow_mut().extend(there.iter().filter(|name| parent_of(name) == path).cloned());
            Ok(())
        }
    }

    #[test]
    fn directory_of_killed_start_survives_power_failure() {
        let path = Path::new("/var/lib/archon/c1");
        for calls in 0..12 {
            let disk = Memory { calls_left: RefCell::new(calls), ..Memory::default() };
            let whole = create(&disk, path).is_ok();
            assert_eq!(whole, calls >= 9, "four are made and synced, and the root is looked after first");
            *disk.calls_left.borrow_mut() = usize::MAX;
            // The next start finds it partial or complete, and relies on it.
            create(&disk, path).unwrap();
            assert!(disk.lose_power().contains(path), "killed after {calls} calls");
        }
    }

    #[test]
    fn data_directory_excludes_other_users() {
        let root = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        let (above, data) = (root.path().join("above"), root.path().join("above/data"));
        create_directory(&data).unwrap();
        assert_eq!((mode(&above), mode(&data)), (0o700, 0o700));
        for path in [&above, &data] {
            fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        }
        create_directory(&data).unwrap();
        assert_eq!((mode(&above), mode(&data)), (0o755, 0o700), "what is above was there before and may be anybody's");
    }

    #[test]
    fn existing_file_fails_directory_creation() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("file");
        fs::write(&path, "").unwrap();
        assert_eq!(create_directory(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(create_directory(&path.join("below")).is_err());
    }
}
