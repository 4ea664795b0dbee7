//! Link to one peer: the queue of operations to forward, and the task that opens a stream when needed.

use super::room::Room;
use super::stream::Carrier;
use super::{Forwards, RETRY_AFTER_MS};
use crate::service::reply::ReplyTo;
use crate::shard::OpRequest;
use archon_types::{Backoff, ErrorDetail, ErrorKind, NodeId};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Longest pause before an unreachable peer is tried again.
const BACKOFF_MAX: Duration = Duration::from_millis(250);
/// Minimum duration of a stream that is reopened at once.
const STEADY: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Queue {
    operations: VecDeque<OpRequest>,
    room: Room,
    /// True once it accepts no further operations.
    ended: bool,
}

/// Queue for one peer.
pub(super) struct Link {
    queue: Mutex<Queue>,
    filled: Notify,
}

impl Link {
    pub(super) fn new() -> Self {
        Self { queue: Mutex::default(), filled: Notify::new() }
    }

    /// Queues an operation; if refused, returns the way back to its client with the error.
    pub(super) fn push(&self, request: OpRequest) -> Option<(ReplyTo, ErrorDetail)> {
        let mut queue = self.queue.lock();
        if queue.ended {
            let why = "the node that led the partition was removed from the cluster, or this one is stopping";
            return Some((request.reply, ErrorDetail::new(ErrorKind::Unreachable, why)));
        }
        if !queue.room.take(request.client, request.op.cost()) {
            let under_way = queue.room.operations();
            let why = format!("{under_way} operations are passed on to the partition's leader already; retry later");
            let detail = ErrorDetail::new(ErrorKind::Overloaded, why).with_retry_after_ms(RETRY_AFTER_MS);
            return Some((request.reply, detail));
        }
        queue.operations.push_back(request);
        drop(queue);
        self.filled.notify_one();
        None
    }

    /// Waits until something is queued.
    pub(super) async fn wait(&self) {
        loop {
            let filled = self.filled.notified();
            if !self.queue.lock().operations.is_empty() {
                return;
            }
            filled.await;
        }
    }

    /// Takes queued operations in order while `wanted` accepts them; they keep their room until [`Link::give`].
    pub(super) fn take(&self, mut wanted: impl FnMut(&OpRequest) -> bool) -> Vec<OpRequest> {
        let mut queue = self.queue.lock();
        let mut taken = Vec::new();
        while let Some(next) = queue.operations.pop_front_if(|next| wanted(next)) {
            taken.push(next);
        }
        taken
    }

    /// Releases the room of an operation of `caller`, admitted by `cost` bytes.
    pub(super) fn give(&self, caller: u64, cost: usize) {
        self.queue.lock().room.give(caller, cost);
    }

    /// Returns whether no more operations are accepted.
    pub(super) fn is_ended(&self) -> bool {
        self.queue.lock().ended
    }

    fn is_empty(&self) -> bool {
        self.queue.lock().operations.is_empty()
    }
}

/// Ends a link together with its task, also on a panic: the next operation creates a new one.
struct EndGuard<'a>(&'a Link);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.ended = true;
        // Callers are notified by the end of their way back; nothing was sent.
        queue.operations.clear();
    }
}

impl Forwards {
    /// Runs until this node stops, or the peer is removed from the cluster: its number is not assigned again.
    pub(super) async fn run(&self, node: NodeId, link: &Link) {
        let _guard = EndGuard(link);
        let mut removals = self.shared.tables.removals();
        let mut backoff = Backoff::new(Duration::from_millis(10), BACKOFF_MAX);
        let mut carrier = Carrier::new(self, link, node);
        loop {
            tokio::select! {
                () = link.wait() => {}
                Ok(_) = removals.changed() => {}
                () = self.stop.cancelled() => break,
            }
            if self.shared.tables.is_removed(node) {
                break;
            }
            if link.is_empty() {
                continue;
            }
            let began = Instant::now();
            let ended = tokio::select! {
                ended = carrier.stream() => ended,
                Ok(_) = removals.wait_for(|_| self.shared.tables.is_removed(node)) => break,
                () = self.stop.cancelled() => break,
            };
            if began.elapsed() > STEADY {
                backoff.reset();
            }
            tracing::debug!(peer = %node, message = %ended, "no stream to a leader");
            carrier.fail(&ended);
            tokio::select! {
                () = tokio::time::sleep(backoff.next(rand::random())) => {}
                () = self.stop.cancelled() => break,
            }
        }
        self.links.lock().remove(&node);
        // First: otherwise an operation could be queued that no task would take.
        link.queue.lock().ended = true;
        carrier.fail("it was removed from the cluster, or this node is stopping");
    }
}
