//! Answers on their way back to clients.

use crate::node::state::NodeState;
use crate::server::admit::Permit;
use crate::service::timed_request::TimedRequest;
use crate::statistics::op_times::ThreadOpTimes;
use crate::statistics::slow::FinishedRequest;
use archon_proto::convert::kv::TaggedReply;
use archon_types::{Answer, ErrorDetail, Millis, Version};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio::sync::{mpsc, oneshot};

/// Refusals for lack of admission that may wait for one slow client; beyond, its stream ends.
const REFUSALS_MAX: usize = 8_192;

/// An answer with the share of admission that its operation holds until the client has it.
pub(crate) struct Delivery {
    reply: TaggedReply,
    pub(crate) bytes: usize,
    /// The table version of the node that answered, if it was another node.
    pub(crate) hint: Version,
    /// A refusal for lack of admission holds no permit; it is counted separately.
    permit: Option<Permit>,
    _refusal: Option<Refusal>,
}

impl Delivery {
    /// Returns the answer, and the share of admission to hold until the client has it.
    pub(crate) fn into_parts(self) -> (TaggedReply, Option<Permit>) {
        (self.reply, self.permit)
    }

    /// Returns the answer.
    pub(crate) fn reply(&self) -> &TaggedReply {
        &self.reply
    }
}

/// One refusal in progress.
struct Refusal(Arc<AtomicUsize>);

impl Drop for Refusal {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The way back to one client stream. Its queue needs no bound of its own: every answer in it either holds one of the
/// stream's limited permits, or is a refusal, of which [`REFUSALS_MAX`] may wait.
pub(crate) struct Connection {
    id: u64,
    sender: mpsc::UnboundedSender<Vec<Delivery>>,
    refusals: Arc<AtomicUsize>,
}

impl Connection {
    pub(crate) fn new(id: u64) -> (Arc<Self>, mpsc::UnboundedReceiver<Vec<Delivery>>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Arc::new(Self { id, sender, refusals: Arc::default() }), receiver)
    }

    /// Returns a number unique among streams.
    pub(crate) const fn id(&self) -> u64 {
        self.id
    }

    /// Returns the refusal of an operation that was not admitted; `None` if too many refusals wait for the client.
    pub(crate) fn refusal(&self, tag: u64, detail: ErrorDetail) -> Option<Delivery> {
        if self.refusals.fetch_add(1, Ordering::AcqRel) >= REFUSALS_MAX {
            self.refusals.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        let reply = TaggedReply { tag, log_time: Millis::ZERO, outcome: Err(detail) };
        let refusal = Some(Refusal(Arc::clone(&self.refusals)));
        Some(Delivery { reply, bytes: 0, hint: Version::ZERO, permit: None, _refusal: refusal })
    }

    /// Sends answers. If the client is gone they are dropped; the operations keep their effect.
    pub(crate) fn send(&self, deliveries: Vec<Delivery>) {
        let _ = self.sender.send(deliveries);
    }
}

/// Outcome of an operation.
pub(crate) type Outcome = Result<Answer, ErrorDetail>;

/// The answer to an operation of a unary call.
pub(crate) struct CallReply {
    /// The partition's log time; zero if there is none.
    pub(crate) log_time: Millis,
    pub(crate) outcome: Outcome,
    /// The share of admission that the call holds until its response is encoded.
    pub(crate) permit: Option<Permit>,
}

impl CallReply {
    /// Creates a refusal before the partition was reached.
    pub(crate) const fn refusal(detail: ErrorDetail) -> Self {
        Self { log_time: Millis::ZERO, outcome: Err(detail), permit: None }
    }
}

/// Destination of the answer to one operation.
pub(crate) enum ReplyTo {
    /// An operation in a stream.
    Stream { connection: Arc<Connection>, tag: u64, asked: Option<TimedRequest>, permit: Permit },
    /// A unary call.
    Call { sender: oneshot::Sender<CallReply>, asked: Option<TimedRequest>, permit: Permit },
}

impl ReplyTo {
    /// Checks that there is room for the result of a read. Call this before anything is read: otherwise a client that
    /// accepts no answers would have rows read for nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Overloaded`](archon_types::ErrorKind::Overloaded) with a delay for the retry.
    pub(crate) fn room(&self) -> Result<(), ErrorDetail> {
        match self {
            Self::Stream { permit, .. } | Self::Call { permit, .. } => permit.room(),
        }
    }

    /// Counts the answer to a read that waits for an entry to commit. [`Replies::add`] then counts nothing more.
    ///
    /// # Errors
    /// [`ErrorKind::Overloaded`](archon_types::ErrorKind::Overloaded) with a delay for the retry.
    pub(crate) fn hold(&mut self, outcome: &Outcome) -> Result<(), ErrorDetail> {
        match self {
            Self::Stream { permit, .. } | Self::Call { permit, .. } => permit.answered(weight(outcome)),
        }
    }

    /// Returns the operation and its arrival; `None` if it could not be decoded.
    const fn asked(&self) -> Option<TimedRequest> {
        match self {
            Self::Stream { asked, .. } | Self::Call { asked, .. } => *asked,
        }
    }

