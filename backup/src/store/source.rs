//! Reader of a file in a store.

use super::directory::FileSource;
#[cfg(feature = "object-store")]
use super::objects::ObjectSource;
use crate::error::BackupError;
use bytes::Bytes;

/// A file that is read sequentially.
#[derive(Debug)]
pub(crate) enum Source {
    File(FileSource),
    #[cfg(feature = "object-store")]
    Object(ObjectSource),
}

impl Source {
    /// Returns the next bytes: the requested number, or fewer at the end of the file.
    pub(crate) async fn take(&mut self, bytes: usize) -> Result<Bytes, BackupError> {
        match self {
            Self::File(file) => file.take(bytes).await,
            #[cfg(feature = "object-store")]
            Self::Object(object) => object.take(bytes).await,
        }
    }
}
