//! Backup in a directory. Files are written under a temporary name and renamed.

use crate::error::BackupError;
use crate::manifest::MANIFEST;
use archon_durable::{Lock, LockError, create_directory, private, rename, replace, temporary_path};
use bytes::{Bytes, BytesMut};
use std::io;
use std::path::{Path, PathBuf};
use tokio::fs::{self, File};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Buffer size for reads and writes.
const BUFFER_BYTES: usize = 1024 * 1024;

/// A directory.
#[derive(Clone, Debug)]
pub(super) struct Directory {
    directory: PathBuf,
}

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct FileSink {
    path: PathBuf,
    file: Option<File>,
    gathered: BytesMut,
}

/// A file that is read sequentially.
#[derive(Debug)]
pub(crate) struct FileSource {
    path: PathBuf,
    file: File,
    ahead: BytesMut,
}

fn failed<'a>(path: &'a Path, what: &'static str) -> impl FnOnce(io::Error) -> BackupError + use<'a> {
    move |source| BackupError::Io { place: path.display().to_string(), what, source }
}

impl Directory {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Returns the place as it was named.
    pub(super) fn place(&self) -> String {
        self.directory.display().to_string()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Creates the place if it does not exist, and locks it.
    pub(super) async fn hold(&self) -> Result<Lock, BackupError> {
        let directory = self.directory.clone();
        blocking(move || {
            create_directory(&directory).map_err(failed(&directory, "the directory cannot be created"))?;
            Lock::take(&directory).map_err(|error| match error {
                LockError::Held { .. } => BackupError::Occupied {
                    place: directory.display().to_string(),
                    why: format!("it is {error}, which is running a backup there"),
                },
                LockError::Io { action, source } => failed(&directory, action)(source),
            })
        })
        .await
    }

    /// Creates folders that do not exist.
    pub(super) async fn make(&self, folders: &[&str]) -> Result<(), BackupError> {
        let folders: Vec<PathBuf> = folders.iter().map(|folder| self.path(folder)).collect();
        blocking(move || {
            folders.iter().try_for_each(|folder| {
                create_directory(folder).map_err(failed(
                    folder,
                    "the directory cannot be \
                                                                                        created",
                ))
            })
        })
        .await
    }

    /// Returns the length of a file; `None` if it does not exist.
    pub(super) async fn length(&self, name: &str) -> Result<Option<u64>, BackupError> {
        let path = self.path(name);
        match fs::metadata(&path).await {
            Ok(found) => Ok(Some(found.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                let place = self.place();
                let of = self.directory.parent().filter(|_| self.directory.ends_with(MANIFEST));
                let meant = of.map_or_else(String::new, |of| format!(", here {}", of.display()));
                let what =
                    format!("{place} is a file, or below one, and a backup is a directory: name the directory{meant}");
                Err(BackupError::Usage(what))
            }
            Err(error) => Err(failed(&path, "the file cannot be read")(error)),
        }
    }

    /// Returns the nearest parent directory that holds one of these files and this folder.
    pub(super) async fn enclosing(&self, files: &[&str], folder: &str) -> Result<Option<String>, BackupError> {
        let absolute = std::path::absolute(&self.directory);
        let absolute = absolute.map_err(failed(&self.directory, "the directory cannot be found"))?;
        for above in absolute.ancestors().skip(1) {
            // An inaccessible directory is not a backup of ours.
            let mut found = false;
            for file in files {
                found |= fs::try_exists(above.join(file)).await.unwrap_or(false);
            }
            if found && fs::try_exists(above.join(folder)).await.unwrap_or(false) {
                return Ok(Some(above.display().to_string()));
            }
        }
        Ok(None)
    }

    /// Returns the names in a folder (with trailing `/`, or empty for the top level), in order.
    pub(super) async fn list(&self, folder: &str) -> Result<Vec<String>, BackupError> {
        let path = self.path(folder);
        let mut entries = match fs::read_dir(&path).await {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(&path, "the directory cannot be read")(error)),
        };
        let mut names = Vec::new();
        while let Some(entry) = entries.next_entry().await.map_err(failed(&path, "the directory cannot be read"))? {
            names.push(format!("{folder}{}", entry.file_name().to_string_lossy()));
        }
        names.sort();
        Ok(names)
    }

    /// Reads a whole file.
    pub(super) async fn read(&self, name: &str) -> Result<Bytes, BackupError> {
        let path = self.path(name);
        Ok(fs::read(&path).await.map_err(failed(&path, "the file cannot be read"))?.into())
    }

    /// Writes a whole file; replaces an existing one.
    pub(super) async fn write(&self, name: &str, bytes: Bytes) -> Result<(), BackupError> {
        let path = self.path(name);
        blocking(move || replace(&path, &bytes).map_err(failed(&path, "the file cannot be written"))).await
    }

    /// Deletes a file if it exists.
    pub(super) async fn delete(&self, name: &str) -> Result<(), BackupError> {
        let path = self.path(name);
        match fs::remove_file(&path).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed(&path, "the file cannot be deleted")(error))
            }
            _ => Ok(()),
        }
    }

    /// Deletes an empty folder if it exists.
    pub(super) async fn delete_folder(&self, folder: &str) {
        // A folder with content stays; a remaining empty one is harmless.
        let _ = fs::remove_dir(self.path(folder)).await;
    }

    /// Makes an immutable file of another place available here: as a hard link, or copied if that is not possible.
    pub(super) async fn take_over(&self, from: &Self, name: &str, as_name: &str) -> Result<(), BackupError> {
        let (source, path) = (from.path(name), self.path(as_name));
        blocking(move || {
            let temporary = temporary_path(&path);
            let linked = std::fs::hard_link(&source, &temporary);
            if linked.is_err() {
                let copied = std::fs::copy(&source, &temporary);
                copied.map_err(failed(&temporary, "the file cannot be created"))?;
                let synced = std::fs::File::open(&temporary).and_then(|file| file.sync_all());
                synced.map_err(failed(&temporary, "the file cannot be brought to the disk"))?;
            }
            rename(&temporary, &path).map_err(failed(&path, "the file cannot be brought to the disk"))
        })
        .await
    }

    /// Creates a file, which appears once [`FileSink::finish`] succeeds.
    pub(super) async fn create(&self, name: &str) -> Result<FileSink, BackupError> {
        let path = self.path(name);
        let temporary = temporary_path(&path);
        let mut options = private();
        options.write(true).create(true).truncate(true);
        let file = tokio::fs::OpenOptions::from(options).open(&temporary).await;
        let file = file.map_err(failed(&temporary, "the file cannot be created"))?;
        Ok(FileSink { path, file: Some(file), gathered: BytesMut::with_capacity(BUFFER_BYTES) })
    }

    /// Opens a file; `None` if it does not exist.
    pub(super) async fn open(&self, name: &str) -> Result<Option<FileSource>, BackupError> {
        let path = self.path(name);
        match File::open(&path).await {
            Ok(file) => Ok(Some(FileSource { path, file, ahead: BytesMut::with_capacity(BUFFER_BYTES) })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&path, "the file cannot be read")(error)),
        }
    }
}

