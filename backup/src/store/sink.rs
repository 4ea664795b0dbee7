//! Writer of a file in a store.

use super::directory::FileSink;
#[cfg(feature = "object-store")]
use super::objects::ObjectSink;
use crate::error::BackupError;

/// A file that is being written; it appears once [`Self::finish`] succeeds.
#[derive(Debug)]
pub(crate) enum Sink {
    File(FileSink),
    #[cfg(feature = "object-store")]
    Object(ObjectSink),
}

impl Sink {
    /// Appends bytes.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> Result<(), BackupError> {
        match self {
            Self::File(file) => file.write(bytes).await,
            #[cfg(feature = "object-store")]
            Self::Object(object) => object.write(bytes).await,
        }
    }

    /// Makes the file durable under its name, on the disk or in the store.
    pub(crate) async fn finish(self) -> Result<(), BackupError> {
        match self {
            Self::File(file) => file.finish().await,
            #[cfg(feature = "object-store")]
            Self::Object(object) => object.finish().await,
        }
    }

    /// Discards the file.
    pub(crate) async fn abandon(self) {
        match self {
            Self::File(file) => file.abandon().await,
            #[cfg(feature = "object-store")]
            Self::Object(object) => object.abandon().await,
        }
    }
}
