//! Bounds on the bodies of gRPC requests: the same limits on partial messages as in streams of frames.

use crate::partial::PartialMessage;
use crate::{FrameError, PartialBudget};
use archon_proto::convert::error::status_of;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tower_layer::Layer;

/// Head of each message: compression flag and length.
const HEAD_BYTES: usize = 5;

/// Calls with streamed requests: each of their messages counts until it is complete. Any other request counts until it
/// has ended, since its handler does not get the message before.
const STREAMING: [&str; 3] =
    ["/archon.v1.Raft/Append", "/archon.v1.Raft/Snapshot", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"];

/// Bounds the memory of partial requests on a gRPC server, and the wait for their rest. Calls between members of the
/// cluster have a separate budget. The caller is not identified here: a caller that uses up the members' budget delays
/// calls of members, and nothing else.
#[derive(Clone, Debug)]
pub struct PartialBodies {
    others: PartialBudget,
    members: PartialBudget,
    /// Prefix of the paths that members call.
    members_call: &'static str,
}

impl PartialBodies {
    /// `members` is the budget of calls to paths under `members_call` (`/package.Service/`), `others` of all others.
    pub const fn new(others: PartialBudget, members: PartialBudget, members_call: &'static str) -> Self {
        Self { others, members, members_call }
    }
}

impl<S> Layer<S> for PartialBodies {
    type Service = BoundedRequests<S>;

    fn layer(&self, inner: S) -> BoundedRequests<S> {
        BoundedRequests { inner, bodies: self.clone() }
    }
}

/// A service with bounded requests.
#[derive(Clone, Debug)]
pub struct BoundedRequests<S> {
    inner: S,
    bodies: PartialBodies,
}

impl<S: Service<http::Request<Body>>> Service<http::Request<Body>> for BoundedRequests<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> S::Future {
        let path = request.uri().path();
        let ours = path.starts_with(self.bodies.members_call);
        let budget = if ours { &self.bodies.members } else { &self.bodies.others };
        let streams = STREAMING.contains(&path);
        self.inner.call(request.map(|body| Body::new(PartialBody::new(body, streams, budget.clone()))))
    }
}

/// Body of a request. It ends with an error if partial data exceeds the budget or stalls.
struct PartialBody {
    body: Body,
    /// The request is a stream of messages.
    streams: bool,
    partial: PartialMessage,
    /// Bytes received of the partial message, or of a request that has not ended.
    received: usize,
    head: [u8; HEAD_BYTES],
    /// Runs while a message is partial.
    timeout: Option<Pin<Box<Sleep>>>,
}

impl PartialBody {
    fn new(body: Body, streams: bool, budget: PartialBudget) -> Self {
        Self { body, streams, partial: PartialMessage::new(budget), received: 0, head: [0; HEAD_BYTES], timeout: None }
    }

    /// Counts received bytes, which may end one message and begin others.
    fn note(&mut self, mut data: &[u8]) -> Result<(), FrameError> {
        if !self.streams {
            self.received = self.received.saturating_add(data.len());
            data = &[];
        }
        while !data.is_empty() {
            if self.received < HEAD_BYTES {
                let taken = data.len().min(HEAD_BYTES - self.received);
                self.head[self.received..self.received + taken].copy_from_slice(&data[..taken]);
                (self.received, data) = (self.received + taken, &data[taken..]);
                if self.received < HEAD_BYTES {
                    break;
                }
            }
            let [_, length @ ..] = self.head;
            let whole = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX).saturating_add(HEAD_BYTES);
            let taken = data.len().min(whole - self.received);
            (self.received, data) = (self.received + taken, &data[taken..]);
            if self.received == whole {
                self.whole();
            }
        }
        self.partial.hold(self.received)
    }

    fn whole(&mut self) {
        (self.received, self.timeout) = (0, None);
        self.partial.whole();
    }

    /// Returns ready if a partial message has stalled for too long.
    fn poll_late(&mut self, context: &mut Context<'_>) -> Poll<FrameError> {
        if self.received == 0 {
            return Poll::Pending;
        }
        loop {
            let until: Instant = self.partial.until(self.received);
            let timeout = self.timeout.get_or_insert_with(|| Box::pin(sleep_until(until)));
            if timeout.deadline() != until {
                timeout.as_mut().reset(until);
            }
            ready!(timeout.as_mut().poll(context));
            if let Err(late) = self.partial.late(self.received) {
                return Poll::Ready(late);
            }
        }
    }
}

impl http_body::Body for PartialBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let refused = |error: FrameError| Poll::Ready(Some(Err(status_of(&error.into_detail()))));
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(Err(error)) = frame.data_ref().map(|data| self.note(data)) {
                    self.whole();
                    return refused(error);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(ended) => {
                self.whole();
                Poll::Ready(ended)
            }
            Poll::Pending => {
                let late = ready!(self.poll_late(context));
                self.whole();
                refused(late)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body::Body as _;
    use std::future::poll_fn;

    /// Yields its chunks, then stays pending.
    struct StuckBody(Vec<Bytes>);

    impl http_body::Body for StuckBody {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            if self.0.is_empty() { Poll::Pending } else { Poll::Ready(Some(Ok(Frame::data(self.0.remove(0))))) }
        }
    }

    fn body(budget: &PartialBudget, streams: bool, chunks: &[&[u8]]) -> PartialBody {
        let chunks = chunks.iter().map(|chunk| Bytes::copy_from_slice(chunk)).collect();
        PartialBody::new(Body::new(StuckBody(chunks)), streams, budget.clone())
    }

    async fn next(body: &mut PartialBody) -> Result<Bytes, Status> {
        let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await.expect("it does not end");
        frame.map(|frame| frame.into_data().unwrap_or_default())
    }

    #[tokio::test(start_paused = true)]
    async fn stalled_body_is_given_up() {
        let budget = PartialBudget::new(1 << 20);
        let mut partial = body(&budget, true, &[&[0, 0, 0], &[0, 9], &[1, 2]]);
        for bytes in [3, 2, 2] {
            assert_eq!(next(&mut partial).await.map(|data| data.len()).ok(), Some(bytes));
        }
        let error = next(&mut partial).await.unwrap_err();
        assert!(error.message().contains("within 5000 ms"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn complete_message_counts_until_its_request_ends() {
        let budget = PartialBudget::new(1 << 20);
        let large = vec![7; 200 * 1024];
        let wire = [&[0][..], &u32::try_from(large.len()).unwrap().to_be_bytes(), &large].concat();
        let mut whole = body(&budget, false, &[&wire]);
        next(&mut whole).await.unwrap();
        assert!(budget.used() > 100 * 1024, "{}", budget.used());
        let error = next(&mut whole).await.unwrap_err();
        assert!(error.message().contains("within 5000 ms"), "{error}");
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn only_partial_messages_count_wherever_they_are_cut() {
        let budget = PartialBudget::new(1 << 20);
        let large = vec![7; 200 * 1024];
        // Two messages in five parts: the second one begins in the middle of the third.
        let head = |length: usize| [&[0][..], &u32::try_from(length).unwrap().to_be_bytes()].concat();
        let wire = [head(large.len()), large.clone(), head(large.len()), large].concat();
        let mut whole = body(&budget, true, &wire.chunks(wire.len().div_ceil(5)).collect::<Vec<_>>());
        let mut held = Vec::new();
        for _ in 0..5 {
            next(&mut whole).await.unwrap();
            held.push(budget.used());
        }
        assert!(held[0] > 0 && held[1] > held[0] && held[2] < held[1] && held[3] > held[2], "{held:?}");
        assert_eq!(held[4], 0, "{held:?}");
    }
}
