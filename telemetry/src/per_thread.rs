//! Counters of which each thread that counts has its own, so that none waits for another's cache line.

use parking_lot::Mutex;
use std::sync::Arc;

/// One `T` for each thread that counts; whoever reads sums them.
#[derive(Debug, Default)]
pub struct PerThread<T>(Mutex<Vec<Arc<T>>>);

impl<T: Default> PerThread<T> {
    /// Another thread's own. It counts for as long as this is there, also when the thread has ended.
    pub fn member(&self) -> Arc<T> {
        let member = Arc::new(T::default());
        self.0.lock().push(Arc::clone(&member));
        member
    }
}

impl<T> PerThread<T> {
    /// The sum of all of them.
    pub fn sum<S: std::iter::Sum<S>>(&self, read: impl Fn(&T) -> S) -> S {
        self.0.lock().iter().map(|member| read(member)).sum()
    }
}
