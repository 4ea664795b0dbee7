//! Admission: how many bytes and operations may be under way, for the node as a whole, for each address that clients come
//! from, and for each of their streams.
//!
//! Nothing waits here. Work beyond a bound is refused at once with [`ErrorKind::Overloaded`] and a time after which to
//! try again, so that overload is answered fast instead of piling up. A permit gives its share back when it is dropped.
//!
//! Nobody takes the last of it: whoever has something under way already gets more only if as much stays free for others as
//! it has, and a quarter is kept for those who have little. So those who take all they can leave a part to those who want
//! little.

mod address;
mod bounded;

use address::{Address, Node};
use archon_types::limits::{KEY_BYTES_MAX, OPERATION_OVERHEAD_BYTES, VALUE_BYTES_MAX};
use archon_types::{ErrorDetail, ErrorKind};
use bounded::Bounded;
use std::net::IpAddr;
use std::sync::Arc;

/// Bytes of operations under way on a node.
pub(crate) const NODE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Which part of a node the clients at one address have at most.
const ADDRESS_SHARE: usize = 4;
/// Bytes of operations under way on one client stream.
pub(crate) const STREAM_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Operations under way on one client stream.
pub(crate) const STREAM_OPS_MAX: usize = 4_096;
/// Bytes that one read may find: a page that was asked for, or a single entry that is larger.
const READ_BYTES_MAX: usize = KEY_BYTES_MAX + VALUE_BYTES_MAX;
/// Which part of what the node and each address have is kept for those who have little.
const KEPT_PART: usize = 4;
/// Bytes under way that are little, of a stream and of all clients at one address.
const STREAM_LITTLE_BYTES: usize = 64 * 1024;
const ADDRESS_LITTLE_BYTES: usize = 16 * STREAM_LITTLE_BYTES;
/// Differences between what an operation was admitted by and what it holds that are not worth a correction.
const SMALL_BYTES: usize = 4 * 1024;

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
    /// Admission of at most `bytes_max` bytes at once.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { node: Arc::new(Node::new(bytes_max)) }
    }

    /// Bytes under way now.
    pub(crate) fn bytes_used(&self) -> usize {
        self.node.bytes.used()
    }

    /// Admission for a client at `from`.
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
    /// Admission for one new stream, with the usual bounds.
    pub(crate) fn stream(&self) -> StreamAdmission {
        self.stream_with(STREAM_OPS_MAX, STREAM_BYTES_MAX)
    }

    /// Admission for one new stream, of at most `ops_max` operations and `bytes_max` bytes at once.
    pub(crate) fn stream_with(&self, ops_max: usize, bytes_max: usize) -> StreamAdmission {
        let stream = Stream { ops: Bounded::new(ops_max), bytes: Bounded::new(bytes_max) };
        StreamAdmission { address: Arc::clone(&self.address), stream: Arc::new(stream) }
    }

    /// A number that no other address of now has.
    pub(crate) fn number(&self) -> u64 {
        self.address.number
    }

    /// Admits one operation that came outside a stream.
    ///
    /// # Errors
    /// [`ErrorKind::Overloaded`] with a time to wait.
    pub(crate) fn try_admit(&self, cost: usize) -> Result<Permit, ErrorDetail> {
        take(&self.address, 0, cost)?;
        Ok(Permit { address: Arc::clone(&self.address), stream: None, cost })
    }
}

/// Takes `cost` bytes of what an address and the node have, for somebody who has `held` bytes already.
fn take(address: &Address, held: usize, cost: usize) -> Result<(), ErrorDetail> {
    let node = &address.node.bytes;
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

/// What must stay free if somebody who has `held` bytes takes `cost` more, and `little` bytes are little.
fn left(of: &Bounded, held: usize, cost: usize, little: usize) -> usize {
    if held.saturating_add(cost) <= little { held } else { held.max(of.max() / KEPT_PART) }
}

#[derive(Debug)]
struct Stream {
    ops: Bounded,
    bytes: Bounded,
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
    /// [`ErrorKind::Overloaded`] with a time to wait; nothing is taken then.
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
    address: Arc<Address>,
    stream: Option<Arc<Stream>>,
    cost: usize,
}

impl Permit {
    /// Whether there is room for what a read may find. To be asked before anything is read.
    ///
    /// # Errors
    /// [`ErrorKind::Overloaded`] with a time to wait.
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

    /// Whether the answer may be `more` bytes larger than what was admitted.
    fn fits(&self, stream: &Stream, more: usize) -> bool {
        let (address, node) = (&self.address.bytes, &self.address.node.bytes);
        let held = stream.bytes.used();
        stream.bytes.free() >= more
            && address.free() >= more.saturating_add(left(address, held, more, STREAM_LITTLE_BYTES))
            && node.free() >= more.saturating_add(left(node, address.used(), more, ADDRESS_LITTLE_BYTES))
    }

    /// What is held from now on is the answer, with `bytes` bytes of keys and values: what the operation brought is in the
    /// log and in the memtable by now, and what it did not read is given back.
    ///
    /// # Errors
    /// [`ErrorKind::Overloaded`] with a time to wait, if a read found more than there is room for; of small answers and those
    /// that were admitted there always is.
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

fn overloaded(whose: &str, bound: &Bounded, wanted: usize, unit: &str, retry_after_ms: u64) -> ErrorDetail {
    let (used, max) = (bound.used(), bound.max());
    let message = format!("{whose} {used} of {max} {unit} under way and this needs {wanted}; retry later");
    ErrorDetail::new(ErrorKind::Overloaded, message).with_retry_after_ms(retry_after_ms)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
