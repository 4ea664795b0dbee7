//! Common parts of the unary calls of `Kv`: one operation, a page, or several operations at once, each answered when it
//! is committed.

use super::kv::KvService;
use super::overloaded;
use crate::node::state::shutting_down;
use crate::server::admit::Permit;
use crate::service::reply::{CallReply, Outcome, ReplyTo};
use crate::service::timed_request::TimedRequest;
use crate::shard::inbox::PushError;
use crate::shard::{OpRequest, ReplicaAnswer, ReplicaRead, ShardMessage, StaleRead};
use archon_host::{Origin, StaleRow};
use archon_proto::convert::error::status_of_wire;
use archon_proto::convert::kv::key_range::scan_of;
use archon_proto::convert::kv::{KeyedOp, OpName, TaggedReply, check_batch};
use archon_proto::v1;
use archon_security::Caller;
use archon_types::limits::OPERATION_OVERHEAD_BYTES;
use archon_types::{
    Answer, DEFAULT_TABLE, ErrorDetail, ErrorKind, Keys, ManyKeys, Millis, Op, OpId, PartitionId, Right, StoredValue,
    Table, TableId, partition_of, slot_of, tag_of,
};
use bytes::Bytes;
use futures::{StreamExt, stream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio::sync::oneshot;
use tonic::Status;

/// Bytes of values in the answer to one `Batch`: clients in other languages accept messages of 4 MiB at most by
/// default.
const BATCH_ANSWER_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Operations of one `Batch` in progress at once; each may hold a value.
const BATCH_CONCURRENT_MAX: usize = 32;

type Result<T, E = ErrorDetail> = std::result::Result<T, E>;

/// The error of a unary call, with what its client needs to repeat a write under the same name.
pub(super) struct CallError {
    detail: Box<ErrorDetail>,
    /// The stamp of the attempt, if it was stamped.
    stamp: Option<Millis>,
    /// The partition's log time; zero if unknown.
    log_time: Millis,
}

impl CallError {
    fn wire(self) -> v1::ErrorDetail {
        let log_time_ms = self.stamp.and(Some(self.log_time.get())).filter(|log_time| *log_time > 0);
        v1::ErrorDetail { stamp_ms: self.stamp.map(Millis::get), log_time_ms, ..(*self.detail).into() }
    }
}

impl From<ErrorDetail> for CallError {
    fn from(detail: ErrorDetail) -> Self {
        Self { detail: Box::new(detail), stamp: None, log_time: Millis::ZERO }
    }
}

/// The answer to an operation of a unary call under its name.
struct NamedReply {
    /// The partition's log time; zero if there is none.
    log_time: Millis,
    outcome: Result<Answer, CallError>,
    /// The share of admission that the call holds until its response is encoded.
    permit: Option<Permit>,
}

impl From<CallReply> for NamedReply {
    fn from(reply: CallReply) -> Self {
        let CallReply { log_time, outcome, permit } = reply;
        Self { log_time, outcome: outcome.map_err(CallError::from), permit }
    }
}

impl From<CallError> for Status {
    fn from(error: CallError) -> Self {
        status_of_wire(error.detail.kind, &error.wire())
    }
}

impl KvService {
    /// Carries out one operation on a key; returns the partition's log time with the answer.
    pub(super) async fn call(
        &self,
        caller: &Caller,
        cluster: Option<&v1::ClusterRef>,
        table: &str,
        op: Op,
        id: Option<v1::OpId>,
    ) -> Result<(Millis, Answer), CallError> {
        self.check(cluster, None)?;
        let name: Option<OpName> = id.map(TryInto::try_into).transpose().map_err(ErrorDetail::from)?;
        op.check()?;
        let table = self.table(caller, table, &op).await?;
        self.check_right(caller, table.id, &op)?;
        check_named(&table, None, name.as_ref(), &op)?;
        let partition = self.of_key(&table, &op)?;
        let reply = self.operate_named(caller, partition, op, name).await;
        Ok((reply.log_time, reply.outcome?))
    }

    /// Carries out an operation under its name. A first attempt without a stamp gets the partition's log time, from a
    /// read that is answered before the operation is sent: retries inside the cluster then carry it as well.
    async fn operate_named(&self, caller: &Caller, partition: PartitionId, op: Op, name: Option<OpName>) -> NamedReply {
        let Some(name) = name else { return self.operate(caller, partition, op, None).await.into() };
        let stamp = match (name.stamp, op.key()) {
            (Some(stamp), _) => stamp,
            (None, Some(key)) if !op.is_read() => {
                let read = Op::Get { key: key.clone() };
                match self.operate(caller, partition, read, None).await {
                    CallReply { log_time, outcome: Ok(_), .. } => log_time,
                    refused => return refused.into(),
                }
            }
            (None, _) => Millis::ZERO,
        };
        let CallReply { log_time, outcome, permit } =
            self.operate(caller, partition, op, Some(name.stamped(stamp))).await;
        let outcome = outcome.map_err(|detail| CallError { detail: Box::new(detail), stamp: Some(stamp), log_time });
        NamedReply { log_time, outcome, permit }
    }

    /// Reads a page of one partition.
    pub(super) async fn page(&self, caller: &Caller, request: v1::ScanRequest) -> Result<(Millis, Answer)> {
        self.check(request.cluster.as_ref(), None)?;
        let op = scan_of(&request)?;
        op.check()?;
        let table = self.table(caller, &request.table, &op).await?;
        self.check_right(caller, table.id, &op)?;
        let partition = self.of_scan(&table, &request, &op)?;
        let reply = self.operate(caller, partition, op, None).await;
        Ok((reply.log_time, reply.outcome?))
    }

    /// Reads a key at the copy on this node, whether it leads or not.
    pub(super) async fn stale(&self, caller: &Caller, request: v1::GetStaleRequest) -> Result<StaleRow> {
        self.check(request.cluster.as_ref(), None)?;
        let op = Op::Get { key: request.key.clone() };
        op.check()?;
        let table = self.table(caller, &request.table, &op).await?;
        self.check_right(caller, table.id, &op)?;
        let partition = self.of_key(&table, &op)?;
        let permit = self.shared.admission.client(caller.from).try_admit(op.cost())?;
        let (sender, answer) = oneshot::channel();
        let read = StaleRead { partition, key: request.key, permit, answer: sender };
        match self.shards.of(partition).try_push(ShardMessage::ReadStale(read)) {
            Ok(()) => answer.await.unwrap_or_else(|_| Err(shutting_down())),
            Err(PushError::Full(_)) => Err(overloaded()),
            Err(PushError::Closed(_)) => Err(shutting_down()),
        }
    }

    /// Reads keys of one partition at the copy on this node, whether it leads or not, as of one moment.
    pub(super) async fn read_replica(
        &self,
        caller: &Caller,
        partition: PartitionId,
        keys: ManyKeys,
    ) -> Result<ReplicaAnswer> {
        let permit = self.shared.admission.client(caller.from).try_admit(keys.bytes() + OPERATION_OVERHEAD_BYTES)?;
        let (sender, answer) = oneshot::channel();
        let read = ReplicaRead { partition, keys, permit, answer: sender };
        match self.shards.of(partition).try_push(ShardMessage::ReadReplica(read)) {
            Ok(()) => answer.await.map_err(|_| shutting_down()),
            Err(PushError::Full(_)) => Err(overloaded()),
            Err(PushError::Closed(_)) => Err(shutting_down()),
        }
    }

    /// Carries out several operations independently; the replies are in their order.
    pub(super) async fn several(&self, caller: &Caller, request: v1::BatchRequest) -> Result<Vec<v1::Reply>> {
        self.check(request.cluster.as_ref(), None)?;
        check_batch(&request.ops, "BatchRequest.ops")?;
        let table = match self.shared.find_table(&request.table, caller, BATCH, Right::Read).await {
            Ok(table) => table,
            // As for a table that the caller has no right to: each operation is refused by itself.
            Err(detail) if detail.kind == ErrorKind::Refused => {
                let refused = |op: v1::Op| self.refused_by_name(caller, &request.table, op);
                return Ok(request.ops.into_iter().map(refused).collect());
            }
            Err(detail) => return Err(detail),
        };
        let budget = AnswerBudget::default();
        let replies = stream::iter(request.ops).map(|op| self.one_of_several(caller, &table, op, &budget));
        // Answers hold their shares of admission until all of them are there.
        let replies: Vec<(v1::Reply, Option<Permit>)> = replies.buffered(BATCH_CONCURRENT_MAX).collect().await;
        Ok(replies.into_iter().map(|(reply, _)| reply).collect())
    }

    async fn one_of_several(
        &self,
        caller: &Caller,
        table: &Table,
        op: v1::Op,
        budget: &AnswerBudget,
    ) -> (v1::Reply, Option<Permit>) {
        let tag = op.tag;
        let NamedReply { log_time, outcome, permit } = match self.placed(caller, table, op, budget) {
            Ok((partition, op, name)) => self.operate_named(caller, partition, op, name).await,
            Err(detail) => CallReply::refusal(detail).into(),
        };
        match outcome.and_then(|answer| budget.admit(answer).map_err(CallError::from)) {
            Ok(answer) => (TaggedReply { tag, log_time, outcome: Ok(answer) }.into(), permit),
            Err(error) => {
                let answer = Some(v1::reply::Answer::Error(error.wire()));
                (v1::Reply { tag, log_time_ms: log_time.get(), answer }, None)
            }
        }
    }

    fn placed(
        &self,
        caller: &Caller,
        table: &Table,
        op: v1::Op,
        budget: &AnswerBudget,
    ) -> Result<(PartitionId, Op, Option<OpName>)> {
        let KeyedOp { partition, id, op, .. } = op.try_into()?;
        // The shard refuses an operation that the client named wrongly, as in a stream; the name may be another
        // table's.
        self.check_right(caller, partition.map_or(table.id, |partition| partition.table), &op)?;
        check_named(table, partition, id.as_ref(), &op)?;
        // A named partition decides itself: it may know the write of an earlier attempt, although its keys are divided now.
        let partition = match partition {
            Some(named) if op.key().is_some() => named,
            _ => self.of_key(table, &op)?,
        };
        if op.is_read() && budget.is_full() {
            return Err(full());
        }
        Ok((partition, op, id))
    }

    /// Returns the answer to an operation on an unknown table, by a caller that must not learn that it is unknown.
    fn refused_by_name(&self, caller: &Caller, table: &str, op: v1::Op) -> v1::Reply {
        let tag = op.tag;
        let outcome = KeyedOp::try_from(op).map_err(ErrorDetail::from).and_then(|keyed| {
            let name = if table.is_empty() { DEFAULT_TABLE } else { table };
            self.shared.access.of(caller, call_of(&keyed.op)).check_unknown(name, Right::of(&keyed.op))?;
            // The right was granted meanwhile. Only a question to the coordinators could deny the table.
            let why = format!("the rights to table {name:?} have changed during this call; repeat it");
            Err(ErrorDetail::new(ErrorKind::Unavailable, why).with_retry_after_ms(100))
        });
        TaggedReply { tag, log_time: Millis::ZERO, outcome }.into()
    }

    /// Returns the partition for a page.
    fn of_scan(&self, table: &Table, request: &v1::ScanRequest, op: &Op) -> Result<PartitionId> {
        let invalid = |why: String| Err(ErrorDetail::new(ErrorKind::InvalidArgument, why));
        let index = match (request.partition, table.keys) {
            (Some(asked), keys) if asked < keys.numbers_end() => asked,
            (Some(asked), keys) => {
                let last = keys.numbers_end().saturating_sub(1);
                return invalid(format!("table {} has no partition {asked}; its numbers are 0 to {last}", table.name));
            }
            (None, Keys::Range { .. }) => {
                let Op::Scan { keys, order, .. } = op else { return invalid("this is no scan".to_owned()) };
                let first = self.shared.tables.first_of(table.id, keys, *order);
                return first.ok_or_else(|| self.shared.unknown_table(&table.name));
            }
            (None, Keys::Hash { partitions }) if tag_of(&request.prefix).is_some() => {
                partition_of(slot_of(&request.prefix), partitions)
            }
            (None, Keys::Hash { partitions: 1 }) => 0,
            (None, Keys::Hash { .. }) => {
                return invalid("this call reads one partition: name it, or give a prefix with a {tag}".to_owned());
            }
        };
        Ok(PartitionId::new(table.id, index))
    }

    /// Returns the partition of an operation's keys.
    fn of_key(&self, table: &Table, op: &Op) -> Result<PartitionId> {
        let Some(key) = op.key() else {
            let why = "a scan cannot be part of a batch; call Scan";
            return Err(ErrorDetail::new(ErrorKind::InvalidArgument, why));
        };
        let partition_of = |key: &Bytes| self.shared.tables.partition_of(table.id, key);
        let partition = partition_of(key).ok_or_else(|| self.shared.unknown_table(&table.name))?;
        if op.any_key(|key| partition_of(key) != Some(partition)) {
            let why = "the keys of one operation are in several partitions of the table; give them one {tag}";
            return Err(ErrorDetail::new(ErrorKind::InvalidArgument, why));
        }
        Ok(partition)
    }

    pub(super) fn check_right(&self, caller: &Caller, table: TableId, op: &Op) -> Result<()> {
        self.shared.access.of(caller, call_of(op)).check(&self.shared.tables, table, Right::of(op))
    }

    /// Returns the table that a call names, if the caller may know it.
    pub(super) async fn table(&self, caller: &Caller, name: &str, op: &Op) -> Result<Table> {
        self.shared.find_table(name, caller, call_of(op), Right::of(op)).await
    }

    async fn operate(&self, caller: &Caller, partition: PartitionId, op: Op, id: Option<OpId>) -> CallReply {
        self.operate_as(caller, partition, op, id, Origin::AnyNodeClient).await
    }

    /// Carries out an operation of this origin.
    pub(super) async fn operate_as(
        &self,
        caller: &Caller,
        partition: PartitionId,
        op: Op,
        id: Option<OpId>,
        origin: Origin,
    ) -> CallReply {
        let admission = self.shared.admission.client(caller.from);
        let permit = match admission.try_admit(op.cost()) {
            Ok(permit) => permit,
            Err(detail) => return CallReply::refusal(detail),
        };
        let asked = Some(TimedRequest::new(&op, partition, Instant::now()));
        let (sender, answer) = oneshot::channel();
        let request = OpRequest {
            partition,
            origin,
            client: admission.turn(),
            op,
            id,
            known: archon_types::Version::ZERO,
            parked_at: None,
            confirmed: None,
            awaited_entry: false,
            reply: ReplyTo::Call { sender, asked, permit },
        };
        match self.shards.of(partition).try_push(ShardMessage::Operations(vec![request])) {
            Ok(()) => answer.await.unwrap_or_else(|_| CallReply::refusal(shutting_down())),
            Err(PushError::Full(_)) => CallReply::refusal(overloaded()),
            Err(PushError::Closed(_)) => CallReply::refusal(shutting_down()),
        }
    }
}

const BATCH: &str = "/archon.v1.Kv/Batch";

/// Returns the call that carries out an operation.
const fn call_of(op: &Op) -> &'static str {
    match op {
        Op::Get { .. } => "/archon.v1.Kv/Get",
        Op::Put { .. } | Op::PutExpiring { expected: None, .. } => "/archon.v1.Kv/Put",
        Op::Delete { .. } => "/archon.v1.Kv/Delete",
        Op::CompareAndSet { .. } | Op::PutExpiring { expected: Some(_), .. } => "/archon.v1.Kv/CompareAndSet",
        Op::Increment { .. } => "/archon.v1.Kv/Increment",
        Op::Scan { .. } => "/archon.v1.Kv/Scan",
        Op::GetMany(_) | Op::Transaction(_) => BATCH,
    }
}

