//! Writer of an object: one request if it is short, otherwise a multipart upload.

use super::failed::failed;
use crate::error::BackupError;
use crate::trouble::StoreTrouble;
use bytes::BytesMut;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt as _, Result};
use std::sync::Arc;
use tokio::task::JoinSet;

/// Size of each part except the last: equal, as some stores require, and at least 5 MiB.
pub(super) const PART_BYTES: usize = 8 * 1024 * 1024;
/// Maximum number of parts of an object.
const PARTS_MAX: u32 = 10_000;
/// Parts in flight.
const PARTS_AT_ONCE: usize = 2;

/// An object that is being written.
#[derive(Debug)]
pub(crate) struct ObjectSink {
    client: Arc<dyn ObjectStore>,
    path: Path,
    named: String,
    gathered: BytesMut,
    upload: Option<Box<dyn MultipartUpload>>,
    under_way: JoinSet<Result<()>>,
    parts: u32,
}

impl ObjectSink {
    pub(super) fn new(client: Arc<dyn ObjectStore>, path: Path, named: String) -> Self {
        let (gathered, under_way) = Default::default();
        Self { client, path, named, gathered, upload: None, under_way, parts: 0 }
    }

    /// Appends bytes.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> std::result::Result<(), BackupError> {
        self.gathered.extend_from_slice(bytes);
        while self.gathered.len() >= PART_BYTES {
            if self.parts == PARTS_MAX {
                return Err(BackupError::ObjectStore {
                    place: self.named.clone(),
                    what: "the object cannot be written",
                    trouble: StoreTrouble::Other,
                    said: format!(
                        "a partition of more than {} GiB has no room in one object: split it, or back up into a directory",
                        u64::from(PARTS_MAX) * PART_BYTES as u64 / (1 << 30)
                    ),
                });
            }
            let part = self.gathered.split_to(PART_BYTES);
            self.part(part).await.map_err(failed(self.named.clone(), "the object cannot be written"))?;
        }
        Ok(())
    }

    async fn part(&mut self, part: BytesMut) -> Result<()> {
        let upload = match &mut self.upload {
            Some(upload) => upload,
            None => self.upload.insert(self.client.put_multipart(&self.path).await?),
        };
        while self.under_way.len() >= PARTS_AT_ONCE
            && let Some(done) = self.under_way.join_next().await
        {
            done??;
        }
        self.parts += 1;
        self.under_way.spawn(upload.put_part(part.freeze().into()));
        Ok(())
    }

    /// Makes the object visible under its name.
    pub(crate) async fn finish(mut self) -> std::result::Result<(), BackupError> {
        let finished = self.finished().await;
        if finished.is_ok() {
            self.upload = None;
        }
        let named = self.named.clone();
        self.abandon().await;
        finished.map_err(failed(named, "the object cannot be written"))
    }

    async fn finished(&mut self) -> Result<()> {
        let rest = self.gathered.split();
        if self.upload.is_none() {
            return self.client.put(&self.path, rest.freeze().into()).await.map(drop);
        }
        if !rest.is_empty() {
            self.part(rest).await?;
        }
        while let Some(done) = self.under_way.join_next().await {
            done??;
        }
        if let Some(upload) = &mut self.upload {
            upload.complete().await?;
        }
        Ok(())
    }

    /// Discards the object.
    pub(crate) async fn abandon(mut self) {
        self.under_way.shutdown().await;
        if let Some(mut upload) = self.upload.take() {
            // Remaining parts are invisible to readers; lifecycle rules of the bucket delete them.
            let _ = upload.abort().await;
        }
    }
}

/// Deletes the parts of an unfinished upload, if there is time for it.
impl Drop for ObjectSink {
    fn drop(&mut self) {
        if let (Some(mut upload), Ok(runtime)) = (self.upload.take(), tokio::runtime::Handle::try_current()) {
            self.under_way.abort_all();
            runtime.spawn(async move { upload.abort().await });
        }
    }
}
