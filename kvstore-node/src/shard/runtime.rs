//! Runtime of a shard's thread.

use archon_security::build_runtime;
use tokio::runtime::{Builder, Handle, Runtime};

/// Runs one shard and the connections served on its thread. Tasks may be spawned onto it before the thread runs.
#[derive(Debug)]
pub(crate) struct ShardRuntime(Option<Runtime>);

impl ShardRuntime {
    /// Creates a runtime that no thread drives yet.
    ///
    /// # Errors
    /// If the system gives no descriptors for it, or no thread for its blocking work.
    pub(crate) fn new() -> std::io::Result<Self> {
        build_runtime(&mut Builder::new_current_thread()).map(|runtime| Self(Some(runtime)))
    }

    /// Returns a handle for spawning onto it.
    pub(crate) fn handle(&self) -> Option<Handle> {
        self.0.as_ref().map(|runtime| runtime.handle().clone())
    }

    /// Drives it on this thread until `shard` has ended.
    pub(super) fn run(self, shard: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.0 {
            // A task like those of the connections: they wake each other without a system call. The shard's guard
            // reports a panic.
            let _ = runtime.block_on(runtime.spawn(shard));
        }
    }
}

impl Drop for ShardRuntime {
    fn drop(&mut self) {
        // Remaining tasks belong to connections of an ended shard. Not awaited, which may happen within another
        // runtime.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
