//! Admission: bounds on bytes and operations in progress, for the node as a whole, for each client address, and for
//! each stream.
//!
//! Requests never wait here. Work beyond a bound is refused at once with [`ErrorKind::Overloaded`] and a delay for the
//! retry, so that overload is answered fast instead of piling up. A permit returns its share when dropped.
//!
//! No client can take the last of a bound: one with work in progress gets more only if as much stays free for others as
//! it has, and a quarter is reserved for clients that have little. So greedy clients leave room for modest ones.

mod address;
mod bounded_count;

use address::{Address, Node};
use archon_types::limits::{KEY_BYTES_MAX, OPERATION_OVERHEAD_BYTES, VALUE_BYTES_MAX};
use archon_types::{ErrorDetail, ErrorKind};
use bounded_count::BoundedCount;
use std::net::IpAddr;
use std::sync::Arc;

/// Bytes of operations in progress on a node.
pub(crate) const NODE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Inverse of the largest share of a node for the clients at one address.
const ADDRESS_SHARE: usize = 4;
/// Bytes of operations in progress on one client stream.
pub(crate) const STREAM_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Operations in progress on one client stream.
pub(crate) const STREAM_OPS_MAX: usize = 4_096;
/// Bytes that one read may find: a requested page, or a single larger entry. A read of several keys may find twice as many, and is
/// refused if there is no room for its answer.
const READ_BYTES_MAX: usize = KEY_BYTES_MAX + VALUE_BYTES_MAX;
/// Inverse of the share of the node and of each address that is reserved for clients that have little.
const KEPT_PART: usize = 4;
/// Bytes in progress that count as little, of a stream and of all clients at one address.
const STREAM_LITTLE_BYTES: usize = 64 * 1024;
const ADDRESS_LITTLE_BYTES: usize = 16 * STREAM_LITTLE_BYTES;
/// Difference between the admitted and the actual cost of an operation that needs no correction.
const SMALL_BYTES: usize = 4 * 1024;
/// Distinguishes queues of addresses from those of streams, which count up from zero.
const OUTSIDE_STREAMS: u64 = 1 << 63;

const RETRY_AFTER_NODE_MS: u64 = 50;
const RETRY_AFTER_STREAM_MS: u64 = 10;

/// The node's admission. Clones share the same bound.
#[derive(Clone, Debug)]
pub(crate) struct NodeAdmission {
    node: Arc<Node>,
}

impl Default for NodeAdmission {
    fn default() -> Self {
        Self::new(NODE_BYTES_MAX)
    }
}

impl NodeAdmission {
    /// Creates an admission of at most `bytes_max` bytes at once.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { node: Arc::new(Node::new(bytes_max)) }
    }

    /// Returns the bytes in progress now.
    pub(crate) fn bytes_used(&self) -> usize {
        self.node.bytes.used()
    }

    /// Returns the admission of a client at `from`.
    pub(crate) fn client(&self, from: IpAddr) -> ClientAdmission {
        ClientAdmission { address: self.node.address(from) }
    }
}

/// The admission of all clients at one address.
#[derive(Clone, Debug)]
pub(crate) struct ClientAdmission {
    address: Arc<Address>,
}

impl ClientAdmission {
    /// Returns the admission of one new stream, with the usual bounds.
    pub(crate) fn stream(&self) -> StreamAdmission {
        self.stream_with(STREAM_OPS_MAX, STREAM_BYTES_MAX)
    }

    /// Returns the admission of one new stream, of at most `ops_max` operations and `bytes_max` bytes at once.
    pub(crate) fn stream_with(&self, ops_max: usize, bytes_max: usize) -> StreamAdmission {
        let stream = Stream { ops: BoundedCount::new(ops_max), bytes: BoundedCount::new(bytes_max) };
        StreamAdmission { address: Arc::clone(&self.address), stream: Arc::new(stream) }
    }

    /// Returns the queue in which operations outside streams take turns: no stream and no other present address has it.
    pub(crate) fn turn(&self) -> u64 {
        OUTSIDE_STREAMS | self.address.number
    }

    /// Admits one operation outside a stream.
    ///
    /// # Errors
    /// [`ErrorKind::Overloaded`] with a delay for the retry; without one for an operation that never fits.
    pub(crate) fn try_admit(&self, cost: usize) -> Result<Permit, ErrorDetail> {
        take(&self.address, 0, cost)?;
        Ok(Permit { address: Arc::clone(&self.address), stream: None, cost })
    }
}

/// Takes `cost` bytes of an address and the node, for a client that has `held` bytes already.
fn take(address: &Address, held: usize, cost: usize) -> Result<(), ErrorDetail> {
    let node = &address.node.bytes;
    // The share of an address is smaller than that of the node.
    let most = address.bytes.max() - left(&address.bytes, 0, cost, STREAM_LITTLE_BYTES);
    if cost > most {
        let message = format!(
            "the operation needs {cost} bytes, and this node never admits more than {most} at once for clients at one \
             address, because of its memory; put less into one operation, or give the nodes more --memory"
        );
        return Err(ErrorDetail::new(ErrorKind::Overloaded, message));
    }
    let before = address.bytes.used();
    if !address.bytes.try_take(cost, left(&address.bytes, held, cost, STREAM_LITTLE_BYTES)) {
        return Err(overloaded("clients at this address have", &address.bytes, cost, "bytes", RETRY_AFTER_NODE_MS));
    }
    if !node.try_take(cost, left(node, before, cost, ADDRESS_LITTLE_BYTES)) {
        address.bytes.give(cost);
        return Err(overloaded("the node has", node, cost, "bytes", RETRY_AFTER_NODE_MS));
    }
    Ok(())
}

