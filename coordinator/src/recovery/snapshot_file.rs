//! Snapshot files: the whole state of the coordinators, from which a new generation can begin (`recovery`).

use crate::identity::IdentityError;
use crate::recovery::{RecoverError, Survivor, SurvivorSummary};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// A snapshot file that is being written. It has a temporary name until it was read back and found complete; a drop
/// before that removes it.
#[derive(Debug)]
pub struct SnapshotFile {
    path: PathBuf,
    temporary: PathBuf,
    file: File,
}

impl SnapshotFile {
    /// Creates the file under its temporary name. Blocks.
    ///
    /// # Errors
    /// [`RecoverError::Taken`] if the path exists; [`RecoverError::Unwritable`].
    pub fn create(path: &Path) -> Result<Self, RecoverError> {
        if path.exists() {
            return Err(RecoverError::Taken { path: path.to_path_buf() });
        }
        let temporary = archon_durable::temporary_path(path);
        let file = archon_durable::create_fresh(&temporary);
        let file = file.map_err(|source| unwritable(path, "create", source))?;
        Ok(Self { path: path.to_path_buf(), temporary, file })
    }

    /// Adds bytes. Blocks.
    ///
    /// # Errors
    /// [`RecoverError::Unwritable`]
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), RecoverError> {
        self.file.write_all(bytes).map_err(|source| unwritable(&self.path, "write", source))
    }

    /// Checks the file and gives it its name, durably. Blocks.
    ///
    /// # Errors
    /// [`RecoverError`]
    pub fn finish(self) -> Result<SurvivorSummary, RecoverError> {
        self.file.sync_all().map_err(|source| unwritable(&self.path, "sync", source))?;
        let summary = Survivor::read_file(&self.temporary)?.summary();
        let renamed = archon_durable::rename(&self.temporary, &self.path);
        renamed.map_err(|source| unwritable(&self.path, "rename", source))?;
        Ok(summary)
    }
}

impl Drop for SnapshotFile {
    fn drop(&mut self) {
        // A finished file has no temporary name any longer.
        let _ = fs::remove_file(&self.temporary);
    }
}

fn unwritable(path: &Path, action: &'static str, source: io::Error) -> RecoverError {
    let why = IdentityError::Io { action, path: path.to_path_buf(), source };
    RecoverError::Unwritable { into: path.to_path_buf(), why: why.into() }
}
