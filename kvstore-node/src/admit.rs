//! Admission: how many bytes and operations may be under way, for the node as a whole and for each client stream.
//!
//! Nothing waits here. Work beyond a bound is refused at once with [`ErrorKind::Overloaded`] and a time after which to
//! try again, so that overload is answered fast instead of piling up. A permit gives its share back when it is dropped.

use archon_types::{ErrorDetail, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of operations under way on a node.
pub(crate) const NODE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes of operations under way on one client stream.
pub(crate) const STREAM_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Operations under way on one client stream.
pub(crate) const STREAM_OPS_MAX: usize = 4_096;
/// What an operation costs beside its key and value, so that very many tiny ones are bounded too.
pub(crate) const OP_OVERHEAD_BYTES: usize = 256;

const RETRY_AFTER_NODE_MS: u64 = 50;
const RETRY_AFTER_STREAM_MS: u64 = 10;

/// A count that never passes its bound.
#[derive(Debug)]
struct Bounded {
    used: AtomicUsize,
    max: usize,
}

impl Bounded {
    fn new(max: usize) -> Self {
        Self { used: AtomicUsize::new(0), max }
    }

    fn try_take(&self, amount: usize) -> bool {
        let taken = |used: usize| used.checked_add(amount).filter(|sum| *sum <= self.max);
        self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, taken).is_ok()
    }

    fn give(&self, amount: usize) {
        let before = self.used.fetch_sub(amount, Ordering::AcqRel);
        debug_assert!(before >= amount, "gave back {amount} of {before}");
    }

    fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }
}

/// The node's admission. Clones share the same bound.
#[derive(Clone, Debug)]
pub(crate) struct NodeAdmission {
    bytes: Arc<Bounded>,
}

impl Default for NodeAdmission {
    fn default() -> Self {
        Self::new(NODE_BYTES_MAX)
    }
}

impl NodeAdmission {
    /// Admission of at most `bytes_max` bytes at once.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes: Arc::new(Bounded::new(bytes_max)) }
    }

    /// Bytes under way now.
    #[cfg(test)]
    pub(crate) fn bytes_used(&self) -> usize {
        self.bytes.used()
    }

    /// Admission for one new client stream, with the usual bounds.
    pub(crate) fn stream(&self) -> StreamAdmission {
        self.stream_with(STREAM_OPS_MAX, STREAM_BYTES_MAX)
    }

    /// Admission for one new client stream, of at most `ops_max` operations and `bytes_max` bytes at once.
    pub(crate) fn stream_with(&self, ops_max: usize, bytes_max: usize) -> StreamAdmission {
        let stream = Stream { ops: Bounded::new(ops_max), bytes: Bounded::new(bytes_max) };
        StreamAdmission { node: Arc::clone(&self.bytes), stream: Arc::new(stream) }
    }

    /// Admits one operation that came outside a stream, of `bytes` bytes of keys and values.
    ///
    /// # Errors
    /// [`ErrorKind::Overloaded`] with a time to wait.
    pub(crate) fn try_admit(&self, bytes: usize) -> Result<Permit, ErrorDetail> {
        let cost = bytes.saturating_add(OP_OVERHEAD_BYTES);
        if !self.bytes.try_take(cost) {
            return Err(overloaded("node", &self.bytes, cost, "bytes", RETRY_AFTER_NODE_MS));
        }
        Ok(Permit { node: Arc::clone(&self.bytes), stream: None, cost })
    }
}

#[derive(Debug)]
struct Stream {
    ops: Bounded,
    bytes: Bounded,
}

/// One client stream's admission; each operation counts for the node as well.
#[derive(Clone, Debug)]
pub(crate) struct StreamAdmission {
    node: Arc<Bounded>,
    stream: Arc<Stream>,
}

