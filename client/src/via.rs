//! The endpoints through which everything goes, of a client that does not route.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Nodes of which each passes on what others lead: one at a time, the next once it fails.
#[derive(Debug)]
pub(crate) struct Via {
    endpoints: Vec<String>,
    current: AtomicUsize,
}

impl Via {
    /// Through these; there is at least one.
    pub(crate) fn new(endpoints: Vec<String>) -> Self {
        Self { endpoints, current: AtomicUsize::new(0) }
    }

    /// All of them.
    pub(crate) fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    /// Where to go now.
    pub(crate) fn current(&self) -> &str {
        let index = self.current.load(Ordering::Relaxed) % self.endpoints.len().max(1);
        self.endpoints.get(index).map_or("", String::as_str)
    }

    /// The one at `address` gives no answers: from now on the next one is asked, unless that is so already.
    pub(crate) fn failed(&self, address: &str) {
        let current = self.current.load(Ordering::Relaxed);
        if self.current() == address {
            // If somebody else was quicker, it is so already.
            let _ =
                self.current.compare_exchange(current, current.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_fails_is_left_for_the_next_once() {
        let via = Via::new(vec!["a:1".to_owned(), "b:1".to_owned()]);
        assert_eq!(via.current(), "a:1");
        via.failed("a:1");
        via.failed("a:1");
        assert_eq!(via.current(), "b:1", "two operations that failed together count as one");
        via.failed("b:1");
        assert_eq!(via.current(), "a:1");
        let alone = Via::new(vec!["a:1".to_owned()]);
        alone.failed("a:1");
        assert_eq!(alone.current(), "a:1");
    }
}
