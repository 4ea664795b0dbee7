//! Where a backup is kept: in a directory, or in objects of an object store. What is written under a name is there as a whole, or not
//! at all.

mod directory;
mod held;
#[cfg(feature = "object-store")]
mod objects;
mod place;
mod sink;
mod source;
#[cfg(test)]
mod tests;

pub(crate) use held::Held;
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

/// Longest manifest that is read.
const WHOLE_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// The file, or object, that keeps two writers apart.
const LOCK: &str = archon_durable::LOCK_FILE;
/// The directory that a new ext4 file system holds at its root.
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
    /// The place at `at`: a directory's path, or `file://` and one. With the feature `object-store` also `s3://bucket/prefix` and
    /// `gs://bucket/prefix`; who is spoken to, and with which credentials, is read from the environment (`AWS_…`, `GOOGLE_…`).
    ///
    /// # Errors
    /// [`BackupError::Usage`] for any other kind of place; [`BackupError::ObjectStore`] if the environment is not as it must be.
    pub fn at(at: &str) -> Result<Self, BackupError> {
        match Place::parse(at)? {
            Place::Directory(path) => Ok(Self(Kind::Directory(Directory::new(path)))),
            #[cfg(feature = "object-store")]
            Place::Objects { service, bucket, prefix } => {
                Ok(Self(Kind::Objects(Objects::open(service, &bucket, &prefix)?)))
            }
        }
    }

    /// The place, as it was named.
    pub fn place(&self) -> String {
        match &self.0 {
            Kind::Directory(directory) => directory.place(),
            #[cfg(feature = "object-store")]
            Kind::Objects(objects) => objects.place(),
        }
    }

    /// Makes the place, if it is not there, and keeps others away. What is waited for on the way, the progress tells.
    #[cfg_attr(not(feature = "object-store"), allow(unused_variables))]
    pub(crate) async fn hold(&self, progress: &Progress) -> Result<Held, BackupError> {
        match &self.0 {
            Kind::Directory(directory) => Ok(Held::of_directory(directory.hold().await?)),
            #[cfg(feature = "object-store")]
            Kind::Objects(objects) => Ok(Held::of_objects(objects.hold(progress).await?)),
        }
    }

    /// Makes folders, if they are not there.
    pub(crate) async fn make(&self, folders: &[&str]) -> Result<(), BackupError> {
        match &self.0 {
            Kind::Directory(directory) => directory.make(folders).await,
            // A folder is how names of objects begin.
            #[cfg(feature = "object-store")]
            Kind::Objects(_) => Ok(()),
        }
    }

    /// How long a file is; `None` if it is not there.
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

    /// The backup in which this place is, if it is in one: what is written there would be taken for a part of that.
    pub(crate) async fn enclosing(&self) -> Result<Option<String>, BackupError> {
        match &self.0 {
            Kind::Directory(directory) => directory.enclosing(&[MANIFEST, BEGUN], DATA).await,
            // Objects have no folders: what is below another prefix is still named in full.
            #[cfg(feature = "object-store")]
            Kind::Objects(_) => Ok(None),
        }
    }

    /// The names in a folder, which ends in `/`, or at the top if it is empty; in order.
    pub(crate) async fn list(&self, folder: &str) -> Result<Vec<String>, BackupError> {
        match &self.0 {
            Kind::Directory(directory) => directory.list(folder).await,
            #[cfg(feature = "object-store")]
            Kind::Objects(objects) => objects.list(folder).await,
        }
    }

    /// All of a file; `None` if it is not there.
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

    /// Writes all of a file, in place of one that may be there.
    pub(crate) async fn write(&self, name: &str, bytes: Bytes) -> Result<(), BackupError> {
        check_writable(name, bytes.len() as u64)?;
        match &self.0 {
            Kind::Directory(directory) => directory.write(name, bytes).await,
            #[cfg(feature = "object-store")]
            Kind::Objects(objects) => objects.write(name, bytes).await,
        }
    }

    /// Deletes a file, if it is there.
    pub(crate) async fn delete(&self, name: &str) -> Result<(), BackupError> {
        match &self.0 {
            Kind::Directory(directory) => directory.delete(name).await,
            #[cfg(feature = "object-store")]
            Kind::Objects(objects) => objects.delete(name).await,
        }
    }

    /// Deletes a folder that is empty, if it is there.
    pub(crate) async fn delete_folder(&self, folder: &str) {
        match &self.0 {
            Kind::Directory(directory) => directory.delete_folder(folder).await,
            #[cfg(feature = "object-store")]
            Kind::Objects(_) => {}
        }
    }

    /// Has a file of another place here, too, which is not changed any more: as a second name, copied by the object store itself, or read
    /// and written where neither is possible.
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
        /// What is passed on at once.
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

    /// Begins a file, which is there once [`Sink::finish`] says so.
    pub(crate) async fn create(&self, name: &str) -> Result<Sink, BackupError> {
        match &self.0 {
            Kind::Directory(directory) => Ok(Sink::File(directory.create(name).await?)),
            #[cfg(feature = "object-store")]
            Kind::Objects(objects) => Ok(Sink::Object(objects.create(name))),
        }
    }

    /// Opens a file; `None` if it is not there.
    pub(crate) async fn open(&self, name: &str) -> Result<Option<Source>, BackupError> {
        match &self.0 {
            Kind::Directory(directory) => Ok(directory.open(name).await?.map(Source::File)),
            #[cfg(feature = "object-store")]
            Kind::Objects(objects) => Ok(objects.open_object(name).await?.map(Source::Object)),
        }
    }
}

/// Refuses a file that is read as a whole and too long for it.
fn check_length(name: &str, bytes: u64) -> Result<(), BackupError> {
    match bytes <= WHOLE_BYTES_MAX {
        true => Ok(()),
        false => Err(BackupError::damaged(name, None, format!("it has {bytes} bytes"))),
    }
}

/// Refuses to write what no reader takes.
fn check_writable(name: &str, bytes: u64) -> Result<(), BackupError> {
    check_length(name, bytes).map_err(|_| {
        let why = format!("{name} of this backup would have {bytes} bytes, and at most {WHOLE_BYTES_MAX} are read");
        BackupError::Usage(format!("{why}; back up fewer tables at once"))
    })
}
