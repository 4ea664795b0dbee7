//! Threads for blocking work: runtimes that always keep one.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// Most threads for blocking work in one runtime. Further work waits for one of them.
const BLOCKING_THREADS_MAX: usize = 64;
/// Longer than any process runs.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// Builds a runtime for a process that runs for long, with all drivers and its first thread for blocking work.
///
/// Tokio panics in `spawn_blocking` if the system refuses a thread while the runtime has none for blocking work; if it has one, the
/// work waits for that thread. So the first thread starts here and stays: a process that reaches its limit of threads later gets slower and
/// keeps working.
///
/// # Errors
/// If the system refuses a thread or the descriptors of a runtime.
pub fn build_runtime(builder: &mut Builder) -> io::Result<Runtime> {
    builder.enable_all().thread_keep_alive(FOREVER).max_blocking_threads(BLOCKING_THREADS_MAX);
    let started = catch_unwind(AssertUnwindSafe(|| {
        let runtime = builder.build()?;
        drop(runtime.spawn_blocking(|| ()));
        Ok(runtime)
    }));
    started.unwrap_or_else(|_| Err(no_thread("a runtime")))
}

pub(crate) fn no_thread(purpose: &str) -> io::Error {
    let what = format!(
        "the system refuses a thread for {purpose}; raise the limit of threads (ulimit -u, TasksMax, pids.max)"
    );
    io::Error::new(io::ErrorKind::WouldBlock, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than any address space holds, so that no thread with such a stack starts.
    const STACK_TOO_LARGE: usize = 1 << 50;

    #[test]
    fn runtime_without_threads_returns_error() {
        let mut builders = [Builder::new_current_thread(), Builder::new_multi_thread()];
        for builder in &mut builders {
            let built = build_runtime(builder.thread_stack_size(STACK_TOO_LARGE));
            assert_eq!(built.map(drop).map_err(|error| error.kind()), Err(io::ErrorKind::WouldBlock));
        }
    }
}