    /// Returns the same, to record its progress.
    pub(crate) const fn asked_mut(&mut self) -> Option<&mut TimedRequest> {
        match self {
            Self::Stream { asked, .. } | Self::Call { asked, .. } => asked.as_mut(),
        }
    }

    /// Returns whether the client no longer waits for the answer.
    pub(crate) fn is_gone(&self) -> bool {
        match self {
            Self::Stream { connection, .. } => connection.sender.is_closed(),
            Self::Call { sender, .. } => sender.is_closed(),
        }
    }
}

/// Gathers the answers of a turn, so that each connection gets one batch.
#[derive(Default)]
pub(crate) struct Replies {
    batches: BTreeMap<u64, (Arc<Connection>, Vec<Delivery>)>,
    refused: u64,
    hint: Version,
    /// Counters of answer durations.
    timing: Option<Timing>,
    /// Gathered answers whose durations are not counted yet.
    answered: Vec<FinishedRequest>,
}

/// Counters of answer durations, of one thread.
#[derive(Clone)]
pub(crate) struct Timing {
    shared: Arc<NodeState>,
    times: Arc<ThreadOpTimes>,
    /// True if the answers come from other nodes.
    passed_on: bool,
}

impl Timing {
    /// Creates the counters of a thread that answers, or that delivers answers of other nodes.
    pub(crate) fn new(shared: &Arc<NodeState>, passed_on: bool) -> Self {
        Self { shared: Arc::clone(shared), times: shared.metrics.operation_seconds.member(), passed_on }
    }

    /// Counts a duration. Errors are not counted, but reported all the same if they took long.
    fn note(&self, answered: FinishedRequest, now: Instant, logged_at: impl FnOnce(Instant) -> Option<Instant>) {
        let asked = answered.asked;
        let took = now.saturating_duration_since(asked.at);
        if answered.error.is_none() {
            self.times.observe(asked.op, took);
        }
        if self.shared.slow.is_slow(took) {
            self.shared.metrics.operations_slow.add(1);
            let stages = asked.stages(now, logged_at);
            self.shared.slow.tell(&self.shared.tables, answered, self.passed_on, now, stages);
        }
    }
}

impl Replies {
    /// Gathers answers and counts their durations.
    pub(crate) fn timed(timing: Timing) -> Self {
        Self { timing: Some(timing), ..Self::default() }
    }

    /// Does the same for answers of another node, which holds the table up to this version.
    pub(crate) fn hinting(version: Version, timing: Timing) -> Self {
        Self { hint: version, ..Self::timed(timing) }
    }

    /// Adds an answer. `log_time` is the partition's, zero if there is none.
    pub(crate) fn add(&mut self, to: ReplyTo, log_time: Millis, outcome: Outcome) {
        let asked = to.asked();
        match to {
            ReplyTo::Call { sender, mut permit, .. } => {
                let mut outcome = outcome;
                if let Err(detail) = permit.answered(weight(&outcome)) {
                    outcome = Err(detail);
                }
                self.note(asked, &outcome);
                // The caller may be gone.
                let _ = sender.send(CallReply { log_time, outcome, permit: Some(permit) });
            }
            ReplyTo::Stream { connection, tag, mut permit, .. } => {
                let mut bytes = weight(&outcome);
                let mut outcome = outcome;
                if let Err(detail) = permit.answered(bytes) {
                    (outcome, bytes) = (Err(detail), 0);
                }
                self.note(asked, &outcome);
                let id = connection.id;
                let (_, batch) = self.batches.entry(id).or_insert_with(|| (connection, Vec::new()));
                let reply = TaggedReply { tag, log_time, outcome };
                batch.push(Delivery { reply, bytes, hint: self.hint, permit: Some(permit), _refusal: None });
            }
        }
    }

    /// Records what the client will get.
    fn note(&mut self, asked: Option<TimedRequest>, outcome: &Outcome) {
        let error = outcome.as_ref().err().map(|detail| detail.kind);
        self.refused += u64::from(error.is_some());
        if self.timing.is_some() {
            self.answered.extend(asked.map(|asked| FinishedRequest { asked, error }));
        }
    }

    /// Returns whether anything waits to be sent to a stream.
    pub(crate) fn has_streamed(&self) -> bool {
        !self.batches.is_empty()
    }

    /// Sends everything; returns the number of refusals.
    pub(crate) fn send(&mut self) -> u64 {
        self.send_at(Instant::now(), |_| None)
    }

