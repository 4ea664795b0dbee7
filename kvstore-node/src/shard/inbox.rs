//! Inbox of a shard: the only queue into it.
//!
//! Requests are bounded and refused (or waited for) when the queue is full. Completions, which answer work that the
//! shard itself started, are never refused: there are at most as many as the shard has started, and refusing one would
//! block the thread that completes it.

use parking_lot::Mutex;
use std::collections::VecDeque;
use tokio::sync::Notify;

/// Most requests that wait for a shard.
pub(crate) const INBOX_MESSAGES_MAX: usize = 8_192;
/// Bytes of payload of the requests that wait for a shard: twice what all clients of a node may have in progress. A
/// single larger request is accepted if no other waits.
pub(crate) const INBOX_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Most messages that one turn takes.
pub(crate) const TURN_MESSAGES_MAX: usize = 1_024;
/// Bytes after which one turn takes no more.
pub(crate) const TURN_BYTES_MAX: usize = 1024 * 1024;

/// Weight of a message, for the bounds of a turn.
pub(crate) trait Weight {
    /// Returns the bytes of payload.
    fn bytes(&self) -> usize;
}

/// Reason for refusing a request; returns it.
#[derive(Debug)]
pub(crate) enum PushError<T> {
    /// The queue is full: overload.
    Full(T),
    /// The shard has stopped or is stopping.
    Closed(T),
}

#[derive(Debug)]
struct State<T> {
    queue: VecDeque<QueuedInput<T>>,
    requests: usize,
    /// Bytes of the requests.
    bytes: usize,
    closed: bool,
}

#[derive(Debug)]
struct QueuedInput<T> {
    message: T,
    bytes: usize,
    request: bool,
}

/// The queue. Any thread pushes; the shard drains.
#[derive(Debug)]
pub(crate) struct Inbox<T> {
    state: Mutex<State<T>>,
    /// Wakes the shard, its only waiter. If the sender runs on the shard's own thread, as the readers of connections
    /// do, this wakes no thread.
    filled: Notify,
    space: Notify,
    requests_max: usize,
    bytes_max: usize,
}

impl<T: Weight> Inbox<T> {
    /// Creates an inbox that holds at most `requests_max` requests of `bytes_max` bytes.
    pub(crate) fn new(requests_max: usize, bytes_max: usize) -> Self {
        Self {
            state: Mutex::new(State { queue: VecDeque::new(), requests: 0, bytes: 0, closed: false }),
            filled: Notify::new(),
            space: Notify::new(),
            requests_max,
            bytes_max,
        }
    }

    /// Queues a request, or returns it at once if there is no room.
    ///
    /// # Errors
    /// [`PushError`], with the message.
    pub(crate) fn try_push(&self, message: T) -> Result<(), PushError<T>> {
        let bytes = message.bytes();
        let mut state = self.state.lock();
        if state.closed {
            return Err(PushError::Closed(message));
        }
        let heavy = state.requests > 0 && state.bytes.saturating_add(bytes) > self.bytes_max;
        if heavy || state.requests >= self.requests_max {
            return Err(PushError::Full(message));
        }
        state.requests += 1;
        state.bytes += bytes;
        state.queue.push_back(QueuedInput { message, bytes, request: true });
        drop(state);
        self.filled.notify_one();
        Ok(())
    }

    /// Queues a request, waiting for room. Dropping the future queues nothing.
    ///
    /// # Errors
    /// The message, when the inbox is closed.
    pub(crate) async fn push(&self, message: T) -> Result<(), T> {
        let mut message = message;
        loop {
            let mut room = std::pin::pin!(self.space.notified());
            // Registered before the attempt, so that room made in between is not missed.
            room.as_mut().enable();
            match self.try_push(message) {
                Ok(()) => return Ok(()),
                Err(PushError::Closed(back)) => return Err(back),
                Err(PushError::Full(back)) => message = back,
            }
            room.await;
        }
    }

    /// Queues a completion: never refused for lack of space, and accepted even after [`Inbox::close`], because a
    /// stopping shard waits for work that it started.
    pub(crate) fn complete(&self, message: T) {
        let bytes = message.bytes();
        self.state.lock().queue.push_back(QueuedInput { message, bytes, request: false });
        self.filled.notify_one();
    }

