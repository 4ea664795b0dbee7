//! Work on the threads of the runtime.

/// Runs work on the threads of the runtime. The thread that waits for the end of the process is none of them: each step
/// there would cost two changes of threads, which an agent pays between a stop and the first release.
pub(super) async fn on_worker<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    match tokio::spawn(work).await {
        Ok(result) => result,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