/// Rejects a named write without the partition it began at, in tables where keys can move: only that partition records
/// it under its name (PROTOCOL rule 42), and a retry without it might be sent to another one.
fn check_named(table: &Table, partition: Option<PartitionId>, id: Option<&OpName>, op: &Op) -> Result<()> {
    if !table.keys.is_range() || partition.is_some() || id.is_none() || op.is_read() {
        return Ok(());
    }
    let why = format!(
        "keys of table {} may come to be another partition's, which would not know this write by its name: call Batch with the \
         partition where it began in each operation, or write without a name",
        table.name
    );
    Err(ErrorDetail::new(ErrorKind::InvalidArgument, why))
}

/// Bytes of values in the answer to one `Batch` so far.
#[derive(Default)]
struct AnswerBudget(AtomicUsize);

impl AnswerBudget {
    fn is_full(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= BATCH_ANSWER_BYTES_MAX
    }

    /// Admits an answer if its value still fits; the first one always does.
    fn admit(&self, answer: Answer) -> Outcome {
        let bytes = match &answer {
            Answer::Value(Some(StoredValue { value, .. })) => value.len(),
            Answer::Values(values) => values.iter().flatten().map(|stored| stored.value.len()).sum(),
            _ => return Ok(answer),
        };
        let before = self.0.fetch_add(bytes, Ordering::Relaxed);
        if before > 0 && before + bytes > BATCH_ANSWER_BYTES_MAX { Err(full()) } else { Ok(answer) }
    }
}

fn full() -> ErrorDetail {
    let why =
        format!("one answer holds {BATCH_ANSWER_BYTES_MAX} bytes of values; ask for the rest of them in another batch");
    ErrorDetail::new(ErrorKind::Overloaded, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::Revision;

    #[test]
    fn batch_answer_with_large_values_is_bounded() {
        let value = |bytes: usize| Answer::Value(Some(StoredValue::new(Bytes::from(vec![0; bytes]), Revision::new(1))));
        let budget = AnswerBudget::default();
        assert!(budget.admit(value(BATCH_ANSWER_BYTES_MAX - 10)).is_ok() && !budget.is_full());
        assert_eq!(budget.admit(value(11)).unwrap_err().kind, ErrorKind::Overloaded);
        assert!(budget.is_full());
        // Small answers, and those to writes, are returned all the same.
        assert!(budget.admit(Answer::Value(None)).is_ok());
        assert!(budget.admit(Answer::Written { revision: Revision::new(1) }).is_ok());
    }
}
