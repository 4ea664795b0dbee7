//! Lock of a backup's place against other writers.

#[cfg(feature = "object-store")]
use super::objects::ObjectLock;
use crate::error::BackupError;
use archon_durable::Lock;

/// A place that this process has locked for writing.
#[derive(Debug)]
pub(crate) struct LockedPlace(Kind);

#[derive(Debug)]
enum Kind {
    /// The operating system releases it when the process ends.
    Directory { _lock: Lock },
    #[cfg(feature = "object-store")]
    Objects(ObjectLock),
}

impl LockedPlace {
    pub(super) fn of_directory(lock: Lock) -> Self {
        Self(Kind::Directory { _lock: lock })
    }

    #[cfg(feature = "object-store")]
    pub(super) fn of_objects(lock: ObjectLock) -> Self {
        Self(Kind::Objects(lock))
    }

    /// Runs `work` while the lock is held. If the lock is lost, the work is cancelled.
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

    /// Releases the lock.
    pub(crate) async fn release(self) {
        match self.0 {
            Kind::Directory { .. } => {}
            #[cfg(feature = "object-store")]
            Kind::Objects(lock) => lock.release().await,
        }
    }
}
