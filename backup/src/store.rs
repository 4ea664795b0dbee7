//! Storage of backups: a directory, or objects of an object store. Files appear under their names completely or not
//! at all.

mod directory;
mod locked_place;
#[cfg(feature = "object-store")]
mod objects;
mod place;
mod sink;
mod source;
#[cfg(test)]
mod tests;

pub(crate) use locked_place::LockedPlace;
pub(crate) use sink::Sink;
pub(crate) use source::Source;

use crate::error::BackupError;
use crate::manifest::{BEGUN, DATA, MANIFEST};
use crate::progress::Progress;
use bytes::Bytes;
use directory::Directory;
#[cfg(feature = "object-store")]
use objects::Objects;
use place::Place;

/// Maximum size of files that are read as a whole, such as the manifest.
const WHOLE_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// File or object that excludes a second writer.
const LOCK: &str = archon_durable::LOCK_FILE;
/// Directory in the root of a new ext4 file system.
const LOST_AND_FOUND: &str = "lost+found";

/// A place for a backup.
#[derive(Clone, Debug)]
pub struct Store(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Directory(Directory),
    #[cfg(feature = "object-store")]
    Objects(Objects),
}

impl Store {
    /// Returns the place at `at`: a path of a directory, or `file://` with a path. With the feature `object-store`
    /// also `s3://bucket/prefix` and `gs://bucket/prefix`; endpoint and credentials come from the environment
    /// (`AWS_…`, `GOOGLE_…`).
    ///
    /// # Errors
    /// [`BackupError::Usage`] for other kinds of places; [`BackupError::ObjectStore`] if the environment is invalid.
    pub fn at(at: &str) -> Result<Self, BackupError> {
        match Place::parse(at)? {
            Place::Directory(path) => Ok(Self(Kind::Directory(Directory::new(path)))),
            #[cfg(feature = "object-store")]
            Place::Objects { service, bucket, prefix } => {
                Ok(Self(Kind::Objects(Objects::open(service, &bucket, &prefix)?)))
            }
        }
    }

    /// Returns the place as it was named.
    pub fn place(&self) -> String {
        match &self.0 {
            Kind::Directory(directory) => directory.place(),
            #[cfg(feature = "object-store")]
            Kind::Objects(objects) => objects.place(),
        }
    }

    /// Creates the place if it does not exist, and locks it. `progress` describes what it waits for.
    #[cfg_attr(not(feature = "object-store"), allow(unused_variables))]
    pub(crate) async fn hold(&self, progress: &Progress) -> Result<LockedPlace, BackupError> {
        match &self.0 {
            Kind::Directory(directory) => Ok(LockedPlace::of_directory(directory.hold().await?)),
            #[cfg(feature = "object-store")]
            Kind::Objects(objects) => Ok(LockedPlace::of_objects(objects.hold(progress).await?)),
        }
    }

    /// Creates folders that do not exist.
    pub(crate) async fn make(&self, folders: &[&str]) -> Result<(), BackupError> {
        match &self.0 {
            Kind::Directory(directory) => directory.make(folders).await,
            // Objects need no folders.
            #[cfg(feature = "object-store")]
            Kind::Objects(_) => Ok(()),
        }
    }

    /// Returns the length of a file; `None` if it does not exist.
    pub(crate) async fn length(&self, name: &str) -> Result<Option<u64>, BackupError> {
        match &self.0 {
            Kind::Directory(directory) => directory.length(name).await,
            #[cfg(feature = "object-store")]
            Kind::Objects(objects) => objects.length(name).await,
        }
    }

    /// Returns true if the store holds at most a lock and `lost+found`.
    pub(crate) async fn is_empty(&self) -> Result<bool, BackupError> {
        let found = self.list("").await?;
        Ok(found.iter().all(|name| name == LOCK || name == LOST_AND_FOUND))
    }

    /// Returns the backup that contains this place, if any: files written there would be taken for its parts.
    pub(crate) async fn enclosing(&self) -> Result<Option<String>, BackupError> {
        match &self.0 {
            Kind::Directory(directory) => directory.enclosing(&[MANIFEST, BEGUN], DATA).await,
            // Objects have no folders: those of another prefix have distinct names.
            #[cfg(feature = "object-store")]
            Kind::Objects(_) => Ok(None),
        }
    }

    /// Returns the names in a folder (with trailing `/`, or empty for the top level), in order.
    pub(crate) async fn list(&self, folder: &str) -> Result<Vec<String>, BackupError> {
        match &self.0 {
            Kind::Directory(directory) => directory.list(folder).await,
            #[cfg(feature = "object-store")]
            Kind::Objects(objects) => objects.list(folder).await,
        }
    }