/// Returns the amount that must stay free if a client with `held` bytes takes `cost` more, where up to `little` bytes
/// count as little.
fn left(of: &BoundedCount, held: usize, cost: usize, little: usize) -> usize {
    if held.saturating_add(cost) <= little { held } else { held.max(of.max() / KEPT_PART) }
}

#[derive(Debug)]
struct Stream {
    ops: BoundedCount,
    bytes: BoundedCount,
}

/// One client stream's admission; each operation counts for its address and the node as well.
#[derive(Clone, Debug)]
pub(crate) struct StreamAdmission {
    address: Arc<Address>,
    stream: Arc<Stream>,
}

impl StreamAdmission {
    /// Admits one operation that costs `cost` bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Overloaded`] with a delay for the retry; nothing is taken then. Without a delay for an operation that
    /// never fits.
    pub(crate) fn try_admit(&self, cost: usize) -> Result<Permit, ErrorDetail> {
        let Stream { ops, bytes } = &*self.stream;
        if !ops.try_take(1, 0) {
            return Err(overloaded("the stream has", ops, 1, "operations", RETRY_AFTER_STREAM_MS));
        }
        let held = bytes.used();
        if !bytes.try_take(cost, 0) {
            ops.give(1);
            return Err(overloaded("the stream has", bytes, cost, "bytes", RETRY_AFTER_STREAM_MS));
        }
        if let Err(refusal) = take(&self.address, held, cost) {
            bytes.give(cost);
            ops.give(1);
            return Err(refusal);
        }
        Ok(Permit { address: Arc::clone(&self.address), stream: Some(Arc::clone(&self.stream)), cost })
    }

    /// Returns the operations in progress on this stream now.
    #[cfg(test)]
    pub(crate) fn ops_used(&self) -> usize {
        self.stream.ops.used()
    }
}

/// An admitted operation's share, returned when dropped.
#[derive(Debug)]
#[must_use = "dropping the permit gives its share back at once"]
pub(crate) struct Permit {
    address: Arc<Address>,
    stream: Option<Arc<Stream>>,
    cost: usize,
}

impl Permit {
    /// Checks that there is room for the result of a read. Call this before anything is read.
    ///
    /// # Errors
    /// [`ErrorKind::Overloaded`] with a delay for the retry.
    pub(crate) fn room(&self) -> Result<(), ErrorDetail> {
        let (address, node) = (&self.address.bytes, &self.address.node.bytes);
        if node.free() == 0 {
            return Err(overloaded("the node has", node, READ_BYTES_MAX, "bytes", RETRY_AFTER_NODE_MS));
        }
        if address.free() == 0 {
            let whose = "clients at this address have";
            return Err(overloaded(whose, address, READ_BYTES_MAX, "bytes", RETRY_AFTER_NODE_MS));
        }
        let Some(stream) = &self.stream else { return Ok(()) };
        let held = stream.bytes.used();
        let wanted = READ_BYTES_MAX.saturating_sub(self.cost);
        if held <= STREAM_LITTLE_BYTES || self.fits(stream, wanted) {
            return Ok(());
        }
        Err(overloaded("the stream has", &stream.bytes, wanted, "bytes", RETRY_AFTER_STREAM_MS))
    }

    /// Returns whether the answer may be `more` bytes larger than the admitted cost.
    fn fits(&self, stream: &Stream, more: usize) -> bool {
        let (address, node) = (&self.address.bytes, &self.address.node.bytes);
        let held = stream.bytes.used();
        stream.bytes.free() >= more
            && address.free() >= more.saturating_add(left(address, held, more, STREAM_LITTLE_BYTES))
            && node.free() >= more.saturating_add(left(node, address.used(), more, ADDRESS_LITTLE_BYTES))
    }

    /// Changes the share to that of the answer, with `bytes` bytes of keys and values: the operation's own data is in
    /// the log and the memtable by now, and the unused part of a read is returned.
    ///
    /// # Errors
    /// [`ErrorKind::Overloaded`] with a delay for the retry, if a read found more than there is room for; never for
    /// small answers and those within the admitted cost.
    pub(crate) fn answered(&mut self, bytes: usize) -> Result<(), ErrorDetail> {
        let cost = bytes.saturating_add(OPERATION_OVERHEAD_BYTES);
        let counts =
            [Some(&self.address.node.bytes), Some(&self.address.bytes), self.stream.as_ref().map(|s| &s.bytes)];
        if cost.abs_diff(self.cost) < SMALL_BYTES {
            return Ok(());
        }
        if let Some(stream) = &self.stream
            && cost > self.cost.max(STREAM_LITTLE_BYTES)
            && !self.fits(stream, cost - self.cost)
        {
            return Err(overloaded("the stream has", &stream.bytes, cost - self.cost, "bytes", RETRY_AFTER_STREAM_MS));
        }
        for count in counts.into_iter().flatten() {
            if cost < self.cost { count.give(self.cost - cost) } else { count.take(cost - self.cost) }
        }
        self.cost = cost;
        Ok(())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.address.node.bytes.give(self.cost);
        self.address.bytes.give(self.cost);
        if let Some(stream) = &self.stream {
            stream.bytes.give(self.cost);
            stream.ops.give(1);
        }
    }
}

fn overloaded(whose: &str, bound: &BoundedCount, wanted: usize, unit: &str, retry_after_ms: u64) -> ErrorDetail {
    let (used, max) = (bound.used(), bound.max());
    let message = format!("{whose} {used} of {max} {unit} under way and this needs {wanted}; retry later");
    ErrorDetail::new(ErrorKind::Overloaded, message).with_retry_after_ms(retry_after_ms)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
