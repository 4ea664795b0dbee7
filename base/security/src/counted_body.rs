//! Body of a response, counted until its caller has read it.

use crate::limits::unread::{ResponseSlices, UnreadBudget, UnreadResponses};
use archon_types::ErrorDetail;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The connection of a response, and the budget for what its caller has not read.
#[derive(Clone, Debug)]
pub struct UnreadAccount {
    /// The responses of the connection.
    pub unread: Arc<UnreadResponses>,
    /// The budget.
    pub budget: UnreadBudget,
    /// The caller's address.
    pub from: IpAddr,
}

/// A body with parts that are held against a budget until the caller has read them. `refuse` makes the last frame, if the budget has no room
/// for the next part; it may own what must live as long as the body.
pub struct CountedBody<B, R> {
    /// `None` after a refusal.
    body: Option<B>,
    account: UnreadAccount,
    streamed: bool,
    refuse: R,
    /// The rest of a part.
    slices: Option<ResponseSlices>,
}

impl<B, R> CountedBody<B, R> {
    /// Counts a body. Callers of a `streamed` one may pause for longer.
    pub const fn new(body: B, account: UnreadAccount, streamed: bool, refuse: R) -> Self {
        Self { body: Some(body), account, streamed, refuse, slices: None }
    }
}

impl<B, R> std::fmt::Debug for CountedBody<B, R> {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("CountedBody").field("account", &self.account).finish_non_exhaustive()
    }
}

impl<B, R> Body for CountedBody<B, R>
where
    B: Body<Data = Bytes> + Unpin,
    R: FnMut(ErrorDetail) -> Result<Frame<Bytes>, B::Error> + Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        loop {
            if let Some(slice) = this.slices.as_mut().and_then(Iterator::next) {
                return Poll::Ready(Some(Ok(Frame::data(slice))));
            }
            this.slices = None;
            let Some(body) = this.body.as_mut() else { return Poll::Ready(None) };
            let frame = match ready!(Pin::new(body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                ended => return Poll::Ready(ended),
            };
            match frame.into_data() {
                Ok(part) if part.is_empty() => {}
                Ok(part) => {
                    let UnreadAccount { unread, budget, from } = &this.account;
                    match unread.hold(budget, *from, part, this.streamed) {
                        Ok(slices) => this.slices = Some(slices),
                        Err(detail) => {
                            this.body = None;
                            return Poll::Ready(Some((this.refuse)(detail)));
                        }
                    }
                }
                Err(other) => return Poll::Ready(Some(Ok(other))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.slices.as_ref().is_none_or(ResponseSlices::is_empty) && self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.slices, &self.body) {
            // HTTP/1 requests the length before the first part.
            (None, Some(body)) => body.size_hint(),
            (None, None) => SizeHint::with_exact(0),
            (Some(_), _) => SizeHint::default(),
        }
    }
}