impl StreamAdmission {
    /// Admits one operation of `bytes` bytes of keys and values.
    ///
    /// # Errors
    /// [`ErrorKind::Overloaded`] with a time to wait; nothing is taken then.
    pub(crate) fn try_admit(&self, bytes: usize) -> Result<Permit, ErrorDetail> {
        let cost = bytes.saturating_add(OP_OVERHEAD_BYTES);
        if !self.stream.ops.try_take(1) {
            return Err(overloaded("stream", &self.stream.ops, 1, "operations", RETRY_AFTER_STREAM_MS));
        }
        if !self.stream.bytes.try_take(cost) {
            self.stream.ops.give(1);
            return Err(overloaded("stream", &self.stream.bytes, cost, "bytes", RETRY_AFTER_STREAM_MS));
        }
        if !self.node.try_take(cost) {
            self.stream.bytes.give(cost);
            self.stream.ops.give(1);
            return Err(overloaded("node", &self.node, cost, "bytes", RETRY_AFTER_NODE_MS));
        }
        Ok(Permit { node: Arc::clone(&self.node), stream: Some(Arc::clone(&self.stream)), cost })
    }

    /// Operations under way on this stream now.
    #[cfg(test)]
    pub(crate) fn ops_used(&self) -> usize {
        self.stream.ops.used()
    }
}

/// An admitted operation's share; dropping it gives it back.
#[derive(Debug)]
#[must_use = "dropping the permit gives its share back at once"]
pub(crate) struct Permit {
    node: Arc<Bounded>,
    stream: Option<Arc<Stream>>,
    cost: usize,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.node.give(self.cost);
        if let Some(stream) = &self.stream {
            stream.bytes.give(self.cost);
            stream.ops.give(1);
        }
    }
}

fn overloaded(whose: &str, bound: &Bounded, wanted: usize, unit: &str, retry_after_ms: u64) -> ErrorDetail {
    let (used, max) = (bound.used(), bound.max);
    let message = format!("the {whose} has {used} of {max} {unit} under way and this needs {wanted}; retry later");
    ErrorDetail::new(ErrorKind::Overloaded, message).with_retry_after_ms(retry_after_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_bounded_by_operations_and_by_bytes() {
        let node = NodeAdmission::default();
        let stream = node.stream_with(2, 10_000);
        let held = [stream.try_admit(10).unwrap(), stream.try_admit(10).unwrap()];
        let refusal = stream.try_admit(10).unwrap_err();
        assert_eq!((refusal.kind, refusal.retry_after_ms), (ErrorKind::Overloaded, Some(RETRY_AFTER_STREAM_MS)));
        drop(held);
        assert_eq!((stream.ops_used(), node.bytes_used()), (0, 0));
        let large = stream.try_admit(9_000).unwrap();
        assert!(stream.try_admit(9_000).unwrap_err().message.contains("bytes"));
        assert_eq!(stream.ops_used(), 1);
        drop(large);
        assert_eq!((stream.ops_used(), node.bytes_used()), (0, 0));
    }

    #[test]
    fn the_node_is_bounded_over_all_streams_and_a_refusal_takes_nothing() {
        let node = NodeAdmission::new(1_000);
        let (one, other) = (node.stream(), node.stream());
        let held = one.try_admit(600).unwrap();
        assert!(other.try_admit(600).unwrap_err().message.contains("the node has"));
        assert_eq!(other.ops_used(), 0);
        assert!(node.try_admit(600).is_err());
        drop(held);
        let unary = node.try_admit(600).unwrap();
        assert!(one.try_admit(600).is_err());
        drop(unary);
        assert_eq!(node.bytes_used(), 0);
    }

    #[test]
    fn threads_cannot_pass_the_bound_together() {
        let node = NodeAdmission::new(10 * OP_OVERHEAD_BYTES);
        let admitted = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..10).filter_map(|_| node.try_admit(0).ok()).collect::<Vec<_>>()))
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(admitted.len(), 10);
        drop(admitted);
        assert_eq!(node.bytes_used(), 0);
    }
}
