//! A file that is being read.

use super::directory::FileSource;
#[cfg(feature = "object-store")]
use super::objects::ObjectSource;
use crate::error::BackupError;
use bytes::Bytes;

/// A file that is read from its beginning.
#[derive(Debug)]
pub(crate) enum Source {
    File(FileSource),
    #[cfg(feature = "object-store")]
    Object(ObjectSource),
}

impl Source {
    /// The next bytes: as many as are asked for, or fewer where the file ends.
    pub(crate) async fn take(&mut self, bytes: usize) -> Result<Bytes, BackupError> {
        match self {
            Self::File(file) => file.take(bytes).await,
            #[cfg(feature = "object-store")]
            Self::Object(object) => object.take(bytes).await,
        }
    }
}