    /// Reads a whole file; `None` if it does not exist.
    pub(crate) async fn read(&self, name: &str) -> Result<Option<Bytes>, BackupError> {
        match &self.0 {
            Kind::Directory(directory) => match directory.length(name).await? {
                None => Ok(None),
                Some(bytes) => {
                    check_length(name, bytes)?;
                    directory.read(name).await.map(Some)
                }
            },
            #[cfg(feature = "object-store")]
            Kind::Objects(objects) => objects.read(name).await,
        }
    }

    /// Writes a whole file; replaces an existing one.
    pub(crate) async fn write(&self, name: &str, bytes: Bytes) -> Result<(), BackupError> {
        check_writable(name, bytes.len() as u64)?;
        match &self.0 {
            Kind::Directory(directory) => directory.write(name, bytes).await,
            #[cfg(feature = "object-store")]
            Kind::Objects(objects) => objects.write(name, bytes).await,
        }
    }

    /// Deletes a file if it exists.
    pub(crate) async fn delete(&self, name: &str) -> Result<(), BackupError> {
        match &self.0 {
            Kind::Directory(directory) => directory.delete(name).await,
            #[cfg(feature = "object-store")]
            Kind::Objects(objects) => objects.delete(name).await,
        }
    }

    /// Deletes an empty folder if it exists.
    pub(crate) async fn delete_folder(&self, folder: &str) {
        match &self.0 {
            Kind::Directory(directory) => directory.delete_folder(folder).await,
            #[cfg(feature = "object-store")]
            Kind::Objects(_) => {}
        }
    }

    /// Makes an immutable file of another place available here: as a hard link, as a copy made by the object store,
    /// or by reading and writing it.
    pub(crate) async fn take_over(&self, from: &Self, name: &str, as_name: &str) -> Result<(), BackupError> {
        match (&self.0, &from.0) {
            (Kind::Directory(directory), Kind::Directory(from)) => directory.take_over(from, name, as_name).await,
            #[cfg(feature = "object-store")]
            (Kind::Objects(objects), Kind::Objects(from)) if objects.copies_from(from, name).await? => {
                objects.copy(from, name, as_name).await
            }
            #[cfg(feature = "object-store")]
            _ => self.pass_on(from, name, as_name).await,
        }
    }

    #[cfg(feature = "object-store")]
    async fn pass_on(&self, from: &Self, name: &str, as_name: &str) -> Result<(), BackupError> {
        /// Bytes copied at once.
        const BYTES: usize = 1024 * 1024;
        let source = from.open(name).await?;
        let mut source = source.ok_or_else(|| BackupError::damaged(name, None, "it is missing"))?;
        let mut sink = self.create(as_name).await?;
        let passed = async {
            loop {
                let bytes = source.take(BYTES).await?;
                if bytes.is_empty() {
                    return Ok(());
                }
                sink.write(&bytes).await?;
            }
        };
        match passed.await {
            Ok(()) => sink.finish().await,
            Err(error) => {
                sink.abandon().await;
                Err(error)
            }
        }
    }

    /// Creates a file, which appears once [`Sink::finish`] succeeds.
    pub(crate) async fn create(&self, name: &str) -> Result<Sink, BackupError> {
        match &self.0 {
            Kind::Directory(directory) => Ok(Sink::File(directory.create(name).await?)),
            #[cfg(feature = "object-store")]
            Kind::Objects(objects) => Ok(Sink::Object(objects.create(name))),
        }
    }

    /// Opens a file; `None` if it does not exist.
    pub(crate) async fn open(&self, name: &str) -> Result<Option<Source>, BackupError> {
        match &self.0 {
            Kind::Directory(directory) => Ok(directory.open(name).await?.map(Source::File)),
            #[cfg(feature = "object-store")]
            Kind::Objects(objects) => Ok(objects.open_object(name).await?.map(Source::Object)),
        }
    }
}

/// Rejects a file that is too long to be read as a whole.
fn check_length(name: &str, bytes: u64) -> Result<(), BackupError> {
    match bytes <= WHOLE_BYTES_MAX {
        true => Ok(()),
        false => Err(BackupError::damaged(name, None, format!("it has {bytes} bytes"))),
    }
}

/// Rejects a file that would be too long for readers.
fn check_writable(name: &str, bytes: u64) -> Result<(), BackupError> {
    check_length(name, bytes).map_err(|_| {
        let why = format!("{name} of this backup would have {bytes} bytes, and at most {WHOLE_BYTES_MAX} are read");
        BackupError::Usage(format!("{why}; back up fewer tables at once"))
    })
}
