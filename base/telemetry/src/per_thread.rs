//! Per-thread counters, which avoid contention on cache lines.

use parking_lot::Mutex;
use std::sync::Arc;

/// One `T` per counting thread; readers sum them.
#[derive(Debug, Default)]
pub struct PerThread<T>(Mutex<Vec<Arc<T>>>);

impl<T: Default> PerThread<T> {
    /// Adds the counter of another thread. It is part of the sum as long as this value exists, even after the thread
    /// has ended.
    pub fn member(&self) -> Arc<T> {
        let member = Arc::new(T::default());
        self.0.lock().push(Arc::clone(&member));
        member
    }
}

impl<T> PerThread<T> {
    /// Returns the sum over all threads.
    pub fn sum<S: std::iter::Sum<S>>(&self, read: impl Fn(&T) -> S) -> S {
        self.0.lock().iter().map(|member| read(member)).sum()
    }
}
