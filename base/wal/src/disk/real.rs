//! A directory of the operating system.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Advice, fadvise, fstatvfs};

use super::direct::{DirectFile, DirectSupport};
use super::{Disk, DiskFile, DurableFile, WriteThenSync};

/// A real directory, created when it does not exist.
///
/// Small durable writes are direct (`O_DIRECT` with `RWF_DSYNC`: one call instead of two, and no copy) if the file
/// system supports that. All others go through the page cache and are followed by `fdatasync`.
#[derive(Debug)]
pub struct RealDisk {
    path: PathBuf,
    directory: File,
    direct_support: Arc<DirectSupport>,
}

impl RealDisk {
    /// Opens the directory, and creates it and missing parents durably. It is accessible only to its user.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn open(path: &Path) -> io::Result<RealDisk> {
        archon_durable::create_directory(path)?;
        Ok(RealDisk { path: path.to_path_buf(), directory: File::open(path)?, direct_support: Arc::default() })
    }

    /// As [`open`](RealDisk::open), but without direct writes: for comparison, and for tests of file systems without
    /// them.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn open_buffered(path: &Path) -> io::Result<RealDisk> {
        let disk = RealDisk::open(path)?;
        disk.direct_support.disable();
        Ok(disk)
    }
}

impl Disk for RealDisk {
    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            // The log uses only names in UTF-8.
            if let (true, Ok(name)) = (metadata.is_file(), entry.file_name().into_string()) {
                files.push((name, metadata.len()));
            }
        }
        Ok(files)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).open(self.path.join(name))?;
        Ok(Arc::new(RealFile(file)))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let path = self.path.join(name);
        let file = archon_durable::private().read(true).write(true).create_new(true).open(path)?;
        Ok(Arc::new(RealFile(file)))
    }

    fn open_durable(&self, name: &str) -> io::Result<Arc<dyn DurableFile>> {
        let direct = DirectFile::open(&self.path.join(name), &self.direct_support)?;
        Ok(match direct {
            Some(file) => Arc::new(file),
            None => Arc::new(WriteThenSync(self.open(name)?)),
        })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.directory.sync_all()
    }

    fn free_bytes(&self) -> Option<u64> {
        let found = fstatvfs(&self.directory).ok()?;
        Some(found.f_bavail.saturating_mul(found.f_frsize))
    }
}

#[derive(Debug)]
struct RealFile(File);

impl DiskFile for RealFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(into, offset)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn forget_copies(&self) {
        if let Err(error) = fadvise(&self.0, 0, None, Advice::DontNeed) {
            tracing::debug!(%error, "the system keeps its copy of a log segment");
        }
    }
}