    /// Does the same at `now`. `logged_at` returns when the log batch of the turn that began at a given time became
    /// durable.
    pub(crate) fn send_at(&mut self, now: Instant, logged_at: impl Fn(Instant) -> Option<Instant>) -> u64 {
        if let Some(timing) = &self.timing {
            self.answered.drain(..).for_each(|answered| timing.note(answered, now, &logged_at));
        }
        for (_, (connection, batch)) in std::mem::take(&mut self.batches) {
            connection.send(batch);
        }
        std::mem::take(&mut self.refused)
    }
}

/// Returns the bytes of keys and values in an answer to a read. Answers to writes count as zero: they are small.
fn weight(outcome: &Outcome) -> usize {
    match outcome {
        Ok(Answer::Value(Some(stored))) => stored.value.len(),
        Ok(Answer::Values(values)) => values.iter().flatten().map(|stored| stored.value.len()).sum(),
        Ok(Answer::Page { entries, .. }) => entries.iter().map(|entry| entry.key.len() + entry.value.len()).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::admit::NodeAdmission;
    use archon_types::{Op, PartitionId, Revision, StoredValue, TableId};
    use bytes::Bytes;
    use std::net::{IpAddr, Ipv4Addr};

    fn asked() -> Option<TimedRequest> {
        let (op, partition) = (Op::Get { key: Bytes::new() }, PartitionId::new(TableId::new(1), 0));
        Some(TimedRequest::new(&op, partition, Instant::now()))
    }

    const FROM: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[tokio::test]
    async fn connection_gets_one_batch_and_permits_last_until_delivery() {
        let admission = NodeAdmission::default();
        let stream = admission.client(FROM).stream();
        let (connection, mut receiver) = Connection::new(1);
        let mut replies = Replies::default();
        for tag in 0..3 {
            let permit = stream.try_admit(1).unwrap();
            let to = ReplyTo::Stream { connection: Arc::clone(&connection), tag, asked: asked(), permit };
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
    async fn only_waiting_answers_count_for_their_stream() {
        let admission = NodeAdmission::default();
        let stream = admission.client(FROM).stream();
        let (connection, mut receiver) = Connection::new(1);
        let mut replies = Replies::default();
        let value = Bytes::from(vec![0; 1024 * 1024]);
        let mut refused = 0;
        let mut get = |tag| {
            let permit = stream.try_admit(1_000).unwrap();
            let to = ReplyTo::Stream { connection: Arc::clone(&connection), tag, asked: asked(), permit };
            match to.room() {
                Ok(()) => replies.add(
                    to,
                    Millis::ZERO,
                    Ok(Answer::Value(Some(StoredValue::new(value.clone(), Revision::new(1))))),
                ),
                Err(_) => refused += 1,
            }
        };
        (0..10).for_each(&mut get);
        replies.send();
        assert_eq!(refused, 3, "no more is read than the stream has room for");
        drop(receiver.recv().await.unwrap());
        assert_eq!(admission.bytes_used(), 0);
        let permit = stream.try_admit(1_000).unwrap();
        drop(receiver);
        let to = ReplyTo::Stream { connection, tag: 11, asked: asked(), permit };
        assert!(to.is_gone());
        replies.add(to, Millis::ZERO, Ok(Answer::Value(Some(StoredValue::new(value, Revision::new(1))))));
        replies.send();
        assert_eq!((admission.bytes_used(), stream.ops_used()), (0, 0), "what nobody takes is given back");
    }

    /// Unary calls are those of Redis clients as well.
    #[test]
    fn answers_that_wait_for_an_entry_are_bounded() {
        let admission = NodeAdmission::default();
        let client = admission.client(FROM);
        let value = StoredValue::new(Bytes::from(vec![0; 1024 * 1024]), Revision::new(1));
        let outcome = Ok(Answer::Values(vec![Some(value.clone()), None, Some(value)]));
        let mut waiting = Vec::new();
        for _ in 0..1_000 {
            let Ok(permit) = client.try_admit(1_000) else { break };
            let mut to = ReplyTo::Call { sender: oneshot::channel().0, asked: asked(), permit };
            if to.room().is_err() || to.hold(&outcome).is_err() {
                break;
            }
            waiting.push(to);
        }
        let (count, used) = (waiting.len(), admission.bytes_used());
        assert!((2..=32).contains(&count) && used >= count * 2 * 1024 * 1024, "{count} wait, {used} bytes are counted");
        let mut replies = Replies::default();
        replies.add(waiting.pop().unwrap(), Millis::ZERO, outcome);
        assert!(admission.bytes_used() <= used, "an answer counts once");
        drop(waiting);
        assert_eq!(admission.bytes_used(), 0);
    }

    #[tokio::test]
    async fn unary_answer_holds_permit_until_encoded() {
        let admission = NodeAdmission::default();
        let permit = admission.client(FROM).try_admit(1_000).unwrap();
        let (sender, answer) = oneshot::channel();
        let mut replies = Replies::default();
        let value = Bytes::from(vec![0; 1024 * 1024]);
        let to = ReplyTo::Call { sender, asked: asked(), permit };
        replies.add(to, Millis::ZERO, Ok(Answer::Value(Some(StoredValue::new(value.clone(), Revision::new(1))))));
        replies.send();
        assert!(admission.bytes_used() >= value.len(), "{}", admission.bytes_used());
        let reply = answer.await.unwrap();
        assert!(reply.outcome.is_ok() && admission.bytes_used() >= value.len());
        drop(reply);
        assert_eq!(admission.bytes_used(), 0);
    }
}
