//! A file that is being written.

use super::directory::FileSink;
#[cfg(feature = "object-store")]
use super::objects::ObjectSink;
use crate::error::BackupError;

/// A file that is being written; it is there once [`Self::finish`] says so.
#[derive(Debug)]
pub(crate) enum Sink {
    File(FileSink),
    #[cfg(feature = "object-store")]
    Object(ObjectSink),
}

impl Sink {
    /// Adds bytes to the file.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> Result<(), BackupError> {
        match self {
            Self::File(file) => file.write(bytes).await,
            #[cfg(feature = "object-store")]
            Self::Object(object) => object.write(bytes).await,
        }
    }

    /// Has the file there, on the disk or in the store, under its name.
    pub(crate) async fn finish(self) -> Result<(), BackupError> {
        match self {
            Self::File(file) => file.finish().await,
            #[cfg(feature = "object-store")]
            Self::Object(object) => object.finish().await,
        }
    }

    /// Gives the file up.
    pub(crate) async fn abandon(self) {
        match self {
            Self::File(file) => file.abandon().await,
            #[cfg(feature = "object-store")]
            Self::Object(object) => object.abandon().await,
        }
    }
}
