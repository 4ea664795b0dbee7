//! The endpoints that a client without routing uses for all calls.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Nodes that forward operations to the leaders: one at a time, the next once it fails.
#[derive(Debug)]
pub(crate) struct Forwarders {
    endpoints: Vec<String>,
    current: AtomicUsize,
}

impl Forwarders {
    /// Creates the list of endpoints, which must have at least one.
    pub(crate) fn new(endpoints: Vec<String>) -> Self {
        Self { endpoints, current: AtomicUsize::new(0) }
    }

    /// Returns all endpoints.
    pub(crate) fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    /// Returns the endpoint in use.
    pub(crate) fn current(&self) -> &str {
        let index = self.current.load(Ordering::Relaxed) % self.endpoints.len().max(1);
        self.endpoints.get(index).map_or("", String::as_str)
    }

    /// Records that the endpoint at `address` does not answer: the next one is used from now on, unless it is
    /// already.
    pub(crate) fn failed(&self, address: &str) {
        let current = self.current.load(Ordering::Relaxed);
        if self.current() == address {
            // If another caller was faster, the endpoint is replaced already.
            let _ =
                self.current.compare_exchange(current, current.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_endpoint_is_replaced_by_the_next_once() {
        let via = Forwarders::new(vec!["a:1".to_owned(), "b:1".to_owned()]);
        assert_eq!(via.current(), "a:1");
        via.failed("a:1");
        via.failed("a:1");
        assert_eq!(via.current(), "b:1", "two operations that failed together count as one");
        via.failed("b:1");
        assert_eq!(via.current(), "a:1");
        let alone = Forwarders::new(vec!["a:1".to_owned()]);
        alone.failed("a:1");
        assert_eq!(alone.current(), "a:1");
    }
}
