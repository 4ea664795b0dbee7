//! Answers on their way back to clients.

use crate::admit::Permit;
use archon_proto::convert::kv::TaggedReply;
use archon_types::{Answer, ErrorDetail, ErrorKind, Millis};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{mpsc, oneshot};

/// Bytes of answers that may wait for one slow client; beyond, reads are answered by an overload instead of a value.
const WAITING_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Refusals for want of admission that may wait for one slow client; beyond, its stream ends.
const REFUSALS_MAX: usize = 8_192;

/// An answer with the share of admission that its operation holds until the client has it.
pub(crate) struct Delivery {
    reply: TaggedReply,
    pub(crate) bytes: usize,
    /// A refusal for want of admission holds none; it counts on its own.
    _permit: Option<Permit>,
    _refusal: Option<Refusal>,
}

impl Delivery {
    /// The answer.
    pub(crate) fn reply(&self) -> &TaggedReply {
        &self.reply
    }
}

/// One refusal under way.
struct Refusal(Arc<AtomicUsize>);

impl Drop for Refusal {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The way back to one client stream. Its queue needs no bound of its own: every answer in it holds a permit, and
/// permits are bounded per stream.
pub(crate) struct Connection {
    id: u64,
    sender: mpsc::UnboundedSender<Vec<Delivery>>,
    waiting_bytes: Arc<AtomicUsize>,
    refusals: Arc<AtomicUsize>,
}

impl Connection {
    pub(crate) fn new(id: u64) -> (Arc<Self>, mpsc::UnboundedReceiver<Vec<Delivery>>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Arc::new(Self { id, sender, waiting_bytes: Arc::default(), refusals: Arc::default() }), receiver)
    }

    /// Bytes of answers that wait; whoever gives them to the client takes them off.
    pub(crate) fn waiting(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.waiting_bytes)
    }

    /// Refuses an operation that was not admitted. Returns false if the client does not even take its refusals.
    pub(crate) fn refuse(&self, tag: u64, detail: ErrorDetail) -> bool {
        if self.refusals.fetch_add(1, Ordering::AcqRel) >= REFUSALS_MAX {
            self.refusals.fetch_sub(1, Ordering::AcqRel);
            return false;
        }
        let reply = TaggedReply { tag, log_time: Millis::ZERO, outcome: Err(detail) };
        let refusal = Some(Refusal(Arc::clone(&self.refusals)));
        self.send(vec![Delivery { reply, bytes: 0, _permit: None, _refusal: refusal }]);
        true
    }

    /// Sends answers. If the client is gone they are dropped; what was done stays done.
    pub(crate) fn send(&self, deliveries: Vec<Delivery>) {
        let bytes: usize = deliveries.iter().map(|delivery| delivery.bytes).sum();
        self.waiting_bytes.fetch_add(bytes, Ordering::AcqRel);
        if self.sender.send(deliveries).is_err() {
            self.waiting_bytes.fetch_sub(bytes, Ordering::AcqRel);
        }
    }
}

/// What became of an operation.
pub(crate) type Outcome = Result<Answer, ErrorDetail>;

/// Who waits for the answer to one operation.
pub(crate) enum ReplyTo {
    /// An operation in a stream.
    Stream { connection: Arc<Connection>, tag: u64, permit: Permit },
    /// A plain call; it also gets the partition's log time.
    Call { sender: oneshot::Sender<(Millis, Outcome)>, permit: Permit },
}

/// Gathers the answers of a turn, so that each connection gets one batch.
#[derive(Default)]
pub(crate) struct Replies {
    batches: BTreeMap<u64, (Arc<Connection>, Vec<Delivery>, usize)>,
    refused: u64,
}

impl Replies {
    /// Adds an answer. `log_time` is the partition's, zero if there is none.
    pub(crate) fn add(&mut self, to: ReplyTo, log_time: Millis, outcome: Outcome) {
        self.refused += u64::from(outcome.is_err());
        match to {
            ReplyTo::Call { sender, permit } => {
                // A caller that is gone does not want the answer.
                let _ = sender.send((log_time, outcome));
                drop(permit);
            }
            ReplyTo::Stream { connection, tag, permit } => {
                let (_, batch, waiting) = self.batches.entry(connection.id).or_insert_with(|| {
                    let waiting = connection.waiting_bytes.load(Ordering::Acquire);
                    (Arc::clone(&connection), Vec::new(), waiting)
                });
                let mut bytes = weight(&outcome);
                let mut outcome = outcome;
                if bytes > 0 && *waiting + bytes > WAITING_BYTES_MAX && *waiting > 0 {
                    let why =
                        format!("{waiting} bytes of answers wait for this client; take them before asking for more");
                    outcome = Err(ErrorDetail::new(ErrorKind::Overloaded, why).with_retry_after_ms(10));
                    bytes = 0;
                }
                *waiting += bytes;
                let reply = TaggedReply { tag, log_time, outcome };
                batch.push(Delivery { reply, bytes, _permit: Some(permit), _refusal: None });
            }
        }
    }

    /// Whether anything waits to be sent to a stream.
    pub(crate) fn has_streamed(&self) -> bool {
        !self.batches.is_empty()
    }

    /// Sends everything; returns how many answers were refusals.
    pub(crate) fn send(&mut self) -> u64 {
        for (_, (connection, batch, _)) in std::mem::take(&mut self.batches) {
            connection.send(batch);
        }
        std::mem::take(&mut self.refused)
    }
}

/// Bytes of values in an answer to a read. Answers to writes weigh nothing: they may not be withheld, and are small.
fn weight(outcome: &Outcome) -> usize {
    match outcome {
        Ok(Answer::Value(Some((value, _)))) => value.len(),
        Ok(Answer::Page { entries, .. }) => entries.iter().map(|entry| entry.key.len() + entry.value.len()).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admit::NodeAdmission;
    use archon_types::Revision;
    use bytes::Bytes;

    #[tokio::test]
    async fn a_connection_gets_one_batch_and_permits_live_until_delivery() {
        let admission = NodeAdmission::default();
        let stream = admission.stream();
        let (connection, mut receiver) = Connection::new(1);
        let mut replies = Replies::default();
        for tag in 0..3 {
            let permit = stream.try_admit(1).unwrap();
            let to = ReplyTo::Stream { connection: Arc::clone(&connection), tag, permit };
            replies.add(to, Millis::ZERO, Ok(Answer::Value(None)));
        }
        assert_eq!(replies.send(), 0);
        let batch = receiver.recv().await.unwrap();
        assert_eq!(batch.len(), 3);
        assert_eq!(stream.ops_used(), 3);
        drop(batch);
        assert_eq!(stream.ops_used(), 0);
    }

    #[tokio::test]
    async fn a_client_that_does_not_take_its_answers_gets_no_more_values() {
        let admission = NodeAdmission::default();
        let stream = admission.stream();
        let (connection, mut receiver) = Connection::new(1);
        let mut replies = Replies::default();
        let value = Bytes::from(vec![0; 1024 * 1024]);
        for tag in 0..10 {
            let permit = stream.try_admit(1).unwrap();
            let to = ReplyTo::Stream { connection: Arc::clone(&connection), tag, permit };
            replies.add(to, Millis::ZERO, Ok(Answer::Value(Some((value.clone(), Revision::new(1))))));
        }
        assert_eq!(replies.send(), 0);
        let batch = receiver.recv().await.unwrap();
        let refused = batch.iter().filter(|delivery| delivery.reply.outcome.is_err()).count();
        assert_eq!(refused, 2);
    }
}