    /// Returns once something is queued. For the shard alone.
    pub(crate) async fn filled(&self) {
        while self.is_empty() {
            self.filled.notified().await;
        }
    }

    /// Moves queued messages into `turn`, up to the bounds of a turn.
    pub(crate) fn drain(&self, turn: &mut Vec<T>) {
        let mut state = self.state.lock();
        let mut bytes = 0;
        let (mut requests, mut freed) = (0, 0);
        while turn.len() < TURN_MESSAGES_MAX && bytes < TURN_BYTES_MAX {
            let Some(next) = state.queue.pop_front() else { break };
            bytes += next.bytes;
            if next.request {
                requests += 1;
                freed += next.bytes;
            }
            turn.push(next.message);
        }
        state.requests -= requests;
        state.bytes -= freed;
        drop(state);
        if requests > 0 {
            self.space.notify_waiters();
        }
    }

    /// Refuses requests from now on. Queued ones are still drained.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.space.notify_waiters();
        self.filled.notify_one();
    }

    /// Returns the number of waiting messages.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().queue.len()
    }

    /// Returns whether no message waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    impl Weight for usize {
        fn bytes(&self) -> usize {
            *self
        }
    }

    #[test]
    fn inbox_bounds_requests_not_completions() {
        let inbox = Inbox::new(2, 100);
        assert!(inbox.try_push(1).is_ok());
        assert!(inbox.try_push(2).is_ok());
        assert!(matches!(inbox.try_push(3), Err(PushError::Full(3))));
        inbox.complete(4);
        let mut turn = Vec::new();
        inbox.drain(&mut turn);
        assert_eq!(turn, [1, 2, 4]);
        assert!(inbox.try_push(5).is_ok());
    }

    /// Eight thousand messages of a peer may have sixteen mebibytes each.
    #[test]
    fn request_above_byte_bound_is_accepted_alone() {
        let inbox = Inbox::new(8, 100);
        assert!(inbox.try_push(60).is_ok());
        assert!(matches!(inbox.try_push(41), Err(PushError::Full(41))));
        assert!(inbox.try_push(40).is_ok());
        inbox.complete(1_000);
        let mut turn = Vec::new();
        inbox.drain(&mut turn);
        assert!(inbox.try_push(500).is_ok(), "nothing waits");
        assert!(matches!(inbox.try_push(1), Err(PushError::Full(1))));
    }

    #[test]
    fn turn_takes_at_most_its_bytes() {
        let inbox = Inbox::new(8, usize::MAX);
        for _ in 0..3 {
            assert!(inbox.try_push(TURN_BYTES_MAX / 2 + 1).is_ok());
        }
        let mut turn = Vec::new();
        inbox.drain(&mut turn);
        assert_eq!(turn.len(), 2);
        assert_eq!(inbox.len(), 1);
    }

    #[tokio::test]
    async fn waiter_is_woken_by_earlier_and_later_messages() {
        let inbox = Arc::new(Inbox::new(4, 100));
        inbox.complete(1);
        inbox.filled().await;
        let mut turn = Vec::new();
        inbox.drain(&mut turn);
        // The notification for the first message must not count for a second one that does not exist.
        let waiting = tokio::spawn({
            let inbox = inbox.clone();
            async move { inbox.filled().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        assert!(inbox.try_push(2).is_ok());
        waiting.await.expect("the task does not panic");
        inbox.drain(&mut turn);
        assert_eq!(turn, [1, 2]);
    }

    #[tokio::test]
    async fn waiting_push_resumes_with_room_and_ends_on_close() {
        let inbox = Arc::new(Inbox::new(1, 100));
        assert!(inbox.try_push(1).is_ok());
        let waiting = tokio::spawn({
            let inbox = inbox.clone();
            async move { inbox.push(2).await }
        });
        tokio::task::yield_now().await;
        let mut turn = Vec::new();
        inbox.drain(&mut turn);
        assert_eq!(waiting.await.expect("the task does not panic"), Ok(()));
        let refused = tokio::spawn({
            let inbox = inbox.clone();
            async move { inbox.push(3).await }
        });
        tokio::task::yield_now().await;
        inbox.close();
        assert_eq!(refused.await.expect("the task does not panic"), Err(3));
    }
}
