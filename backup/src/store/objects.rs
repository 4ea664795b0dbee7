//! Backup in an object store, under a prefix of names. Objects appear completely or not at all.

mod client;
mod failed;
mod lock;
mod object_sink;
mod object_source;

pub(super) use lock::ObjectLock;
pub(super) use object_sink::ObjectSink;
pub(super) use object_source::ObjectSource;

use super::check_length;
use super::place::Service;
use crate::error::BackupError;
use crate::progress::Progress;
use bytes::Bytes;
use failed::{failed, is_absent};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _};
use std::fmt;
use std::sync::Arc;

/// Maximum size of objects that stores copy in one request.
const COPY_BYTES_MAX: u64 = 5 * 1024 * 1024 * 1024;

/// A prefix in a bucket.
#[derive(Clone)]
pub(super) struct Objects {
    client: Arc<dyn ObjectStore>,
    /// `s3://bucket`; objects of the same bucket can be copied without reading them.
    bucket: String,
    prefix: String,
}

/// Omits the client, which holds credentials.
impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Objects").field(&self.place()).finish()
    }
}

impl Objects {
    pub(super) fn open(service: Service, bucket: &str, prefix: &str) -> Result<Self, BackupError> {
        let named = format!("{}://{bucket}", service.scheme());
        let client = client::client(service, bucket).map_err(|error| failed::misconfigured(named.clone(), &error))?;
        Ok(Self::of(client, named, prefix))
    }

    pub(super) fn of(client: Arc<dyn ObjectStore>, bucket: String, prefix: &str) -> Self {
        Self { client, bucket, prefix: prefix.to_owned() }
    }

    pub(super) fn place(&self) -> String {
        if self.prefix.is_empty() { self.bucket.clone() } else { format!("{}/{}", self.bucket, self.prefix) }
    }

    fn path(&self, name: &str) -> Path {
        Path::from_iter(self.prefix.split('/').chain(name.split('/')).filter(|part| !part.is_empty()))
    }

    /// Returns the name for errors.
    fn named(&self, name: &str) -> String {
        format!("{}/{name}", self.place())
    }

    /// Locks the place.
    pub(super) async fn hold(&self, progress: &Progress) -> Result<ObjectLock, BackupError> {
        ObjectLock::take(self, progress).await
    }

    /// Returns the length of an object; `None` if it does not exist.
    pub(super) async fn length(&self, name: &str) -> Result<Option<u64>, BackupError> {
        match self.client.head(&self.path(name)).await {
            Ok(found) => Ok(Some(found.size)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(failed(self.named(name), "the object cannot be read")(error)),
        }
    }

    /// Returns the names in a folder, in order.
    pub(super) async fn list(&self, folder: &str) -> Result<Vec<String>, BackupError> {
        let path = self.path(folder);
        let found = self.client.list_with_delimiter(Some(&path)).await;
        let found = found.map_err(failed(self.named(folder), "the objects cannot be listed"))?;
        let objects = found.objects.iter().map(|object| &object.location);
        let names = objects.chain(&found.common_prefixes).filter_map(Path::filename);
        let mut names: Vec<String> = names.map(|name| format!("{folder}{name}")).collect();
        names.sort();
        Ok(names)
    }

    /// Reads a whole object; `None` if it does not exist.
    pub(super) async fn read(&self, name: &str) -> Result<Option<Bytes>, BackupError> {
        let cannot = "the object cannot be read";
        match self.client.get(&self.path(name)).await {
            Ok(found) => {
                check_length(name, found.meta.size)?;
                Ok(Some(found.bytes().await.map_err(failed(self.named(name), cannot))?))
            }
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(failed(self.named(name), cannot)(error)),
        }
    }

    /// Writes a whole object; replaces an existing one.
    pub(super) async fn write(&self, name: &str, bytes: Bytes) -> Result<(), BackupError> {
        let mut sink = self.create(name);
        sink.write(&bytes).await?;
        sink.finish().await
    }

    /// Deletes an object if it exists.
    pub(super) async fn delete(&self, name: &str) -> Result<(), BackupError> {
        match self.client.delete(&self.path(name)).await {
            Err(error) if !is_absent(&error) => Err(failed(self.named(name), "the object cannot be deleted")(error)),
            _ => Ok(()),
        }
    }

    /// Returns whether the store itself can copy this object of another place.
    pub(super) async fn copies_from(&self, from: &Self, name: &str) -> Result<bool, BackupError> {
        Ok(self.bucket == from.bucket && from.length(name).await?.is_some_and(|bytes| bytes <= COPY_BYTES_MAX))
    }

    /// Makes the store copy an object of another place.
    pub(super) async fn copy(&self, from: &Self, name: &str, as_name: &str) -> Result<(), BackupError> {
        let copied = self.client.copy(&from.path(name), &self.path(as_name)).await;
        copied.map_err(failed(from.named(name), "the store cannot copy the object"))
    }

    /// Creates an object, which appears once [`ObjectSink::finish`] succeeds.
    pub(super) fn create(&self, name: &str) -> ObjectSink {
        ObjectSink::new(self.client.clone(), self.path(name), self.named(name))
    }

    /// Opens an object; `None` if it does not exist.
    pub(super) async fn open_object(&self, name: &str) -> Result<Option<ObjectSource>, BackupError> {
        let length = self.length(name).await?;
        Ok(length.map(|length| ObjectSource::new(self.client.clone(), self.path(name), self.named(name), length)))
    }
}