impl FileSink {
    /// Appends bytes.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), BackupError> {
        self.gathered.extend_from_slice(bytes);
        if self.gathered.len() >= BUFFER_BYTES { self.pass_on().await } else { Ok(()) }
    }

    async fn pass_on(&mut self) -> Result<(), BackupError> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let written = file.write_all(&self.gathered).await;
        written.map_err(failed(&self.path, "the file cannot be written"))?;
        self.gathered.clear();
        Ok(())
    }

    /// Makes the file durable under its name.
    pub(super) async fn finish(mut self) -> Result<(), BackupError> {
        self.pass_on().await?;
        let Some(mut file) = self.file.take() else { return Ok(()) };
        let cannot = "the file cannot be brought to the disk";
        file.flush().await.map_err(failed(&self.path, cannot))?;
        file.sync_all().await.map_err(failed(&self.path, cannot))?;
        drop(file);
        let path = self.path.clone();
        blocking(move || rename(&temporary_path(&path), &path).map_err(failed(&path, cannot))).await
    }

    /// Discards the file.
    pub(super) async fn abandon(mut self) {
        drop(self.file.take());
        // A remaining file is deleted when the backup finishes.
        let _ = fs::remove_file(temporary_path(&self.path)).await;
    }
}

impl FileSource {
    /// Returns the next bytes: the requested number, or fewer at the end of the file.
    pub(super) async fn take(&mut self, bytes: usize) -> Result<Bytes, BackupError> {
        while self.ahead.len() < bytes {
            self.ahead.reserve(BUFFER_BYTES.max(bytes - self.ahead.len()));
            let read = self.file.read_buf(&mut self.ahead).await;
            if read.map_err(failed(&self.path, "the file cannot be read"))? == 0 {
                break;
            }
        }
        let length = bytes.min(self.ahead.len());
        Ok(self.ahead.split_to(length).freeze())
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BackupError> + Send + 'static,
) -> Result<T, BackupError> {
    let ended = tokio::task::spawn_blocking(work).await;
    ended.unwrap_or_else(|error| {
        let source = io::Error::other(error);
        Err(BackupError::Io { place: "a task".to_owned(), what: "it failed", source })
    })
}
