//! Keeps others from writing to the same place.

#[cfg(feature = "object-store")]
use super::objects::ObjectLock;
use crate::error::BackupError;
use archon_durable::Lock;

/// A place that is this process's own to write to.
#[derive(Debug)]
pub(crate) struct Held(Kind);

#[derive(Debug)]
enum Kind {
    /// The operating system lets go of it with the process.
    Directory { _lock: Lock },
    #[cfg(feature = "object-store")]
    Objects(ObjectLock),
}

impl Held {
    pub(super) fn of_directory(lock: Lock) -> Self {
        Self(Kind::Directory { _lock: lock })
    }

    #[cfg(feature = "object-store")]
    pub(super) fn of_objects(lock: ObjectLock) -> Self {
        Self(Kind::Objects(lock))
    }

    /// Does some work as long as the place is this process's own. Where that ends before the work does, the work ends with it.
    pub(crate) async fn keep<T>(
        &mut self,
        work: impl Future<Output = Result<T, BackupError>>,
    ) -> Result<T, BackupError> {
        match &mut self.0 {
            Kind::Directory { .. } => work.await,
            #[cfg(feature = "object-store")]
            Kind::Objects(lock) => lock.keep(work).await,
        }
    }

    /// Lets others in.
    pub(crate) async fn release(self) {
        match self.0 {
            Kind::Directory { .. } => {}
            #[cfg(feature = "object-store")]
            Kind::Objects(lock) => lock.release().await,
        }
    }
}
