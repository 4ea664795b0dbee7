//! Sequential reader of an object, in ranges: each is requested while the previous one is used. A reader may be
//! arbitrarily slow, and a failed range is retried alone.

use super::failed::failed;
use crate::error::BackupError;
use bytes::{Bytes, BytesMut};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _, Result};
use std::sync::Arc;
use tokio::task::JoinSet;

/// Bytes per request.
pub(super) const RANGE_BYTES: u64 = 8 * 1024 * 1024;

/// An object that is being read.
#[derive(Debug)]
pub(crate) struct ObjectSource {
    client: Arc<dyn ObjectStore>,
    path: Path,
    named: String,
    length: u64,
    /// Offset of the next request.
    next: u64,
    /// The pending request, at most one.
    asked: JoinSet<Result<Bytes>>,
    ahead: BytesMut,
}

impl ObjectSource {
    pub(super) fn new(client: Arc<dyn ObjectStore>, path: Path, named: String, length: u64) -> Self {
        let (asked, ahead) = Default::default();
        let mut source = Self { client, path, named, length, next: 0, asked, ahead };
        source.ask();
        source
    }

    fn ask(&mut self) {
        if self.next >= self.length {
            return;
        }
        let range = self.next..self.length.min(self.next + RANGE_BYTES);
        self.next = range.end;
        let (client, path) = (self.client.clone(), self.path.clone());
        self.asked.spawn(async move { client.get_range(&path, range).await });
    }

    /// Returns the next bytes: the requested number, or fewer at the end of the object.
    pub(crate) async fn take(&mut self, bytes: usize) -> std::result::Result<Bytes, BackupError> {
        while self.ahead.len() < bytes
            && let Some(found) = self.asked.join_next().await
        {
            let found = found.map_err(Into::into).flatten();
            let found = found.map_err(failed(self.named.clone(), "the object cannot be read"))?;
            self.ask();
            self.ahead.extend_from_slice(&found);
        }
        let length = bytes.min(self.ahead.len());
        Ok(self.ahead.split_to(length).freeze())
    }
}
